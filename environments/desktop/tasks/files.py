"""Define tasks in a file manager."""

import random

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import NAMES, THINGS, WORDS, DesktopInstance, DesktopProgram, lines

PROGRAM = DesktopProgram("files")
task = PROGRAM.task

MANAGER = (("pcmanfm", "~"),)


def _files(chance: random.Random, count: int) -> dict[str, bytes]:
    return {f"{name}.txt": lines(*chance.sample(THINGS, 3)) for name in chance.sample(NAMES, count)}


@task("rename-file", 'Rename "{}" to "{}".', "", 10)
def _rename_file(chance: random.Random) -> DesktopInstance:
    files, new = _files(chance, 5), f"{chance.choice(WORDS)}.txt"
    old = chance.choice(sorted(files))
    return DesktopInstance((old, new), DesktopGoal({old: None, new: files[old]}), files, MANAGER)


@task("new-folder", 'Make a new folder called "{}".', "dialog", 10)
def _new_folder(chance: random.Random) -> DesktopInstance:
    name = chance.choice(WORDS)
    return DesktopInstance((name,), DesktopGoal({f"{name}/": b""}), _files(chance, 4), MANAGER)


@task("move-file", 'Move "{}" into the folder "{}".', "", 12)
def _move_file(chance: random.Random) -> DesktopInstance:
    files, folders = _files(chance, 4), chance.sample(WORDS, 2)
    moved, folder = chance.choice(sorted(files)), folders[0]
    start = {**files, **{f"{one}/": b"" for one in folders}}
    return DesktopInstance(
        (moved, folder), DesktopGoal({moved: None, f"{folder}/{moved}": files[moved]}), start, MANAGER
    )


@task("delete-file", 'Throw "{}" away; the wastebasket will do.', "dialog", 8)
def _delete_file(chance: random.Random) -> DesktopInstance:
    files = _files(chance, 6)
    gone = chance.choice(sorted(files))
    return DesktopInstance((gone,), DesktopGoal({gone: None}), files, MANAGER)
