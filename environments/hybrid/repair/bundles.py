"""Read SWE-style bundles: an issue in a repository at a commit, with a test patch and the tests that it is about.

The fields are those of SWE-bench (arXiv 2310.06770) and SWE-Gym (arXiv 2412.21139). Lists of tests may be JSON texts,
as there. The repositories are local: folders, git repositories or git bundles. Nothing is downloaded.
"""

import io
import json
import os
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

from common.process import own_folder
from common.text import some_of
from environments.hybrid.bubblewrap import SandboxLimits
from environments.hybrid.repair.faults import VERSION, import_roots, store, stored_at, verified_twins
from environments.hybrid.repair.judge import Check, remaining_faults, repaired
from environments.hybrid.repair.runner import NoResult, Settings
from environments.hybrid.repair.sources import MAX_FILE, Repository, at, of_files, protected
from environments.hybrid.repair.suites import Suite, files_of, results, successful
from environments.hybrid.repair.tasks import DONE, RepairInstance, script
from environments.hybrid.tasks.task import HybridGoal, Move
from schemas.action import Terminal
from schemas.failure import UsageError

_NEEDED = ("instance_id", "base_commit", "test_patch", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS")
GIT_S = 120.0
"""Time limit of a command of git."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """One instance of a file of bundles."""

    instance_id: str
    repo: str
    """Name of the repository, `owner/name`."""
    base_commit: str
    test_patch: str
    problem_statement: str
    failing: tuple[str, ...]
    """FAIL_TO_PASS: ids of tests that the repair makes pass."""
    passing: tuple[str, ...]
    """PASS_TO_PASS: ids of tests that pass before and after it."""
    patch: str = ""
    """The right patch; empty if unknown."""
    repository: str = ""
    """Path of the repository below the folder of repositories; if empty, its name is that of `repo`."""
    where: str = ""
    """File and line, for messages."""


def read_bundles(path: Path, key: str) -> dict[str, Bundle]:
    """Reads a JSON Lines file, or a JSON file with a list, of instances.

    Args:
        path: the file.
        key: config key of the path.

    Returns:
        The instances by their ids.

    Raises:
        UsageError: the file cannot be read, or a line has a missing or wrong field; the message names both.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"`{key}`: {path} cannot be read: {error}.", "Name a JSON Lines file.") from error
    found = dict[str, Bundle]()
    for where, given in _objects(text, f"{path.name}", key):
        one = _bundle(given, where, key)
        if one.instance_id in found:
            raise UsageError(f"`{key}`: {where}: instance_id {one.instance_id} is there twice.", "Remove a line.")
        found[one.instance_id] = one
    return found


def _objects(text: str, name: str, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    lines = [(f"{name}, line {number}", line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    try:
        if text.lstrip().startswith("["):
            every = [(f"{name}, entry {number}", one) for number, one in enumerate(json.loads(text), 1)]
        else:
            every = [(where, json.loads(line)) for where, line in lines]
    except ValueError as error:
        raise UsageError(f"`{key}`: {name} is not JSON: {error}.", "Write one JSON object a line.") from error
    for where, one in every:
        if not isinstance(one, dict):
            raise UsageError(f"`{key}`: {where} is no JSON object.", "Write one JSON object a line.")
        yield where, cast(Mapping[str, Any], one)


def _bundle(given: Mapping[str, Any], where: str, key: str) -> Bundle:
    for name in (*_NEEDED, *(() if "repository" in given else ("repo",))):
        if name not in given:
            raise UsageError(f"`{key}`: {where} has no field `{name}`.", f"Add `{name}`, as in SWE-bench.")
    for name in ("instance_id", "repo", "base_commit", "test_patch", "problem_statement", "patch", "repository"):
        if not isinstance(given.get(name, "") or "", str):
            raise UsageError(f"`{key}`: {where}: `{name}` is no text.", "Write a JSON text.")
    failing, passing = (_tests(given[name], name, where, key) for name in ("FAIL_TO_PASS", "PASS_TO_PASS"))
    if not failing:
        raise UsageError(f"`{key}`: {where}: `FAIL_TO_PASS` has no test.", "Name a test that the repair makes pass.")
    if given["base_commit"].startswith("-"):  # git would read it as an option
        raise UsageError(f"`{key}`: {where}: `base_commit` is no commit.", "Write the commit's hash.")
    for name in ("repo", "repository"):
        place = PurePosixPath(given.get(name, ""))
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(f"`{key}`: {where}: `{name}` is outside of `repositories`.", "Write a path below it.")
    if not given["instance_id"] or "/" in given["instance_id"]:
        raise UsageError(f"`{key}`: {where}: `instance_id` is empty or has a slash.", "Write a name without slashes.")
    return Bundle(
        given["instance_id"], given.get("repo", ""), given["base_commit"], given["test_patch"],
        given["problem_statement"], failing, passing, given.get("patch") or "", given.get("repository", ""), where,
    )  # fmt: skip


def _tests(given: Any, name: str, where: str, key: str) -> tuple[str, ...]:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = None
    if not isinstance(given, list) or not all(isinstance(one, str) for one in cast(list[Any], given)):
        raise UsageError(f"`{key}`: {where}: `{name}` is no list of tests.", "Write a list of ids, or its JSON text.")
    ids = tuple(cast(list[str], given))
    if strange := next((one for one in ids if "::" not in one), None):
        hint = "Only pytest ids are supported, such as tests/test_a.py::test_b."
        raise UsageError(f"`{key}`: {where}: `{name}` has {strange!r}, which is no id of pytest.", hint)
    return ids


def place_of(bundle: Bundle, repositories: str, key: str) -> Path:
    """Returns the path of an instance's repository; raises UsageError if there is none."""
    folder = Path(repositories or ".").expanduser().absolute()
    owner, _, name = bundle.repo.partition("/")
    names = [bundle.repository] if bundle.repository else [f"{owner}__{name}", name, bundle.repo]
    choices = [folder / f"{one}{suffix}" for one in names if one for suffix in ("", ".bundle")]
    if found := next((one for one in choices if one.exists()), None):
        return found
    raise UsageError(
        f"`{key}`: {bundle.where}: {bundle.instance_id} needs the repository {bundle.repository or bundle.repo}, which "
        f"is not in {folder}.",
        f"Clone it to {choices[0]}, or set `repositories` to its folder.",
    )


def files_at(place: Path, commit: str, what: str, key: str) -> dict[str, bytes]:
    """Reads the files of a repository at a commit. A folder without git is read as it is.

    Args:
        place: a git repository, a git bundle (`.bundle`), or a folder.
        commit: the commit.
        what: name of the instance, for messages.
        key: config key, for messages.

    Raises:
        UsageError: the commit is not in the repository, or git is not installed.
    """
    if place.is_dir() and not (place / ".git").exists() and not (place / "HEAD").exists():
        repository = at(place, key)
        return {**repository.files, **repository.tests}
    if shutil.which("git") is None:
        raise UsageError(f"`{key}`: {place} is a git repository, and git is not installed.", "Run `apt install git`.")
    if place.is_file():
        clone = Path(own_folder("flywheel-repair-")) / "clone"
        try:
            _git(("clone", "-q", "--bare", str(place), str(clone)), key, what=f"{what}: {place.name} cannot be cloned")
            return _archived(clone, commit, what, key)
        finally:
            shutil.rmtree(clone.parent, ignore_errors=True)
    return _archived(place, commit, what, key)


def _archived(place: Path, commit: str, what: str, key: str) -> dict[str, bytes]:
    files = dict[str, bytes]()
    asked = ("-C", str(place), "archive", "--format=tar", commit, "--")
    with tarfile.open(fileobj=io.BytesIO(_git(asked, key, what=f"{what}: base_commit"))) as tar:
        for one in tar:
            if one.isfile() and one.size <= MAX_FILE and (content := tar.extractfile(one)):
                files[one.name] = content.read()
    return files


def patched(files: Mapping[str, bytes], patch: str, what: str, key: str) -> dict[str, bytes]:
    """Applies a patch to files, and returns all files; raises UsageError if it does not apply."""
    if not patch.strip():
        return dict(files)
    folder = Path(own_folder("flywheel-repair-"))
    try:
        for path, content in files.items():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        _git(("-C", str(folder), "apply", "--whitespace=nowarn", "-"), key, patch, f"{what} does not apply")
        return {
            place.relative_to(folder).as_posix(): place.read_bytes()
            for place in sorted(folder.rglob("*"))
            if place.is_file() and not place.is_symlink()
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _git(arguments: tuple[str, ...], key: str, given: str = "", what: str = "") -> bytes:
    """Runs git without the user's settings and hooks; raises UsageError with its message."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CEILING_DIRECTORIES": "/tmp"}
    asked = ("git", "-c", "safe.directory=*", "-c", f"core.hooksPath={os.devnull}", *arguments)
    try:
        ran = subprocess.run(asked, input=given.encode(), capture_output=True, check=False, timeout=GIT_S, env=environ)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"`{key}`: {what}: {error}.", "Run git by hand to see more.") from error
    if ran.returncode:
        message = ran.stderr.decode(errors="replace").strip().splitlines() or [f"exit status {ran.returncode}"]
        raise UsageError(f"`{key}`: {what}: {message[-1]}.", "Fetch the commit, or correct the patch.")
    return ran.stdout


@dataclass(frozen=True, slots=True)
class Issue:
    """A bundle with its repository."""

    bundle: Bundle
    repository: Repository
    """Files at the base commit; its `tests` are the files that the test patch changes."""
    golden: Mapping[str, bytes]
    """Files of the right patch, without tests; empty if it is unknown."""
    dropped: tuple[str, ...] = ()
    """Paths that the right patch changes, and that are never taken from a policy."""

    def check(self, twins: Mapping[str, tuple[str, tuple[str, ...]]]) -> Check:
        """Returns the hidden tests with these twins."""
        suite = Suite(self.repository.tests, self.bundle.failing, self.bundle.passing, twins)
        return Check(self.repository, suite=suite, added=frozenset(self.golden.keys() - self.repository.files.keys()))


def issue_of(bundle: Bundle, repositories: str, key: str) -> Issue:
    """Reads the repository of a bundle, and applies its patches.

    Raises:
        UsageError: the repository or the commit is missing, or a patch does not apply.
    """
    name = f"{bundle.where}: {bundle.instance_id}"
    base = files_at(place_of(bundle, repositories, key), bundle.base_commit, name, key)
    tested = patched(base, bundle.test_patch, f"{name}: test_patch", key)
    changed = {path: content for path, content in tested.items() if base.get(path) != content}
    found = of_files(base, bundle.instance_id, name, key)
    whole = replace(found, files=base, tests=changed)
    golden, dropped = dict[str, bytes](), tuple[str, ...]()
    if bundle.patch:
        right = patched(base, bundle.patch, f"{name}: patch", key)
        tests = {*changed, *files_of((*bundle.failing, *bundle.passing))}
        kept = {path for path in {*base, *right} if protected(path) or path in tests}
        golden = {path: content for path, content in right.items() if path not in kept}
        differing = (path for path in sorted({*base, *right}) if base.get(path) != right.get(path))
        dropped = tuple(path for path in differing if path in kept or len(right.get(path, b"")) > MAX_FILE)
    return Issue(bundle, whole, golden, dropped)


async def verified(issue: Issue, limits: SandboxLimits, settings: Settings, key: str) -> RepairInstance:
    """Checks the tests of a bundle before and after its right patch, and returns its task.

    Raises:
        UsageError: a test of PASS_TO_PASS fails at the base commit, a test of FAIL_TO_PASS passes there, or a test
            fails with the right patch.
        SandboxFailure: no sandbox starts.
    """
    bundle, repository = issue.bundle, issue.repository
    suite = issue.check({}).suite
    path = stored_at(
        bundle.instance_id,
        str(VERSION),
        repository.digest,
        str(sorted(issue.golden.items())),
        str(suite),
        str(settings),
    )
    if not path.is_file():
        store(path, {"twins": await _examined(issue, limits, settings, key)})
    twins = {name: (source, tuple(names)) for name, (source, names) in json.loads(path.read_text())["twins"].items()}
    moves = moves_of(issue)
    return RepairInstance((bundle.problem_statement,), HybridGoal(), moves, repository.files, check=issue.check(twins))


def moves_of(issue: Issue) -> tuple[Move, ...]:
    """Returns the moves that apply the right patch; none if it is unknown."""
    base, moves = issue.repository.files, list[Move]()
    for path, content in issue.golden.items():
        if base.get(path) != content:
            moves += script(path, base.get(path), content)[:-1]
    kept = issue.check({}).suite.paths
    gone = [
        path for path in base if issue.golden and path not in issue.golden and not protected(path) and path not in kept
    ]
    moves += [Terminal(command=shlex.join(("rm", *(("--",) if path.startswith("-") else ()), path))) for path in gone]
    return (*moves, DONE)


async def _examined(
    issue: Issue, limits: SandboxLimits, settings: Settings, key: str
) -> dict[str, tuple[str, tuple[str, ...]]]:
    suite = issue.check({}).suite
    name, repository = f"{issue.bundle.where}: {issue.bundle.instance_id}", issue.repository
    request = {"kind": "run", "roots": import_roots(repository), "files": list(suite.files)}
    files = {**repository.files, **repository.tests}
    if missing := [one for one in suite.files if one not in files]:
        raise UsageError(
            f"`{key}`: {name}: the test file {missing[0]} is neither in the repository nor in test_patch.",
            "Correct FAIL_TO_PASS or PASS_TO_PASS.",
        )
    try:
        ran = await results(files, request, limits, settings.tests_s, settings)
    except NoResult as error:
        raise UsageError(
            f"`{key}`: {name}: its tests cannot run at the base commit: {error}.",
            "Set `libraries` to the folder of pytest and the repository's dependencies.",
        ) from error
    reports, messages = ran["reports"], ran["messages"]
    succeed = set(successful((*suite.failing, *suite.passing), reports, files))
    if broken := [one for one in suite.passing if one not in succeed]:
        reason = messages.get(broken[0]) or messages.get(broken[0].partition("::")[0]) or "it is not reported"
        raise UsageError(
            f"`{key}`: {name}: tests of PASS_TO_PASS fail at the base commit: {some_of(broken)} ({reason}).",
            "Set `libraries` to the folder of its dependencies, or take these tests out.",
        )
    if done := [one for one in suite.failing if one in succeed]:
        raise UsageError(
            f"`{key}`: {name}: tests of FAIL_TO_PASS pass at the base commit: {some_of(done)}.",
            "Check base_commit, or take these tests out.",
        )
    names = (*suite.failing, *suite.passing)
    if not issue.golden:
        return await verified_twins(files, names, files, request, settings, suite.failing, certain=True)
    right = repaired(issue.check({}), issue.golden, partial(_small, issue.golden))
    twins = await verified_twins(files, names, {**right, **repository.tests}, request, settings, suite.failing)
    if reason := await remaining_faults(issue.check(twins), right, limits, settings):
        left = f" The judge never takes {some_of(issue.dropped)} from a policy." if issue.dropped else ""
        hint = "Move these changes to test_patch." if issue.dropped else "Correct the patch or the lists of tests."
        raise UsageError(f"`{key}`: {name}: with its patch, {reason}.{left}", hint)
    return twins


def _small(files: Mapping[str, bytes], path: str) -> bytes | None:
    """Returns the contents of a file, as the judge reads them from a policy; None if they are missing or too large."""
    content = files.get(path)
    return content if content is not None and len(content) <= MAX_FILE else None
