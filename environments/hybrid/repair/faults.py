"""Make verified faults in a package: change it in one place, and keep changes that its tests notice.

The tests of a source with pytest tests are these. Other packages get regression tests: their behaviour is recorded as
calls with answers. In both cases recorded calls must keep their answers, and expected answers stay on the host.
"""

import ast
import hashlib
import json
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from common.process import home
from common.text import some_of
from environments.hybrid.bubblewrap import SandboxLimits
from environments.hybrid.repair.mutation import Mutation, mutations, shuffled
from environments.hybrid.repair.runner import LIBRARIES, NoResult, Settings, opened
from environments.hybrid.repair.sources import Repository
from environments.hybrid.repair.suites import NEEDED, files_of, results, twin
from schemas.failure import UsageError
from schemas.tables.trajectory import SeedSplit

VERSION = 2
"""Version of the search for faults; another version makes new ones."""
PREPARE_S = 240.0
PREPARE_LIMITS = SandboxLimits(memory_mib=1024, disk_mib=128, files=8000, processes=64, cpu_s=600, open_files=128)
MAX_CANDIDATES = 700
MAX_REPEATED = 40
"""Most calls that are repeated on a candidate."""
MIN_DIFFERING = 3
"""Fewest calls that a fault changes. One is shown to the policy, and the others are hidden."""
PER_FUNCTION = 4
MIN_FAULTS = 3
"""Fewest faults of a package: at least one for each split of seeds."""
MAX_SHOWN = 300
"""Most characters of an answer that is shown."""
MUTANTS_S = 150.0
"""Seconds in which pytest runs on mutants of one source."""


@dataclass(frozen=True, slots=True)
class Case:
    """A call of a function, a class or a method."""

    target: str
    """`module:function`, `module:class` or `module:class.method`."""
    build: str | None
    """Literal of the arguments with which the class of a method is made."""
    arguments: str
    """Literal of the arguments, a tuple."""

    @property
    def text(self) -> str:
        """Returns the call as Python code."""
        name, given = self.target.replace(":", "."), _given(self.arguments)
        if self.build is None:
            return f"{name}{given}"
        kind, _, method = name.rpartition(".")
        return f"{kind}{_given(self.build)}.{method}{given}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A change of a package that its tests notice."""

    mutation: Mutation
    differing: Mapping[int, str] = field(default_factory=dict[int, str])
    """The changed package's answer, by number of the case."""
    failing: tuple[str, ...] = ()
    """Ids of the pytest tests that fail."""
    message: str = ""
    """Message of the first of them."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The tests of a package, and its faults."""

    cases: tuple[Case, ...]
    answers: tuple[str, ...]
    faults: tuple[Fault, ...]
    passing: tuple[str, ...] = ()
    """Ids of the pytest tests, which all pass in the original package."""
    twins: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict[str, tuple[str, tuple[str, ...]]])
    """Tests that must fail, by path of the test file (`environments.hybrid.repair.suites`)."""

    def of_split(self, split: SeedSplit) -> Sequence[Fault]:
        """Returns the faults of a split; faults of one function are in the same split."""
        groups = defaultdict[str, list[Fault]](list)
        for one in self.faults:
            groups[f"{one.mutation.path}:{one.mutation.function}"].append(one)
        parts = list(groups.values()) if len(groups) >= MIN_FAULTS else [[one] for one in self.faults]
        share = {"train": (0, 1, 2), "validation": (3,), "test": (4,)}
        if len(parts) < 5:
            share = {"train": (0, 3), "validation": (1,), "test": (2,)}
        return [one for at, part in enumerate(parts) if at % 5 in share[split] for one in part]


@dataclass(frozen=True, slots=True)
class _Recording:
    found: list[dict[str, Any]]
    """Calls with the same answer each time, each with the lines that it reaches."""
    failed: Mapping[str, str]
    """Reasons by module that cannot be imported."""

    @property
    def cases(self) -> tuple[Case, ...]:
        return tuple(Case(one["target"], one["build"], one["arguments"]) for one in self.found)

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(str(one["answer"]) for one in self.found)


def returned(answer: str) -> str | None:
    """Returns the Python literal that a call returns; None if there is no short one."""
    value = answer.removeprefix("returns ").partition(" and leaves ")[0]
    if not answer.startswith("returns ") or len(value) > MAX_SHOWN:
        return None
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError):
        return None
    return value


def showable(right: str, wrong: str) -> bool:
    """Checks whether a call shows a fault: its right answer is a short literal, and the wrong one differs."""
    return returned(right) is not None and returned(right) != returned(wrong)


async def prepared(repository: Repository, count: int, settings: Settings, key: str) -> Prepared:
    """Makes the faults of a package, or reads those that were made before (in the work folder, `repair`).

    Args:
        repository: the package.
        count: number of wanted faults.
        settings: how its code runs.
        key: config key of the package.

    Raises:
        UsageError: the package cannot be imported, its tests fail before a change, or too few faults are noticed.
        SandboxFailure: no sandbox starts.
    """
    names = (str(VERSION), repository.digest, str(count), str(settings), _programs())
    path = stored_at(repository.name, *names)
    if path.is_file():
        return _read(json.loads(path.read_text()))
    try:
        recording = await _recorded(repository, settings)
        make = _of_tests if runs_tests(repository) else _of_calls
        made = await make(repository, recording, count, settings, key)
    except NoResult as error:
        raise UsageError(
            f"`{key}`: {repository.origin} cannot be run in a sandbox: {error}.",
            "Set `libraries` to a folder with pytest and its dependencies, or take it out.",
        ) from error
    if len(made.faults) < MIN_FAULTS:
        raise _refused(repository, key, recording.failed)
    store(path, asdict(made))
    return made


def stored_at(name: str, *parts: str) -> Path:
    """Returns the path of a stored preparation, whose name depends on all parts."""
    return home() / "repair" / f"{name}-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:16]}.json"


def store(path: Path, content: Mapping[str, Any]) -> None:
    """Writes a JSON file at once, so that another process reads all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


async def _recorded(repository: Repository, settings: Settings) -> _Recording:
    """Records calls, and keeps those with the same answer in another sandbox with other hashes and files."""
    base, mounts = request_of(repository), settings.mounts
    async with opened(repository.files, PREPARE_LIMITS, PREPARE_S, mounts, settings.python) as runner:
        explored = await runner.ask("calls", base | {"kind": "explore", "modules": repository.modules, "seed": 0})
    found = list[dict[str, Any]](explored["cases"])
    files = {**repository.files, "more.txt": b""}
    async with opened(files, PREPARE_LIMITS, PREPARE_S, mounts, settings.python) as runner:
        again = await runner.ask("calls", base | {"kind": "answers", "cases": found}, hash_seed=2)
    same = [one for one, answer in zip(found, again, strict=True) if one["answer"] == answer]
    return _Recording(same, explored["failed"])


async def _of_calls(
    repository: Repository, recording: _Recording, count: int, settings: Settings, key: str
) -> Prepared:
    """Makes faults that recorded calls notice."""
    candidates, answers = _candidates(repository, recording.found), recording.answers
    request = request_of(repository) | {
        "kind": "mutants", "cases": recording.found, "wanted": 2 * count, "differing": MIN_DIFFERING,
        "per_function": max(PER_FUNCTION, count // 10),
        "mutants": [asdict(one) | {"cases": noticed} for one, noticed in candidates],
    }  # fmt: skip
    async with opened(repository.files, PREPARE_LIMITS, PREPARE_S, settings.mounts, settings.python) as runner:
        kept = (await runner.ask("calls", request))["found"]
    faults = list[Fault]()
    for at, differing in kept:
        wrong = {int(index): str(text) for index, text in differing.items()}
        if any(showable(answers[index], text) for index, text in wrong.items()):
            faults.append(Fault(candidates[at][0], wrong))
    return Prepared(recording.cases, answers, tuple(faults[:count]))


async def _of_tests(
    repository: Repository, recording: _Recording, count: int, settings: Settings, key: str
) -> Prepared:
    """Makes faults that the repository's own tests notice; raises UsageError if a test fails before a change."""
    files, run = {**repository.files, **repository.tests}, [one for one in repository.tests if _has_tests(one)]
    base = {"roots": import_roots(repository), "files": run}
    rest = (PREPARE_LIMITS, PREPARE_S, settings)
    begun = time.monotonic()
    await results(files, base | {"kind": "run"}, *rest)
    took = time.monotonic() - begun
    if 2 * took > settings.tests_s:
        raise UsageError(
            f"`{key}`: the tests of {repository.origin} take {took:.0f} s, and tests_s is {settings.tests_s:g}: twice "
            "their time must fit, because tests that must fail run with them.",
            "Set tests_s and step_timeout_s higher.",
        )
    found = await results(files, base | {"kind": "traced"}, *rest)
    if failed := [name for name, outcome in found["reports"].items() if outcome == "failed"]:
        raise UsageError(
            f"`{key}`: tests of {repository.origin} fail before any change: {some_of(failed)} "
            f"({found['messages'].get(failed[0], '')}).",
            "Repair or remove these tests, or set `libraries` to the folder of the dependencies.",
        )
    passing = tuple(name for name, outcome in found["reports"].items() if outcome == "passed")
    reached = set(found["lines"])
    every = [one for one in _all_mutations(repository) if f"{one.path}:{one.line}" in reached]
    chosen = shuffled(every, random.Random(repository.name))[:MAX_CANDIDATES]
    request = base | {
        "kind": "mutants", "mutants": [asdict(one) for one in chosen], "wanted": count,
        "per_function": max(PER_FUNCTION, count // 10), "mutant_s": 2 * took + 2, "limit_s": MUTANTS_S,
    }  # fmt: skip
    kept = (await results(files, request, *rest))["found"] if passing else []
    faults = list[Fault]()
    for at, ran in kept:
        failing = tuple(name for name in passing if ran["reports"].get(name) == "failed")
        if failing and set(passing) <= ran["reports"].keys():
            faults.append(Fault(chosen[at], {}, failing, ran["messages"].get(failing[0], "")))
    twins = await verified_twins(repository.tests, passing, files, base, settings)
    return Prepared(recording.cases, recording.answers, tuple(faults), passing, twins)


async def verified_twins(
    tests: Mapping[str, bytes], names: Sequence[str], files: Mapping[str, bytes], base: Mapping[str, Any],
    settings: Settings, separate: Sequence[str] = (), certain: bool = False,
) -> dict[str, tuple[str, tuple[str, ...]]]:  # fmt: skip
    """Makes twins of tests, and keeps those that fail in a repository.

    Args:
        tests: the test files by path.
        names: ids of the tests.
        files: the repository with its tests.
        base: `roots` of a request.
        settings: how the code runs.
        separate: ids of the tests that get a copy for each changed answer.
        certain: whether the repository is not the right one, so that only assertions that always run are changed.
    """
    made = dict[str, tuple[str, tuple[str, ...]]]()
    for path in files_of(names):
        its, alone = (
            [name.partition("::")[2] for name in some if name.startswith(f"{path}::")] for some in (names, separate)
        )
        source, changed = twin(tests[path], its, alone, certain)
        if changed:
            made[path] = source, changed
    if not made:
        return {}
    run = {**files, **{path: source.encode() for path, (source, _) in made.items()}}
    request = {**base, "kind": "run", "files": list(made)}
    ran = await results(run, request, PREPARE_LIMITS, PREPARE_S, settings)
    kept = dict[str, tuple[str, tuple[str, ...]]]()
    for path, (source, changed) in made.items():
        failed = tuple(name for name in changed if _fails(ran["reports"], f"{path}::{name}"))
        if failed:
            kept[path] = source, failed
    return kept


def _fails(reports: Mapping[str, str], name: str) -> bool:
    found = [outcome for one, outcome in reports.items() if one.partition("[")[0] == name]
    return bool(found) and all(outcome == "failed" for outcome in found)


def runs_tests(repository: Repository) -> bool:
    """Checks whether a repository has pytest tests that can run; the packages of pytest itself have none."""
    return any(map(_has_tests, repository.tests)) and not repository.tops & {*NEEDED, "_pytest"}


def _has_tests(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.endswith("_test.py") or (name.startswith("test_") and name.endswith(".py"))


def import_roots(repository: Repository) -> list[str]:
    """Returns the import folders of a repository in a sandbox."""
    return [f"/work/{root}".rstrip("/") for root in repository.roots]


def request_of(repository: Repository) -> dict[str, Any]:
    """Returns the part of a request that names the import folders."""
    return {"roots": import_roots(repository), "libraries": [LIBRARIES]}


def _all_mutations(repository: Repository) -> list[Mutation]:
    sources = ((path, content) for path, content in sorted(repository.files.items()) if path.endswith(".py"))
    return [one for path, content in sources for one in mutations(path, content)]


def _candidates(repository: Repository, found: Sequence[Mapping[str, Any]]) -> list[tuple[Mutation, list[int]]]:
    """Returns mutations of reached lines, each with the calls that reach its line."""
    reaching = defaultdict[str, list[int]](list)
    for index, case in enumerate(found):
        for line in case["lines"]:
            reaching[line].append(index)
    every = [one for one in _all_mutations(repository) if len(reaching[f"{one.path}:{one.line}"]) >= MIN_DIFFERING]
    chance = random.Random(repository.name)
    pairs = list[tuple[Mutation, list[int]]]()
    for one in shuffled(every, chance)[:MAX_CANDIDATES]:
        indices = reaching[f"{one.path}:{one.line}"]
        pairs.append((one, sorted(chance.sample(indices, min(MAX_REPEATED, len(indices))))))
    return pairs


def _refused(repository: Repository, key: str, failed: Mapping[str, str]) -> UsageError:
    first = next(iter(failed.items()), None)
    why = f" The module {first[0]} cannot be imported: {first[1]}." if first else ""
    return UsageError(
        f"`{key}`: {repository.origin} has too few functions to change: a function needs calls with plain arguments, "
        f"and the same answer each time, or tests.{why}",
        "Name a source with tests, set `libraries` to the folder of its dependencies, or take it out.",
    )


def _read(stored: Mapping[str, Any]) -> Prepared:
    faults = (
        Fault(
            Mutation(**one["mutation"]),
            {int(index): text for index, text in one["differing"].items()},
            tuple(one["failing"]),
            one["message"],
        )
        for one in stored["faults"]
    )
    return Prepared(
        tuple(Case(**one) for one in stored["cases"]),
        tuple(stored["answers"]),
        tuple(faults),
        tuple(stored["passing"]),
        {path: (source, tuple(names)) for path, (source, names) in stored["twins"].items()},
    )


def _given(arguments: str) -> str:
    """Writes a tuple's literal as the arguments of a call."""
    return f"{arguments[:-2]})" if arguments.endswith(",)") else arguments


def _programs() -> str:
    """Returns a hash of the programs that run in sandboxes, and the interpreter's version."""
    inside = Path(__file__).parent / "inside"
    total = hashlib.sha256(b"".join((inside / name).read_bytes() for name in ("calls.py", "tests.py")))
    return total.hexdigest() + os.path.realpath("/usr/bin/python3")
