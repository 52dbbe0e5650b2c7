"""Judge a repaired repository: hidden tests run on its source files in a fresh sandbox.

Only source files are taken from the policy's sandbox. Tests, and files that configure pytest or Python, are the
original ones. The host reads the source files once, before the tests start, so a process that the policy left behind
cannot change them. Recorded calls need no trust in the code: the sandbox has the calls, and the host has the answers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from environments.hybrid.bubblewrap import SandboxLimits
from environments.hybrid.files import Files
from environments.hybrid.repair.faults import Case, import_roots, request_of
from environments.hybrid.repair.runner import NoResult, Settings, opened
from environments.hybrid.repair.sources import MAX_FILE, MAX_FILES, Repository, is_test, protected
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


def repaired(files: Files, given: Mapping[str, bytes]) -> dict[str, bytes]:
    """Reads the policy's source files, and returns the repository to judge.

    A source file that is missing, a link or too large is left out. A new file is taken if it is a module in a folder of
    an original package.

    Args:
        files: the policy's folder `/work`.
        given: the original files by path.
    """
    kept = dict(given)
    packages = {path.rpartition("/")[0] for path in given if path.endswith("/__init__.py") and not is_test(path)}
    new = (path for path in files.paths(2 * MAX_FILES) or () if path.endswith(".py") and path not in given)
    taken = [path for path in new if path.rpartition("/")[0] in packages]
    for path in [*given, *taken]:
        if protected(path):
            continue
        seen = files.seen(path, MAX_FILE)
        if seen is not None and seen.content is not None:
            kept[path] = seen.content
        else:
            kept.pop(path, None)
    return kept


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
