"""Parse OSWorld's task files, set tasks up on a machine, and read their results from it.

As in OSWorld, a reading that the machine cannot provide is None, since a policy that broke it has not done the task. A
command's return code never fails a step, since some of OSWorld's tasks have commands with a return code other than 0.

A task is a JSON file with `id`, `instruction`, `config` (steps that set it up) and `evaluator` (the readings of the
machine at the end, and their score). A file with an unsupported step, reading or score is open: it is listed with the
reason and never played, since its reward would have another meaning.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments.osworld.client import MachineUnable, VmClient
from environments.osworld.scores import OF_FILES, SCORES
from schemas.failure import SandboxFailure, UsageError

Fields = Mapping[str, Any]
Reading = Callable[[VmClient, Fields], Awaitable[Any]]


def _executed(field: str) -> Reading:
    async def executed(vm: VmClient, given: Fields) -> Any:
        return (await vm.execute(given["command"], bool(given.get("shell", False)))).get(field)

    return executed


async def _several(read: Callable[[str], Awaitable[Any]], given: Fields) -> Any:
    """Reads one content, or with `multi` the contents of the paths with the indices in `gives`, in the order of the
    paths."""
    if not given.get("multi"):
        return await read(given["path"])
    numbers = given.get("gives", [0])
    found = [await read(path) for number, path in enumerate(given["path"]) if number in numbers]
    return found[0] if len(found) == 1 else found


async def _rule(vm: VmClient, given: Fields) -> Any:
    return given["rules"]


async def _terminal(vm: VmClient, given: Fields) -> Any:
    return (await vm.asked("GET", "/terminal")).get("output")


async def _folder(vm: VmClient, given: Fields) -> Any:
    return (await vm.asked("POST", "/list_directory", json={"path": given["path"]})).get("directory_tree")


READINGS: Mapping[str, Reading] = {
    "vm_command_line": _executed("output"),
    "vm_command_error": _executed("error"),
    "vm_file": lambda vm, given: _several(vm.read, given),
    "cloud_file": lambda vm, given: _several(vm.fetch, given),
    "rule": _rule,
    "vm_terminal_output": _terminal,
    "vm_screen_size": lambda vm, given: vm.asked("POST", "/screen_size"),
    "vm_window_size": lambda vm, given: vm.asked(
        "POST", "/window_size", data={"app_class_name": given["app_class_name"]}
    ),
    "list_directory": _folder,
}
"""Supported readings by OSWorld's name, without its `get_`."""
FILES = frozenset({"vm_file", "cloud_file"})
"""Readings that return files."""


async def read(vm: VmClient, given: Fields) -> Any:
    """Reads the result or the expected value of a task; raises SandboxFailure for a machine that does not answer."""
    try:
        return await READINGS[given["type"]](vm, given)
    except MachineUnable:
        return None


AGAIN_S = 0.3
"""Seconds between two runs of a command that is repeated until its condition holds."""


async def _download(vm: VmClient, given: Fields) -> None:
    for one in given["files"]:
        await vm.upload(one["path"], await vm.fetch(one["url"]))


async def _upload(vm: VmClient, given: Fields) -> None:
    for one in given["files"]:
        try:
            content = Path(one["local_path"]).expanduser().read_bytes()
        except OSError as error:
            raise SandboxFailure(f"the task uploads {one['local_path']}: {error.strerror}") from error
        await vm.upload(one["path"], content)


async def _launch(vm: VmClient, given: Fields) -> None:
    command, shell = given["command"], bool(given.get("shell", False))
    await vm.post("/setup/launch", {"command": command.split() if isinstance(command, str) and not shell else command,
                                    "shell": shell})  # fmt: skip


async def _execute(vm: VmClient, given: Fields) -> None:
    """Runs a command, repeatedly until the condition `until` holds, if it has one."""
    until = given.get("until") or {}
    while True:
        answer = await vm.execute(given["command"], bool(given.get("shell", False)))
        code = "returncode" in until and answer.get("returncode") == until["returncode"]
        held = any(until[key] in str(answer.get(name)) for key, name in _WRITTEN.items() if key in until)
        if not until or code or held:
            return
        await asyncio.sleep(AGAIN_S)


def _posted(path: str) -> Callable[[VmClient, Fields], Awaitable[None]]:
    return lambda vm, given: vm.post(path, given)


_WRITTEN = {"stdout": "output", "stderr": "error"}
STEPS: Mapping[str, Callable[[VmClient, Fields], Awaitable[None]]] = {
    "download": _download,
    "upload_file": _upload,
    "launch": _launch,
    "execute": _execute,
    "command": _execute,
    "sleep": lambda vm, given: asyncio.sleep(float(given["seconds"])),
    "open": _posted("/setup/open_file"),
    "activate_window": _posted("/setup/activate_window"),
    "close_window": _posted("/setup/close_window"),
    "change_wallpaper": _posted("/setup/change_wallpaper"),
}
"""Supported steps by OSWorld's name."""


def words_of(password: str, width: int, height: int) -> Mapping[str, str]:
    """Returns the values of OSWorld's placeholders in commands, for a machine with this password and screen."""
    return {
        "CLIENT_PASSWORD": password,
        "SCREEN_WIDTH": str(width),
        "SCREEN_HEIGHT": str(height),
        "SCREEN_WIDTH_HALF": str(width // 2),
        "SCREEN_HEIGHT_HALF": str(height // 2),
    }


async def take(vm: VmClient, step: Fields, words: Mapping[str, str]) -> None:
    """Performs a step. As in OSWorld, placeholders are filled only in commands that are executed.

    Raises:
        Unable: the machine cannot perform the step.
        SandboxFailure: the machine does not answer, or the step cannot be read.
    """
    kind, given = step["type"], step.get("parameters") or {}
    try:
        if STEPS[kind] is _execute:
            given = {**given, "command": _filled(given["command"], words)}
        await STEPS[kind](vm, given)
    except (KeyError, TypeError, ValueError) as error:
        raise SandboxFailure(f"step {kind} of the task cannot be read: {error!r}") from error


def _filled(command: str | list[str], words: Mapping[str, str]) -> str | list[str]:
    if isinstance(command, list):
        return [re.sub(r"\{(\w+)\}", lambda found: words.get(found[1], found[0]), one) for one in command]
    return _filled([command], words)[0]


@dataclass(frozen=True, slots=True)
class Metric:
    """One score of a task."""

    score: str
    result: Mapping[str, Any] | None
    expected: Mapping[str, Any] | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VmTask:
    """The task of a file."""

    template: str
    """Name of the task's file."""
    instruction: str
    steps: tuple[Mapping[str, Any], ...]
    after: tuple[Mapping[str, Any], ...]
    """Steps before the scoring."""
    metrics: tuple[Metric, ...]
    any_of: bool
    """Whether one full score is enough."""
    infeasible: bool
    """Whether the only correct end is the report that the task cannot be done."""
    domain: str


@dataclass(slots=True)
class TaskFiles:
    """The tasks of a folder."""

    known: dict[str, VmTask] = field(default_factory=dict)
    open: dict[str, str] = field(default_factory=dict)
    """Reason why a task is not played, by the name of its file."""

    def summary(self) -> str:
        """Counts playable and open tasks, with the reasons."""
        reasons = ", ".join(f"{reason} ({count})" for reason, count in Counter(self.open.values()).most_common())
        return f"{len(self.known)} tasks" + (f"; {len(self.open)} are open: {reasons}" if self.open else "")


def read_tasks(folder: Path, key: str = "environments.osworld.folder") -> TaskFiles:
    """Reads the tasks of all files below a folder.

    Args:
        folder: the folder.
        key: the config key that names it, for the error.

    Raises:
        UsageError: the folder does not exist, or two files have the same name.
    """
    if not folder.is_dir():
        raise UsageError(f"`{key}`: there is no folder {folder} of OSWorld's tasks.", "Correct the path.")
    found = TaskFiles()
    for place in sorted(folder.rglob("*.json")):
        if place.stem in found.known or place.stem in found.open:
            raise UsageError(f"Two files below {folder} are called {place.name}.", "Keep one of them.")
        try:
            found.known[place.stem] = _task(place)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            found.open[place.stem] = str(error) if isinstance(error, ValueError) else f"no task: {error!r}"
    return found


def _task(place: Path) -> VmTask:
    """Parses the task of a file; raises ValueError with the reason why it is open."""
    given = json.loads(place.read_bytes())  # in UTF-8, with a byte order mark or without
    evaluator = given["evaluator"]
    steps, after = tuple(given.get("config") or ()), tuple(evaluator.get("postconfig") or ())
    infeasible = evaluator["func"] == "infeasible"
    metrics = () if infeasible else tuple(_metrics(evaluator))
    for kind, known, names in (
        ("step", STEPS, [step["type"] for step in (*steps, *after)]),
        ("score", SCORES, [metric.score for metric in metrics]),
        ("reading", READINGS, [part["type"] for one in metrics for part in (one.result, one.expected) if part]),
    ):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"{kind} {unknown[0]}")
    for one in metrics:
        if one.result and (one.result["type"] in FILES) != (one.score in OF_FILES):
            raise ValueError(f"score {one.score} of {one.result['type']}")
    return VmTask(
        place.stem, given["instruction"], steps, after, metrics, evaluator.get("conj", "and") == "or", infeasible,
        str(given.get("snapshot") or place.parent.name),
    )  # fmt: skip


def _metrics(evaluator: Mapping[str, Any]) -> Iterator[Metric]:
    scores = evaluator["func"]
    if isinstance(scores, str):
        scores = [scores]
        parts = [[evaluator.get(name) or None] for name in ("result", "expected", "options")]
    else:
        parts = [evaluator.get(name) or [None] * len(scores) for name in ("result", "expected", "options")]
    for score, result, expected, options in zip(scores, *parts, strict=True):
        yield Metric(score, result, expected, options or {})
