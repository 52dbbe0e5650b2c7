"""Define tasks with text files: count, sort, search, replace, rewrite."""

import random
from collections import Counter

from environments.hybrid.tasks.task import (
    FAMILIES,
    PEOPLE,
    WORDS,
    Family,
    HybridGoal,
    HybridInstance,
    lines,
    text,
    words,
)
from schemas.action import Terminal, WriteFile

FAMILY = Family("text")
template = FAMILY.template
OUT = "result.txt"


def _twice(chance: random.Random, low: int, high: int) -> tuple[str, str]:
    """Draws a word, and a text with a line that contains it twice, so that a policy that counts lines misses one
    occurrence."""
    each = text(chance, low, high).splitlines()
    at = chance.randrange(len(each))
    word = chance.choice(each[at].split())
    each[at] += f" {chance.choice(WORDS)} {word}"
    return word, lines(each)


def _made(words_: tuple[object, ...], wanted: str, command: str, files: dict[str, str]) -> HybridInstance:
    """Makes a task whose command writes the wanted text into `OUT`."""
    return HybridInstance(words_, HybridGoal({OUT: wanted}), (Terminal(command=f"{command} > {OUT}"),), files)


@template("count-lines", 'Write the number of lines of "{}" into "result.txt".', "medium", 8)
def _count_lines(chance: random.Random) -> HybridInstance:
    name, content = f"{chance.choice(WORDS)}.txt", text(chance, 12, 40)
    return _made((name,), str(content.count("\n")), f"wc -l < {name}", {name: content})


@template("count-word", 'How often does the word "{}" stand in "{}"? Write the number into "result.txt".', "medium", 8)
def _count_word(chance: random.Random) -> HybridInstance:
    word, content = _twice(chance, 20, 40)
    command = f"grep -ow {word} story.txt | wc -l"
    return _made((word, "story.txt"), str(content.split().count(word)), command, {"story.txt": content})


@template("replace", 'In "{}", put "{}" in the place of every "{}".', "medium", 8)
def _replace(chance: random.Random) -> HybridInstance:
    new, name = f"X{chance.randint(100, 999)}", f"{chance.choice(WORDS)}.txt"
    old, content = _twice(chance, 8, 14)
    script = (Terminal(command=f"sed -i 's/\\b{old}\\b/{new}/g' {name}"),)
    wanted = lines(" ".join(new if word == old else word for word in line.split()) for line in content.splitlines())
    return HybridInstance((name, new, old), HybridGoal({name: wanted}), script, {name: content})


@template("sort", 'Write the lines of "{}" in alphabetical order into "result.txt".', "medium", 8)
def _sort(chance: random.Random) -> HybridInstance:
    each = words(chance, chance.randint(8, 20))
    return _made(("names.txt",), lines(sorted(each)), "sort names.txt", {"names.txt": lines(each)})


@template("unique", 'Write each different line of "{}" once, in alphabetical order, into "result.txt".', "medium", 8)
def _unique(chance: random.Random) -> HybridInstance:
    each = chance.choices(words(chance, 6), k=18)
    return _made(("list.txt",), lines(sorted(set(each))), "sort -u list.txt", {"list.txt": lines(each)})


@template("grep", 'Write all lines of "{}" that hold the word "{}" into "result.txt", in their order.', "medium", 8)
def _grep(chance: random.Random) -> HybridInstance:
    content = text(chance, 20, 30)
    word = chance.choice(content.split())
    wanted = lines(line for line in content.splitlines() if word in line.split())
    return _made(("story.txt", word), wanted, f"grep -w {word} story.txt", {"story.txt": content})


@template("join", 'Write "{}", "{}" and "{}", one after the other in this order, into "result.txt".', "medium", 8)
def _join(chance: random.Random) -> HybridInstance:
    names = [f"{name}.txt" for name in words(chance, 3)]
    files = {name: text(chance, 2, 4) for name in names}
    return _made(tuple(names), "".join(files.values()), f"cat {' '.join(names)}", files)


@template("head", 'Write the first {} lines of "{}" into "result.txt".', "medium", 8)
def _head(chance: random.Random) -> HybridInstance:
    content, count = text(chance, 12, 20), chance.randint(3, 8)
    wanted = lines(content.splitlines()[:count])
    return _made((count, "long.txt"), wanted, f"head -n {count} long.txt", {"long.txt": content})


@template("upper", 'Write all of "{}" in capital letters into "result.txt".', "medium", 8)
def _upper(chance: random.Random) -> HybridInstance:
    content = text(chance, 3, 6)
    return _made(("quiet.txt",), content.upper(), "tr a-z A-Z < quiet.txt", {"quiet.txt": content})


@template("last-first", 'Rewrite each "First Last" of "{}" as "Last, First", into "result.txt".', "hard", 8)
def _last_first(chance: random.Random) -> HybridInstance:
    people = [(chance.choice(PEOPLE), chance.choice(FAMILIES)) for _ in range(chance.randint(5, 9))]
    wanted, files = lines(f"{last}, {first}" for first, last in people), {"people.txt": lines(map(" ".join, people))}
    return _made(("people.txt",), wanted, "awk '{print $2 \", \" $1}' people.txt", files)


@template("most-frequent", 'Write the most frequent word of "{}" into "result.txt".', "hard", 8)
def _most_frequent(chance: random.Random) -> HybridInstance:
    word, *others = words(chance, 12)
    each = [word] * 9 + [other for other in others for _ in range(chance.randint(1, 6))]
    chance.shuffle(each)
    content = lines(" ".join(each[at : at + 7]) for at in range(0, len(each), 7))
    assert Counter(each).most_common(1)[0][0] == word
    command = "tr -s ' ' '\\n' < story.txt | sort | uniq -c | sort -rn | head -n 1 | awk '{print $2}'"
    return _made(("story.txt",), word, command, {"story.txt": content})


@template(
    "errors-by-hour",
    'For each hour that has an ERROR in "{}", write "HOUR COUNT" into "result.txt", by hour.',
    "hard",
    10,
)
def _errors(chance: random.Random) -> HybridInstance:
    entries = sorted(
        (chance.randint(8, 13), chance.randint(0, 59), chance.choice(("INFO", "WARN", "ERROR"))) for _ in range(40)
    )
    log = lines(f"{hour:02}:{minute:02} {level} {chance.choice(WORDS)}" for hour, minute, level in entries)
    counts = Counter(hour for hour, _, level in entries if level == "ERROR")
    wanted = lines(f"{hour:02} {count}" for hour, count in sorted(counts.items()))
    command = "grep ERROR app.log | cut -d: -f1 | sort | uniq -c | awk '{print $2, $1}'"
    return _made(("app.log",), wanted, command, {"app.log": log})


@template("number-lines", 'Put its number, a colon and a space before each line of "{}", in that file.', "hard", 8)
def _number(chance: random.Random) -> HybridInstance:
    content = text(chance, 5, 9)
    wanted = lines(f"{number}: {line}" for number, line in enumerate(content.splitlines(), 1))
    script = (WriteFile(path="steps.txt", content=wanted),)
    return HybridInstance(("steps.txt",), HybridGoal({"steps.txt": wanted}), script, {"steps.txt": content})
