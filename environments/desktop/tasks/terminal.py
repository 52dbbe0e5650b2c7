"""Define tasks in a terminal."""

import random
from collections.abc import Mapping

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import NAMES, THINGS, WORDS, DesktopInstance, DesktopTask, lines
from schemas.tables.task import TaskEntry

TERMINAL = (("xterm", "-title", "Terminal"),)


def _make_folders(chance: random.Random) -> DesktopInstance:
    outer, inner = chance.sample(WORDS, 2)
    return DesktopInstance((outer, inner), DesktopGoal({f"{outer}/{inner}/": b""}), {}, TERMINAL)


def _count_lines(chance: random.Random) -> DesktopInstance:
    name = chance.choice(NAMES)
    others = [one for one in NAMES if one != name]
    rows = [f"{chance.choice((name, *others[:2], chance.choice(others)))} {chance.choice(THINGS)}" for _ in range(40)]
    rows.append(f"{name} {chance.choice(THINGS)}")
    count = sum(row.startswith(f"{name} ") for row in rows)
    return DesktopInstance(
        (name,), DesktopGoal({"count.txt": lines(str(count))}), {"orders.txt": lines(*rows)}, TERMINAL
    )


def _find_file(chance: random.Random) -> DesktopInstance:
    word, *folders = chance.sample(WORDS, 4)
    files = {
        f"{folder}/{name}.txt": lines(*chance.sample(THINGS, 5))
        for folder in folders
        for name in chance.sample(NAMES, 3)
    }
    place = chance.choice(sorted(files))
    files[place] += lines(word)
    return DesktopInstance((word,), DesktopGoal({"found.txt": files[place]}), files, TERMINAL)


def _make_runnable(chance: random.Random) -> DesktopInstance:
    names = [f"{name}.sh" for name in chance.sample(WORDS, 4)]
    files = {name: lines("#!/bin/sh", f"echo {name[:-3]}") for name in names}
    return DesktopInstance((names[0],), DesktopGoal(executable=(names[0],)), files, TERMINAL)


def _rename_all(chance: random.Random) -> DesktopInstance:
    files = {f"{name}.txt": lines(*chance.sample(THINGS, 3)) for name in chance.sample(NAMES, chance.randint(4, 7))}
    kept = {f"{chance.choice(WORDS)}.csv": b"1,2\n"}
    renamed = {f"{name[:-4]}.md": content for name, content in files.items()}
    return DesktopInstance((), DesktopGoal({**dict.fromkeys(files), **renamed}), {**files, **kept}, TERMINAL)


TASKS: Mapping[str, DesktopTask] = {
    "make-folders": DesktopTask(
        TaskEntry(
            instruction='Make a folder "{}" with a folder "{}" in it.', tags=("desktop", "terminal"), max_steps=6
        ),
        _make_folders,
    ),
    "count-lines": DesktopTask(
        TaskEntry(
            instruction='Write the number of lines of orders.txt that begin with "{}" into count.txt.',
            tags=("desktop", "terminal"),
            max_steps=8,
        ),
        _count_lines,
    ),
    "find-file": DesktopTask(
        TaskEntry(
            instruction='One file, in one of the folders, holds the word "{}". Copy it here as found.txt.',
            tags=("desktop", "terminal"),
            max_steps=10,
        ),
        _find_file,
    ),
    "make-runnable": DesktopTask(
        TaskEntry(
            instruction='Make the file "{}" executable, and no other.', tags=("desktop", "terminal"), max_steps=6
        ),
        _make_runnable,
    ),
    "rename-all": DesktopTask(
        TaskEntry(
            instruction="Rename every file that ends with .txt: put .md in the place of .txt.",
            tags=("desktop", "terminal"),
            max_steps=10,
        ),
        _rename_all,
    ),
}
