"""Judge a repaired repository: hidden tests run on its source files in a fresh sandbox.

Only source files are taken from the policy's sandbox. Tests, and files that configure pytest or Python, are the
original ones. The host reads the source files once, before the tests start, so a process that the policy left behind
cannot change them. Recorded calls need no trust in the code: the sandbox has the calls, and the host has the answers.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from environments.hybrid.bubblewrap import Mounts, SandboxLimits
from environments.hybrid.files import Files
from environments.hybrid.repair.faults import Case, request_of
from environments.hybrid.repair.runner import NoAnswer, opened
from environments.hybrid.repair.sources import MAX_FILE, MAX_FILES, Repository, is_test

_SETTINGS = re.compile(
    r"(pytest\.ini|\.pytest\.ini|tox\.ini|setup\.cfg|setup\.py|pyproject\.toml|sitecustomize\.py|usercustomize\.py|.*\.pth)"
)
"""Files that configure pytest or Python."""


@dataclass(frozen=True, slots=True)
class Check:
    """The hidden tests of a task."""

    repository: Repository
    """The repository as the policy gets it, with the hidden test files in `tests`."""
    cases: tuple[Case, ...] = ()
    answers: tuple[str, ...] = ()
    """The right answer of each case."""
    failing: frozenset[int] = frozenset()
    """Numbers of the cases that the fault changes."""


def protected(path: str) -> bool:
    """Checks whether a file is never taken from a policy: a test, or a file that configures pytest or Python."""
    return is_test(path) or bool(_SETTINGS.fullmatch(PurePosixPath(path).name))


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


async def fault_of(
    check: Check, files: Mapping[str, bytes], limits: SandboxLimits, tests_s: float, mounts: Mounts
) -> str:
    """Runs the hidden tests on a repository, and returns what fails; empty if nothing does.

    Args:
        check: the tests.
        files: the repository to judge, by path.
        limits: limits of the sandbox.
        tests_s: time limit of the tests in seconds.
        mounts: further folders of the sandbox.

    Raises:
        SandboxFailure: no sandbox starts, or it is killed from outside.
    """
    try:
        async with opened(files, limits, tests_s, mounts) as runner:
            cases = [{"target": one.target, "build": one.build, "arguments": one.arguments} for one in check.cases]
            request = request_of(check.repository, mounts) | {"kind": "answers", "cases": cases}
            return _compared(check, await runner.ask("calls", request))
    except NoAnswer as error:
        return f"the tests did not finish: {error}"


def _compared(check: Check, given: Sequence[object]) -> str:
    wrong = {at for at, answer in enumerate(check.answers) if at >= len(given) or given[at] != answer}
    left, broken = len(wrong & check.failing), len(wrong - check.failing)
    parts = (
        f"{left} of {len(check.failing)} failing calls still fail" if left else "",
        f"{broken} of {len(check.answers) - len(check.failing)} other calls have another answer" if broken else "",
    )
    return "; ".join(part for part in parts if part)
