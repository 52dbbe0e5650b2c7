"""Define tasks with files and folders: open, remove, move, copy, unpack."""

import gzip
import io
import random
import tarfile

from environments.hybrid.tasks.task import ClickOn, Family, HybridGoal, HybridInstance, text, words
from schemas.action import ReadFile, Terminal, WriteFile

FAMILY = Family("files")
template = FAMILY.template


def _texts(chance: random.Random, count: int, folder: str = "", suffix: str = "txt") -> dict[str, str]:
    return {f"{folder}{name}.{suffix}": text(chance) for name in words(chance, count)}


@template("open", 'Open the file "{}".', "easy", 6)
def _open(chance: random.Random) -> HybridInstance:
    files = _texts(chance, chance.randint(3, 6))
    name = chance.choice(sorted(files))
    return HybridInstance((name,), HybridGoal(opened=name), (ClickOn(name),), files)


@template("open-below", 'Open the file "{}" in the folder "{}".', "easy", 8)
def _open_below(chance: random.Random) -> HybridInstance:
    one, other = words(chance, 2)
    files = _texts(chance, 3, f"{one}/") | _texts(chance, 2, f"{other}/") | _texts(chance, 2)
    path = chance.choice(sorted(files))
    folder, _, name = path.rpartition("/")
    if not folder:
        folder, name = one, next(iter(files)).partition("/")[2]
    return HybridInstance(
        (name, folder), HybridGoal(opened=f"{folder}/{name}"), (ClickOn(folder), ClickOn(name)), files
    )


@template("delete", 'Delete the file "{}".', "easy", 6)
def _delete(chance: random.Random) -> HybridInstance:
    files = _texts(chance, chance.randint(3, 5))
    name = chance.choice(sorted(files))
    return HybridInstance((name,), HybridGoal({name: None}), (ClickOn(f"Delete {name}"),), files)


@template("delete-two", 'Delete the files "{}" and "{}".', "medium", 8)
def _delete_two(chance: random.Random) -> HybridInstance:
    files = _texts(chance, chance.randint(4, 6))
    one, other = chance.sample(sorted(files), 2)
    script = (ClickOn(f"Delete {one}"), ClickOn(f"Delete {other}"))
    return HybridInstance((one, other), HybridGoal({one: None, other: None}), script, files)


@template("rename", 'Rename "{}" to "{}".', "medium", 6)
def _rename(chance: random.Random) -> HybridInstance:
    files = _texts(chance, 4)
    old, new = chance.choice(sorted(files)), f"new-{chance.randint(10, 99)}.txt"
    return HybridInstance(
        (old, new), HybridGoal({old: None, new: files[old].encode()}), (Terminal(command=f"mv {old} {new}"),), files
    )


@template("copy", 'Copy "{}" into the folder "{}".', "medium", 6)
def _copy(chance: random.Random) -> HybridInstance:
    files, folder = _texts(chance, 4), f"copies-{chance.randint(1, 9)}"
    name = chance.choice(sorted(files))
    made = HybridGoal({f"{folder}/{name}": files[name].encode()})
    return HybridInstance((name, folder), made, (Terminal(command=f"mkdir -p {folder} && cp {name} {folder}/"),), files)


@template("move-kind", 'Move all files that end in ".{}" into the folder "{}".', "medium", 8)
def _move_kind(chance: random.Random) -> HybridInstance:
    kind, folder = chance.choice(("log", "md", "dat")), chance.choice(("archive", "sorted", "kept"))
    moved, stay = _texts(chance, chance.randint(2, 4), suffix=kind), _texts(chance, 3)
    goal = {**dict.fromkeys(moved), **{f"{folder}/{name}": content.encode() for name, content in moved.items()}}
    script = (Terminal(command=f"mkdir -p {folder} && mv *.{kind} {folder}/"),)
    return HybridInstance((kind, folder), HybridGoal(goal), script, moved | stay)


@template("delete-largest", "Delete the largest file and no other.", "medium", 6)
def _largest(chance: random.Random) -> HybridInstance:
    sizes = chance.sample(range(100, 900, 50), 5)
    files = {f"{name}.bin": bytes(chance.randbytes(size)) for name, size in zip(words(chance, 5), sizes, strict=True)}
    largest = max(files, key=lambda name: len(files[name]))
    return HybridInstance(
        (), HybridGoal({largest: None}), (Terminal(command='rm "$(ls -S | head -n 1)"'),), dict(files)
    )


@template("folders", 'Make the folders "{0}/{1}" and "{0}/{2}".', "medium", 6)
def _folders(chance: random.Random) -> HybridInstance:
    top, one, other = words(chance, 3)
    script = (Terminal(command=f"mkdir -p {top}/{one} {top}/{other}"),)
    return HybridInstance(
        (top, one, other), HybridGoal(folders=(f"{top}/{one}", f"{top}/{other}")), script, _texts(chance, 2)
    )


@template("unpack", 'Unpack "{}" into the folder "{}".', "medium", 6)
def _unpack(chance: random.Random) -> HybridInstance:
    inside, folder = _texts(chance, 3), chance.choice(("out", "unpacked", "inside"))
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for name, content in inside.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            tar.addfile(about, io.BytesIO(content.encode()))
    script = (Terminal(command=f"mkdir {folder}"), Terminal(command=f"tar xzf bundle.tar.gz -C {folder}"))
    unpacked = {f"{folder}/{name}": content.encode() for name, content in inside.items()}
    goal = HybridGoal(unpacked, free=("bundle.tar.gz",))  # gunzip puts a file without .gz in its place
    return HybridInstance(("bundle.tar.gz", folder), goal, script, {"bundle.tar.gz": stream.getvalue()})


@template("find-word", 'Write into "found.txt" the name of the one file that holds the word "{}".', "medium", 10)
def _find_word(chance: random.Random) -> HybridInstance:
    files, word = _texts(chance, 6), f"key{chance.randint(100, 999)}"
    name = chance.choice(sorted(files))
    files[name] += f"the {word} is here\n"
    return HybridInstance(
        (word,),
        HybridGoal({"found.txt": name}, names=("found.txt",)),
        (Terminal(command=f"grep -l {word} *.txt > found.txt"),),
        files,
    )


@template("delete-copies", 'Some files are copies of "{0}". Delete the copies, and keep "{0}".', "hard", 10)
def _copies(chance: random.Random) -> HybridInstance:
    files = _texts(chance, 6)
    original, *rest = chance.sample(sorted(files), 6)
    copies = rest[: chance.randint(1, 3)]
    files |= dict.fromkeys(copies, files[original])
    command = f'for f in *.txt; do [ "$f" != {original} ] && cmp -s "$f" {original} && rm "$f"; done; ls'
    return HybridInstance((original,), HybridGoal(dict.fromkeys(copies)), (Terminal(command=command),), files)


@template("allow-run", 'Let the script "{}" be run (set its executable bit).', "medium", 6)
def _allow_run(chance: random.Random) -> HybridInstance:
    files = {f"{name}.sh": f"#!/bin/sh\necho {name}\n" for name in words(chance, 3)}
    name = chance.choice(sorted(files))
    return HybridInstance((name,), HybridGoal(executable=(name,)), (Terminal(command=f"chmod +x {name}"),), files)


@template("write-note", 'Write a file "{}" that says "{}".', "medium", 8)
def _write_note(chance: random.Random) -> HybridInstance:
    name, words_ = f"note-{chance.randint(1, 99)}.txt", " ".join(words(chance, 3))
    script = (WriteFile(path=name, content=f"{words_}\n"), ReadFile(path=name))
    return HybridInstance((name, words_), HybridGoal({name: words_}), script, _texts(chance, 2))
