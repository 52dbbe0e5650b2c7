"""Define tasks that fix small Python programs so that their tests pass. The reward runs these tests, and calls the
function on additional cases, in a separate sandbox."""

import json
import random
from typing import Any

from environments.hybrid.tasks.task import Family, HybridGoal, HybridInstance, Trial, words
from schemas.action import ReadFile, Terminal, WriteFile

FAMILY = Family("programs")
ASK = 'Mend the function in "{}" so that "python3 {}" passes.'
SHOWN = 3
"""Number of cases in the tests."""
Cases = list[tuple[tuple[Any, ...], Any]]


def _program(chance: random.Random, function: str, right: str, wrong: str, cases: Cases) -> HybridInstance:
    """Makes the task of a program whose source has `wrong` in place of `right`."""
    name, test = f"{words(chance, 1)[0]}_{function}.py", f"test_{function}.py"
    checks = "".join(
        f"assert {function}(*{list(case)!r}) == {answer!r}, {json.dumps(case)!r}\n" for case, answer in cases[:SHOWN]
    )
    files = {name: wrong, test: f'from {name[:-3]} import {function}\n\n{checks}print("passed")\n'}
    script = (ReadFile(path=name), WriteFile(path=name, content=right), Terminal(command=f"python3 {test}"))
    return HybridInstance((name, test), HybridGoal(trials=(Trial(name, function, tuple(cases), test),)), script, files)


def _numbers(chance: random.Random, count: int) -> list[int]:
    return [chance.randint(-20, 60) for _ in range(count)]


TOTAL = """def total(values):
    result = 0
    for value in values:
        result += value
    return result
"""


@FAMILY.template("total", ASK, "medium", 10)
def _total(chance: random.Random) -> HybridInstance:
    cases: Cases = [((each,), sum(each)) for each in (_numbers(chance, size) for size in (3, 4, 2, 0, 1, 7))]
    return _program(chance, "total", TOTAL, TOTAL.replace("+=", "="), cases)


BETWEEN = '''def between(first, last):
    """All whole numbers from first to last, both included."""
    return list(range(first, last + 1))
'''


@FAMILY.template("between", ASK, "medium", 10)
def _between(chance: random.Random) -> HybridInstance:
    starts = [chance.randint(-5, 9) for _ in range(6)]
    cases: Cases = [((at, at + size), list(range(at, at + size + 1))) for size, at in enumerate(starts)]
    return _program(chance, "between", BETWEEN, BETWEEN.replace(" + 1", ""), cases)


MEDIAN = '''def median(values):
    """The middle value, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
'''


@FAMILY.template("median", ASK, "hard", 12)
def _median(chance: random.Random) -> HybridInstance:
    def answer(values: list[int]) -> float:
        ordered, middle = sorted(values), len(values) // 2
        return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2

    wrong = chance.choice((("sorted(values)", "list(values)"), ("[middle - 1]", "[middle]")))
    each = [[9, 1, 4, 20], [5, 3, 8], *(_numbers(chance, size) for size in (1, 2, 6, 7, 8))]
    return _program(chance, "median", MEDIAN, MEDIAN.replace(*wrong), [((one,), answer(one)) for one in each])


INITIALS = '''def initials(name):
    """The first letters of all words, as capitals."""
    return "".join(word[0].upper() for word in name.split())
'''


@FAMILY.template("initials", ASK, "medium", 10)
def _initials(chance: random.Random) -> HybridInstance:
    wrong = chance.choice(((".upper()", ""), ("split()", 'split(" ")')))
    names = ["ada  lovelace", "grace hopper", "Edith", *(" ".join(words(chance, 3)) for _ in range(3)), " a  b "]
    cases: Cases = [((name,), "".join(word[0].upper() for word in name.split())) for name in names]
    return _program(chance, "initials", INITIALS, INITIALS.replace(*wrong), cases)


LEAP = '''def leap(year):
    """Whether a year of the Gregorian calendar is a leap year."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
'''


@FAMILY.template("leap", ASK, "medium", 10)
def _leap(chance: random.Random) -> HybridInstance:
    wrong = chance.choice((" and (year % 100 != 0 or year % 400 == 0)", " or year % 400 == 0"))
    years = [1900, 2000, 2023, 2024, 2100, 1600, *(chance.randint(1800, 2200) for _ in range(4))]
    cases: Cases = [((year,), year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)) for year in years]
    return _program(chance, "leap", LEAP, LEAP.replace(wrong, ""), cases)


BALANCED = '''PAIRS = {")": "(", "]": "["}


def balanced(text):
    """Whether every bracket is closed by its own kind, in order."""
    waiting = []
    for one in text:
        if one in "([":
            waiting.append(one)
        elif one in PAIRS and (not waiting or waiting.pop() != PAIRS[one]):
            return False
    return not waiting
'''


@FAMILY.template("balanced", ASK, "hard", 12)
def _balanced(chance: random.Random) -> HybridInstance:
    def answer(text: str) -> bool:
        plain = "".join(one for one in text if one in "()[]")
        while (shorter := plain.replace("()", "").replace("[]", "")) != plain:
            plain = shorter
        return not plain

    wrong = chance.choice((("return not waiting", "return True"), ("waiting.pop() != PAIRS[one]", "not waiting.pop()")))
    texts = ["(a[b]c)", "(a", "([)]", "", "())(", "[[x]()]", *("".join(chance.choices("()[]", k=4)) for _ in range(6))]
    cases: Cases = [((text,), answer(text)) for text in texts]
    return _program(chance, "balanced", BALANCED, BALANCED.replace(*wrong), cases)


RUNS = '''def runs(text):
    """Each letter with how often it occurs in a row: of aab, [["a", 2], ["b", 1]]."""
    found = []
    for one in text:
        if found and found[-1][0] == one:
            found[-1][1] += 1
        else:
            found.append([one, 1])
    return found
'''


@FAMILY.template("runs", ASK, "hard", 12)
def _runs(chance: random.Random) -> HybridInstance:
    def answer(text: str) -> list[list[Any]]:
        found: list[list[Any]] = []
        for at, one in enumerate(text):
            if at and text[at - 1] == one:
                found[-1][1] += 1
            else:
                found.append([one, 1])
        return found

    wrong = chance.choice((("[one, 1]", "[one, 0]"), ("found and found[-1][0] == one", "found")))
    texts = ["aab", "abc", "", "zzzz", *("".join(chance.choices("ab", k=8)) for _ in range(3))]
    return _program(chance, "runs", RUNS, RUNS.replace(*wrong), [((text,), answer(text)) for text in texts])


CLAMP = '''def clamp(value, low, high):
    """The value, or the limit that it is beyond."""
    return max(low, min(high, value))
'''


@FAMILY.template("clamp", ASK, "medium", 10)
def _clamp(chance: random.Random) -> HybridInstance:
    wrong = chance.choice(("min(low, max(high, value))", "max(low, value)", "min(high, value)"))
    low, high = -chance.randint(1, 9), chance.randint(10, 20)
    values = [high + 5, low - 5, (low + high) // 2, low, high, *_numbers(chance, 4)]
    cases: Cases = [((value, low, high), min(max(value, low), high)) for value in values]
    return _program(chance, "clamp", CLAMP, CLAMP.replace("max(low, min(high, value))", wrong), cases)
