"""Read the results of OSWorld's tasks from a machine, and the values to compare with, for the supported readings.

As in OSWorld, a reading that the machine cannot provide is None, since a policy that broke it has not done the task.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from environments.osworld.client import MachineUnable, VmClient

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
