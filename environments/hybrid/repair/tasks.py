"""Make the instance of a repair task: a package with one fault, an example of it, and hidden tests."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from environments.hybrid.repair.faults import Case, Fault, Prepared, returned, showable
from environments.hybrid.repair.judge import Check
from environments.hybrid.repair.sources import Repository
from environments.hybrid.repair.suites import Suite
from environments.hybrid.tasks.task import HybridGoal, HybridInstance, Move
from schemas.action import Finished, ReadFile, Terminal, WriteFile

TEST = "test_fault.py"
"""The test that the policy sees."""
MAX_CASES = 80
"""Most hidden calls of a task."""
MAX_SHOWN = 3
"""Most calls of the visible test that the fault changes, and most others."""
DONE = Finished(content="")
MAX_WRITTEN = 4_000
"""Most characters of a file that the script writes as a whole; it changes larger files by a command, so that its
reply can be imitated."""


@dataclass(frozen=True, slots=True)
class RepairInstance(HybridInstance):
    """A repository with a fault."""

    check: Check | None = field(default=None)
    """The hidden tests."""


def of_fault(repository: Repository, prepared: Prepared, fault: Fault, chance: random.Random) -> RepairInstance:
    """Makes the task of a fault.

    Args:
        repository: the original package.
        prepared: its recorded calls.
        fault: the fault.
        chance: the random generator, which chooses the calls.
    """
    path, right = fault.mutation.path, prepared.answers

    def length(at: int) -> int:
        return len(prepared.cases[at].text) + len(right[at])

    given = {**repository.files, path: fault.mutation.applied(repository.files[path])}
    if fault.failing:
        return _of_tests(repository, prepared, fault, chance)
    examples = [at for at in sorted(fault.differing) if showable(right[at], fault.differing[at])]
    shown = sorted(examples, key=length)[: max(1, min(MAX_SHOWN, len(fault.differing) // 3))]
    others = [at for at in range(len(right)) if at not in fault.differing]
    near = [at for at in others if _module(prepared.cases[at]) == _module(prepared.cases[shown[0]])]
    passing = [at for at in near if returned(right[at]) is not None]
    visible = shown + sorted(chance.sample(passing, min(2 * MAX_SHOWN, len(passing))), key=length)[:MAX_SHOWN]
    hidden = _limited(sorted(fault.differing), near, others, chance)
    check = Check(
        replace(repository, files=given),
        tuple(prepared.cases[at] for at in hidden),
        tuple(right[at] for at in hidden),
        frozenset(number for number, at in enumerate(hidden) if at in fault.differing),
    )
    files = {**given, TEST: _test((prepared.cases[at], right[at]) for at in visible).encode()}
    example, wrong = prepared.cases[shown[0]].text, fault.differing[shown[0]]
    correct = returned(right[shown[0]])
    instruction = (
        f"It has one fault: {example} {_short(wrong)}, but it must return {correct}. Correct the source, so that "
        f'"python3 {TEST}" passes, and finish. Hidden tests call the package with more arguments.'
    )
    return RepairInstance(
        (instruction,), HybridGoal(), script(path, given[path], repository.files[path]), files, check=check
    )


def _of_tests(repository: Repository, prepared: Prepared, fault: Fault, chance: random.Random) -> RepairInstance:
    """Makes the task of a fault that the repository's own tests notice."""
    path = fault.mutation.path
    given = {**repository.files, path: fault.mutation.applied(repository.files[path])}
    numbers = sorted(chance.sample(range(len(prepared.cases)), min(MAX_CASES, len(prepared.cases))))
    passing = tuple(name for name in prepared.passing if name not in fault.failing)
    check = Check(
        replace(repository, files=given),
        tuple(prepared.cases[at] for at in numbers),
        tuple(prepared.answers[at] for at in numbers),
        suite=Suite(repository.tests, fault.failing, passing, prepared.twins),
    )
    instruction = (
        f"It has one fault: {len(fault.failing)} of its hidden tests fail, such as {fault.failing[0]} with "
        f"{fault.message or 'an error'}. Correct the source, so that all hidden tests pass, and finish."
    )
    moves = script(path, given[path], repository.files[path])
    return RepairInstance((instruction,), HybridGoal(), moves, given, check=check)


def script(path: str, old: bytes | None, new: bytes) -> tuple[Move, ...]:
    """Returns the moves that write a file: in the editor, or by a command if the file is large or not text.

    Args:
        path: the file.
        old: its contents; None if the file is new.
        new: the wanted contents.
    """
    if (len(new) <= MAX_WRITTEN or not old) and _is_text(new):
        opened = (ReadFile(path=path),) if old is not None and _is_text(old) else ()
        return *opened, WriteFile(path=path, content=new.decode()), DONE
    make = "place.parent.mkdir(parents=True, exist_ok=True)\nplace.touch()\n" if old is None else ""
    old = old or b""
    begin = _common(old, new)
    same = _common(old[begin:][::-1], new[begin:][::-1])
    end = len(old) - same
    text = new[begin : len(new) - same]
    command = (
        f"python3 - <<'END'\nfrom pathlib import Path\nplace = Path({path!r})\n{make}source = place.read_bytes()\n"
        f"place.write_bytes(source[:{begin}] + {text!r} + source[{end}:])\nEND"
    )
    return Terminal(command=command), DONE


def _is_text(content: bytes) -> bool:
    """Checks whether an editor can write these contents."""
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _common(one: bytes, other: bytes) -> int:
    """Returns the number of equal bytes at the begin of both."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (left, right) in pairs if left != right), min(len(one), len(other)))


def _limited(failing: list[int], near: list[int], others: list[int], chance: random.Random) -> list[int]:
    """Chooses the hidden calls: those that fail, then those of the same module, then others; in the recorded order."""
    chosen = dict.fromkeys(failing)
    for group in (near, others):
        left = MAX_CASES - len(chosen)
        chosen.update(dict.fromkeys(chance.sample(group, min(len(group), max(0, left)))))
    return sorted(chosen)


def _test(cases: Iterable[tuple[Case, str]]) -> str:
    """Writes the test that the policy sees; its calls return literals."""
    cases = list(cases)
    modules = sorted({_module(case) for case, _ in cases})
    checks = "".join(
        f"    def test_{number}(self):\n        self.assertEqual({case.text}, {returned(answer)})\n\n"
        for number, (case, answer) in enumerate(cases, 1)
    )
    imports = "".join(f"import {one}\n" for one in ("unittest", *modules))
    return f"{imports}\n\nclass Fault(unittest.TestCase):\n{checks}\nunittest.main()\n"


def _module(case: Case) -> str:
    return case.target.partition(":")[0]


def _short(answer: str) -> str:
    value = returned(answer)
    if value is not None:
        return f"returns {value}"
    return answer if answer.startswith("raises ") else "returns another value"
