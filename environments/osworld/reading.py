"""Read the results of OSWorld's tasks from a machine, and the values to compare with, for the supported readings.

As in OSWorld, a reading that the machine cannot provide is None, since a policy that broke it has not done the task.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from environments.osworld.client import MachineUnable, VmClient

Fields = Mapping[str, Any]


async def _output(vm: VmClient, given: Fields) -> Any:
    return (await vm.execute(given["command"], bool(given.get("shell", False))))["output"]


async def _error(vm: VmClient, given: Fields) -> Any:
    return (await vm.execute(given["command"], bool(given.get("shell", False)))).get("error")


async def _file(vm: VmClient, given: Fields) -> Any:
    return await _several(vm.read, given)


async def _cloud_file(vm: VmClient, given: Fields) -> Any:
    return await _several(vm.fetch, given)


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


async def _screen_size(vm: VmClient, given: Fields) -> Any:
    return await vm.asked("POST", "/screen_size")


async def _window_size(vm: VmClient, given: Fields) -> Any:
    return await vm.asked("POST", "/window_size", data={"app_class_name": given["app_class_name"]})


async def _folder(vm: VmClient, given: Fields) -> Any:
    return (await vm.asked("POST", "/list_directory", json={"path": given["path"]})).get("directory_tree")


READINGS: Mapping[str, Callable[[VmClient, Fields], Awaitable[Any]]] = {
    "vm_command_line": _output,
    "vm_command_error": _error,
    "vm_file": _file,
    "cloud_file": _cloud_file,
    "rule": _rule,
    "vm_terminal_output": _terminal,
    "vm_screen_size": _screen_size,
    "vm_window_size": _window_size,
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
