"""Define tasks in a terminal."""

import random

from environments.desktop.goal import DesktopGoal
from environments.desktop.tasks.task import NAMES, THINGS, WORDS, DesktopInstance, DesktopProgram, lines

PROGRAM = DesktopProgram("terminal")
task = PROGRAM.task

TERMINAL = (("xterm", "-title", "Terminal"),)


@task("make-folders", 'Make a folder "{}" with a folder "{}" in it.', "", 6)
def _make_folders(chance: random.Random) -> DesktopInstance:
    outer, inner = chance.sample(WORDS, 2)
    return DesktopInstance((outer, inner), DesktopGoal({f"{outer}/{inner}/": b""}), {}, TERMINAL)


@task("count-lines", 'Write the number of lines of orders.txt that begin with "{}" into count.txt.', "", 8)
def _count_lines(chance: random.Random) -> DesktopInstance:
    name = chance.choice(NAMES)
    others = [one for one in NAMES if one != name]
    rows = [f"{chance.choice((name, *others[:2], chance.choice(others)))} {chance.choice(THINGS)}" for _ in range(40)]
    rows.append(f"{name} {chance.choice(THINGS)}")
    count = sum(row.startswith(f"{name} ") for row in rows)
    return DesktopInstance(
        (name,), DesktopGoal({"count.txt": lines(str(count))}), {"orders.txt": lines(*rows)}, TERMINAL
    )


@task("find-file", 'One file, in one of the folders, holds the word "{}". Copy it here as found.txt.', "", 10)
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


@task("make-runnable", 'Make the file "{}" executable, and no other.', "", 6)
def _make_runnable(chance: random.Random) -> DesktopInstance:
    names = [f"{name}.sh" for name in chance.sample(WORDS, 4)]
    files = {name: lines("#!/bin/sh", f"echo {name[:-3]}") for name in names}
    return DesktopInstance((names[0],), DesktopGoal(executable=(names[0],)), files, TERMINAL)


@task("rename-all", "Rename every file that ends with .txt: put .md in the place of .txt.", "", 10)
def _rename_all(chance: random.Random) -> DesktopInstance:
    files = {f"{name}.txt": lines(*chance.sample(THINGS, 3)) for name in chance.sample(NAMES, chance.randint(4, 7))}
    kept = {f"{chance.choice(WORDS)}.csv": b"1,2\n"}
    renamed = {f"{name[:-4]}.md": content for name, content in files.items()}
    return DesktopInstance((), DesktopGoal({**dict.fromkeys(files), **renamed}), {**files, **kept}, TERMINAL)
