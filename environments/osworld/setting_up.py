"""The steps that set an OSWorld task up, as far as they are known here."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from environments.osworld.client import VmClient
from schemas.failure import SandboxFailure

Fields = Mapping[str, Any]
AGAIN_S = 0.3
"""How long is waited before a command that is run until something is so is run again."""
MOST_S = 60.0
"""Of a `sleep`."""


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
    """Runs a command, again and again until what `until` wants is so, if it wants something."""
    until = given.get("until") or {}
    while True:
        answer = await vm.execute(given["command"], bool(given.get("shell", False)))
        code = "returncode" in until and answer.get("returncode") == until["returncode"]
        held = any(until[key] in str(answer.get(name)) for key, name in _WRITTEN.items() if key in until)
        if not until or code or held:
            return
        await asyncio.sleep(AGAIN_S)


async def _sleep(vm: VmClient, given: Fields) -> None:
    await asyncio.sleep(min(float(given["seconds"]), MOST_S))


def _posted(path: str) -> Callable[[VmClient, Fields], Awaitable[None]]:
    return lambda vm, given: vm.post(path, given)


_WRITTEN = {"stdout": "output", "stderr": "error"}
STEPS: Mapping[str, Callable[[VmClient, Fields], Awaitable[None]]] = {
    "download": _download,
    "upload_file": _upload,
    "launch": _launch,
    "execute": _execute,
    "command": _execute,
    "sleep": _sleep,
    "open": _posted("/setup/open_file"),
    "activate_window": _posted("/setup/activate_window"),
    "close_window": _posted("/setup/close_window"),
    "change_wallpaper": _posted("/setup/change_wallpaper"),
}
"""By OSWorld's name."""
