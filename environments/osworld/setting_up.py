"""Run the supported steps that set up an OSWorld task.

As in OSWorld, a command's return code never fails a step, since some of OSWorld's tasks have commands with a return
code other than 0.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from environments.osworld.client import VmClient
from schemas.failure import SandboxFailure

Fields = Mapping[str, Any]
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
