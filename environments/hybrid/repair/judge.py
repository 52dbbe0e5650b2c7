"""Judge a repaired repository: hidden tests run on its source files in a fresh sandbox.

Only source files are taken from the policy's sandbox. Tests, and files that configure pytest or Python, are the
original ones. The host reads the source files once, before the tests start, so a process that the policy left behind
cannot change them. Recorded calls need no trust in the code: the sandbox has the calls, and the host has the answers.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from environments.hybrid.bubblewrap import SandboxLimits
from environments.hybrid.repair.faults import Case, import_roots, request_of
from environments.hybrid.repair.runner import NoResult, Settings, opened
from environments.hybrid.repair.sources import Repository, is_test, protected
from environments.hybrid.repair.suites import Suite, failures


@dataclass(frozen=True, slots=True)
class Check:
    """The hidden tests of a task."""

    repository: Repository
    """The repository as the policy gets it."""
    cases: tuple[Case, ...] = ()
    """Recorded calls."""
    answers: tuple[str, ...] = ()
    """The right answer of each case."""
    failing: frozenset[int] = frozenset()
    """Numbers of the cases that the fault is known to change."""
    suite: Suite = field(default_factory=Suite)
    """The repository's own tests."""
    added: frozenset[str] = frozenset()
    """Paths of the files that the right patch creates."""


def repaired(check: Check, paths: Iterable[str], read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Takes the source files of a repair, and returns the repository to judge.

    A source file without contents is left out. A new file is taken if it is a module below an original package, or if
    the right patch creates a file at its path.

    Args:
        check: the tests, with the original files.
        paths: the paths of all files of the repair.
        read: returns the contents of a file; None if it is missing, a link or too large.
    """
    given = check.repository.files
    kept = dict(given)
    packages = {path.rpartition("/")[0] for path in given if path.endswith("/__init__.py") and not is_test(path)}
    modules = {path for path in paths if path.endswith(".py") and _folders(path) & packages}
    for path in sorted(given.keys() | modules | check.added):
        if protected(path) or path in check.suite.paths:
            continue
        content = read(path)
        if content is not None:
            kept[path] = content
        else:
            kept.pop(path, None)
    return kept


def _folders(path: str) -> set[str]:
    """Returns the folders above a file."""
    return {str(above) for above in PurePosixPath(path).parents}


async def remaining_faults(check: Check, files: Mapping[str, bytes], limits: SandboxLimits, settings: Settings) -> str:
    """Runs the hidden tests on a repository, and returns what fails; empty if nothing does.

    Args:
        check: the tests.
        files: the repository to judge, by path.
        limits: limits of each sandbox.
        settings: how the code runs.

    Raises:
        SandboxFailure: no sandbox starts, or it is killed from outside.
    """
    reasons = list[str]()
    try:
        if check.suite.files:
            roots = import_roots(check.repository)
            reasons.append(await failures(check.suite, files, roots, limits, settings))
        if check.cases:
            cases = [{"target": one.target, "build": one.build, "arguments": one.arguments} for one in check.cases]
            async with opened(files, limits, settings.tests_s, settings.mounts, settings.python) as runner:
                request = request_of(check.repository) | {"kind": "answers", "cases": cases}
                reasons.append(_compared(check, await runner.ask("calls", request)))
    except NoResult as error:
        reasons.append(f"the tests did not finish: {error}")
    return "; ".join(reason for reason in reasons if reason)


def _compared(check: Check, given: Sequence[object]) -> str:
    """Compares answers with the right ones."""
    wrong = {at for at, answer in enumerate(check.answers) if at >= len(given) or given[at] != answer}
    left, broken = len(wrong & check.failing), len(wrong - check.failing)
    parts = (
        f"{left} of {len(check.failing)} failing calls still fail" if left else "",
        f"{broken} of {len(check.answers) - len(check.failing)} other calls have another answer" if broken else "",
    )
    return "; ".join(part for part in parts if part)
