"""Make verified faults in a package: record its behaviour, change it in one place, and keep changes that calls notice.

For each fault, the recorded calls are its hidden tests: those with another answer in the changed package must get the
original answer again, and all others must keep theirs. Expected answers stay on the host.
"""

import ast
import hashlib
import json
import os
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from common.process import home
from environments.hybrid.bubblewrap import Mounts, SandboxLimits
from environments.hybrid.repair.mutation import Mutation, mutations, shuffled
from environments.hybrid.repair.runner import NoAnswer, opened
from environments.hybrid.repair.sources import Repository
from schemas.failure import UsageError
from schemas.tables.trajectory import SeedSplit

VERSION = 1
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
    """A change of a package that recorded calls notice."""

    mutation: Mutation
    differing: Mapping[int, str]
    """The changed package's answer, by number of the case."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The recorded calls of a package, and its faults."""

    cases: tuple[Case, ...]
    answers: tuple[str, ...]
    faults: tuple[Fault, ...]

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


async def prepared(repository: Repository, count: int, mounts: Mounts, key: str) -> Prepared:
    """Makes the faults of a package, or reads those that were made before (in the work folder, `repair`).

    Args:
        repository: the package.
        count: number of faults that are wanted.
        mounts: folders of the sandbox.
        key: config key of the package.

    Raises:
        UsageError: the package cannot be imported, or has too few functions whose faults are noticed.
        SandboxFailure: no sandbox starts.
    """
    names = (str(VERSION), repository.digest, str(count), _inside(), *map(str, mounts.readable))
    path = home() / "repair" / f"{repository.name}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:16]}.json"
    if path.is_file():
        return _read(json.loads(path.read_text()))
    made = await _made(repository, count, mounts, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(asdict(made)))
    temporary.replace(path)
    return made


async def _made(repository: Repository, count: int, mounts: Mounts, key: str) -> Prepared:
    base = request_of(repository, mounts)
    try:
        async with opened(repository.files, PREPARE_LIMITS, PREPARE_S, mounts) as runner:
            explored = await runner.ask("calls", base | {"kind": "explore", "modules": repository.modules, "seed": 0})
        found = list[dict[str, Any]](explored["cases"])
        if not found:
            raise _refused(repository, key, explored["failed"])
        async with opened({**repository.files, "more.txt": b""}, PREPARE_LIMITS, PREPARE_S, mounts) as runner:
            again = await runner.ask("calls", base | {"kind": "answers", "cases": found}, hash_seed=2)
            found = [one for one, answer in zip(found, again, strict=True) if one["answer"] == answer]
            candidates = _candidates(repository, found)
            ask = {
                "kind": "mutants", "cases": found, "wanted": 2 * count, "differing": MIN_DIFFERING,
                "per_function": max(PER_FUNCTION, count // 10),
                "mutants": [asdict(one) | {"cases": noticed} for one, noticed in candidates],
            }  # fmt: skip
            kept = (await runner.ask("calls", base | ask))["found"]
    except NoAnswer as error:
        raise UsageError(
            f"`{key}`: {repository.origin} cannot be called in a sandbox: {error}.", "Take it out of the list."
        ) from error
    cases = tuple(Case(one["target"], one["build"], one["arguments"]) for one in found)
    answers = tuple(str(one["answer"]) for one in found)
    faults = list[Fault]()
    for at, differing in kept:
        wrong = {int(index): str(text) for index, text in differing.items()}
        if any(showable(answers[index], text) for index, text in wrong.items()):
            faults.append(Fault(candidates[at][0], wrong))
    faults = faults[:count]
    if len(faults) < MIN_FAULTS:
        raise _refused(repository, key, explored["failed"])
    return Prepared(cases, answers, tuple(faults))


def request_of(repository: Repository, mounts: Mounts) -> dict[str, Any]:
    """Returns the part of a request that names the import folders."""
    roots = [f"/work/{root}".rstrip("/") for root in repository.roots]
    return {"roots": roots, "libraries": [inside for _, inside in mounts.readable if inside.startswith("/opt/")]}


def _candidates(repository: Repository, found: Sequence[Mapping[str, Any]]) -> list[tuple[Mutation, list[int]]]:
    """Returns mutations of reached lines, each with the calls that reach its line."""
    reaching = defaultdict[str, list[int]](list)
    for index, case in enumerate(found):
        for line in case["lines"]:
            reaching[line].append(index)
    every = [
        one
        for path, content in sorted(repository.files.items())
        if path.endswith(".py")
        for one in mutations(path, content)
        if len(reaching[f"{one.path}:{one.line}"]) >= MIN_DIFFERING
    ]
    chance = random.Random(repository.name)
    chosen = shuffled(every, chance)[:MAX_CANDIDATES]
    pairs = list[tuple[Mutation, list[int]]]()
    for one in chosen:
        indices = reaching[f"{one.path}:{one.line}"]
        pairs.append((one, sorted(chance.sample(indices, min(MAX_REPEATED, len(indices))))))
    return pairs


def _refused(repository: Repository, key: str, failed: Mapping[str, str]) -> UsageError:
    first = next(iter(failed.items()), None)
    why = f" The module {first[0]} cannot be imported: {first[1]}." if first else ""
    return UsageError(
        f"`{key}`: {repository.origin} has too few functions to change: a function needs calls with plain arguments, "
        f"and the same answer each time.{why}",
        "Add tests to its folder, set `libraries` to the folder of its dependencies, or take it out.",
    )


def _read(stored: Mapping[str, Any]) -> Prepared:
    return Prepared(
        tuple(Case(**one) for one in stored["cases"]),
        tuple(stored["answers"]),
        tuple(
            Fault(Mutation(**one["mutation"]), {int(index): text for index, text in one["differing"].items()})
            for one in stored["faults"]
        ),
    )


def _given(arguments: str) -> str:
    """Writes a tuple's literal as the arguments of a call."""
    return f"{arguments[:-2]})" if arguments.endswith(",)") else arguments


def _inside() -> str:
    """Returns a hash of the program that makes the calls, and the interpreter's version."""
    program = (Path(__file__).parent / "inside" / "calls.py").read_bytes()
    return hashlib.sha256(program).hexdigest() + str(os.path.realpath("/usr/bin/python3"))
