"""Define tasks in a file manager."""

import random
from collections.abc import Mapping

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import NAMES, THINGS, WORDS, DesktopInstance, DesktopTask, lines
from schemas.tables.task import TaskEntry

MANAGER = (("pcmanfm", "~"),)


def _files(chance: random.Random, count: int) -> dict[str, bytes]:
    return {f"{name}.txt": lines(*chance.sample(THINGS, 3)) for name in chance.sample(NAMES, count)}


def _rename_file(chance: random.Random) -> DesktopInstance:
    files, new = _files(chance, 5), f"{chance.choice(WORDS)}.txt"
    old = chance.choice(sorted(files))
    return DesktopInstance((old, new), DesktopGoal({old: None, new: files[old]}), files, MANAGER)


def _new_folder(chance: random.Random) -> DesktopInstance:
    name = chance.choice(WORDS)
    return DesktopInstance((name,), DesktopGoal({f"{name}/": b""}), _files(chance, 4), MANAGER)


def _move_file(chance: random.Random) -> DesktopInstance:
    files, folders = _files(chance, 4), chance.sample(WORDS, 2)
    moved, folder = chance.choice(sorted(files)), folders[0]
    start = {**files, **{f"{one}/": b"" for one in folders}}
    return DesktopInstance(
        (moved, folder), DesktopGoal({moved: None, f"{folder}/{moved}": files[moved]}), start, MANAGER
    )


def _delete_file(chance: random.Random) -> DesktopInstance:
    files = _files(chance, 6)
    gone = chance.choice(sorted(files))
    return DesktopInstance((gone,), DesktopGoal({gone: None}), files, MANAGER)


TASKS: Mapping[str, DesktopTask] = {
    "rename-file": DesktopTask(
        TaskEntry(instruction='Rename "{}" to "{}".', tags=("desktop", "files"), max_steps=10), _rename_file
    ),
    "new-folder": DesktopTask(
        TaskEntry(instruction='Make a new folder called "{}".', tags=("desktop", "files", "dialog"), max_steps=10),
        _new_folder,
    ),
    "move-file": DesktopTask(
        TaskEntry(instruction='Move "{}" into the folder "{}".', tags=("desktop", "files"), max_steps=12), _move_file
    ),
    "delete-file": DesktopTask(
        TaskEntry(
            instruction='Throw "{}" away; the wastebasket will do.', tags=("desktop", "files", "dialog"), max_steps=8
        ),
        _delete_file,
    ),
}
