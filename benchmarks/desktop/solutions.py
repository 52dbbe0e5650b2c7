"""A scripted solution of each of the desktop's tasks: what a careful hand does, as actions of the agent's own kind.

A script is told what its task's instance is, and sees where the windows are; it acts by clicks, drags and keys alone.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from environments.desktop.sandbox import DesktopReward, DesktopSandbox
from environments.desktop.tasks.editor import FILE
from environments.desktop.tasks.task import DesktopInstance
from schemas.action import Action, Click, Drag, Hotkey, LeftDouble, Type
from schemas.observation import Outcome


class Hand:
    """Acts in one sandbox, counts its steps, and asks the verifier after each.

    Args:
        sandbox: a task has been started in it.
    """

    def __init__(self, sandbox: DesktopSandbox) -> None:
        self.sandbox, self.instance = sandbox, sandbox.instance
        self.steps = 0
        self.outcome = Outcome(False, 0.0)

    async def do(self, *actions: Action) -> None:
        """Performs actions, each with a look at the screen and a verdict after it."""
        for action in actions:
            await self.sandbox.perform(action)
            self.outcome = await self.sandbox.verify(DesktopReward())
            await self.sandbox.observe()
            self.steps += 1

    async def window(self, title: str) -> dict[str, Any]:
        """The window whose title holds a text."""
        listed = (await self.sandbox.box.ask("windows"))["windows"]
        return next(one for one in listed if title in one["title"])

    async def at(self, title: str, across: float, down: float) -> tuple[float, float]:
        """A point so many pixels from the upper left of a window, from its right where `across` is negative."""
        one = await self.window(title)
        seen = await self.sandbox.observe()
        x = one["x"] + across + (one["width"] if across < 0 else 0)
        return x / seen.width, (one["y"] + down) / seen.height


FIRST_ICON, ICON, ICONS = (207, 94), (94, 73), 5
"""Of the file manager, in pixels: the first icon, how far the next ones are to its right and below, and how many are in
a row."""
Script = Callable[[Hand], Awaitable[None]]
SAVE = Hotkey(key="ctrl s")


def text_of(instance: DesktopInstance, path: str) -> str:
    """What is to be in a file in the end."""
    content = instance.goal.files[path]
    assert content is not None
    return content.decode()


async def _retype(hand: Hand) -> None:
    text = text_of(hand.instance, FILE).rstrip("\n")
    await hand.do(Hotkey(key="ctrl a"), Type(content=text), SAVE)


async def _append(hand: Hand) -> None:
    await hand.do(Hotkey(key="ctrl end"), Type(content=str(hand.instance.words[0])), SAVE)


async def _copy_line(hand: Hand) -> None:
    rows = hand.instance.files[FILE].decode().splitlines()
    at = next(number for number, row in enumerate(rows) if row.startswith(str(hand.instance.words[0])))
    await hand.do(Hotkey(key="ctrl home"), *[Hotkey(key="down")] * at, Hotkey(key="shift end"), Hotkey(key="ctrl c"))


def _typed(line: str) -> Script:
    """A line for the shell, with the words of the instruction."""

    async def script(hand: Hand) -> None:
        await hand.do(Type(content=line.format(*hand.instance.words) + "\n"))

    return script


async def _select(hand: Hand, name: str) -> None:
    """Chooses a file in the file manager, by the beginning of its name."""
    await hand.do(Type(content=name), Hotkey(key="escape"))


async def _rename(hand: Hand) -> None:
    old, new = map(str, hand.instance.words)
    await _select(hand, old)
    await hand.do(Hotkey(key="f2"), Hotkey(key="ctrl a"), Type(content=f"{new}\n"))


async def _new_folder(hand: Hand) -> None:
    await hand.do(Hotkey(key="ctrl shift n"), Hotkey(key="ctrl a"), Type(content=f"{hand.instance.words[0]}\n"))


async def _move(hand: Hand) -> None:
    name, folder = map(str, hand.instance.words)
    x, y = await _icon(hand, name)
    to_x, to_y = await _icon(hand, f"{folder}/")
    await hand.do(Drag(x=x, y=y, to_x=to_x, to_y=to_y))


async def _icon(hand: Hand, name: str) -> tuple[float, float]:
    """Where a file's icon is in the file manager: folders come first, each in the order of its name."""
    listed = sorted(hand.instance.files, key=lambda one: (not one.endswith("/"), one))
    row, column = divmod(listed.index(name), ICONS)
    return await hand.at("user", FIRST_ICON[0] + column * ICON[0], FIRST_ICON[1] + row * ICON[1])


async def _delete(hand: Hand) -> None:
    await _select(hand, str(hand.instance.words[0]))
    await hand.do(Hotkey(key="delete"), Hotkey(key="enter"))


async def _calculate(hand: Hand) -> None:
    one, other = hand.instance.words
    await hand.do(Type(content=f"{one}*{other}="), Hotkey(key="ctrl c"))


async def _note_result(hand: Hand) -> None:
    one, other, less = hand.instance.words
    await hand.do(Hotkey(key="alt tab"), Type(content=f"{one}+{other}-{less}="))
    await hand.do(Hotkey(key="alt tab"), Type(content=text_of(hand.instance, FILE).strip()), SAVE)


async def _turn(hand: Hand) -> None:
    key = "r" if hand.instance.words[0] == "clockwise" else "l"
    await hand.do(Hotkey(key=key), Hotkey(key="s"), Hotkey(key="alt y"))


async def _delete_picture(hand: Hand) -> None:
    gone = next(iter(hand.instance.goal.files))
    at = sorted(hand.instance.files).index(gone)
    await hand.do(*[Hotkey(key="right")] * at, Hotkey(key="delete"), Hotkey(key="alt y"))


async def _choose(hand: Hand) -> None:
    x, y = await hand.at(str(hand.instance.words[0]), 60, 60)
    await hand.do(Click(x=x, y=y))


async def _close(hand: Hand) -> None:
    x, y = await hand.at(str(hand.instance.words[0]), 60, 60)
    await hand.do(Click(x=x, y=y), Hotkey(key="alt f4"))


async def _maximise(hand: Hand) -> None:
    x, y = await hand.at(str(hand.instance.words[0]), 120, -10)
    await hand.do(LeftDouble(x=x, y=y))


async def _minimise(hand: Hand) -> None:
    x, y = await hand.at(str(hand.instance.words[0]), -48, -10)
    await hand.do(Click(x=x, y=y))


async def _move_window(hand: Hand) -> None:
    title, side = map(str, hand.instance.words)
    x, y = await hand.at(title, 120, -10)
    start = (await hand.window(title))["x"] / (await hand.sandbox.observe()).width
    await hand.do(Drag(x=x, y=y, to_x=x + ((0.05 if side == "left" else 0.55) - start), to_y=y))


SCRIPTS: Mapping[str, Script] = {
    "write-note": _retype,
    "append-line": _append,
    "delete-line": _retype,
    "replace-word": _retype,
    "copy-line": _copy_line,
    "make-folders": _typed("mkdir -p {}/{}"),
    "count-lines": _typed("grep -c '^{} ' orders.txt > count.txt"),
    "find-file": _typed('cp "$(grep -rlx {} .)" found.txt'),
    "make-runnable": _typed("chmod +x {}"),
    "rename-all": _typed('for f in *.txt; do mv "$f" "${{f%.txt}}.md"; done'),
    "rename-file": _rename,
    "new-folder": _new_folder,
    "move-file": _move,
    "delete-file": _delete,
    "calculate": _calculate,
    "note-result": _note_result,
    "turn-picture": _turn,
    "delete-picture": _delete_picture,
    "choose-window": _choose,
    "close-window": _close,
    "maximise-window": _maximise,
    "minimise-window": _minimise,
    "move-window": _move_window,
}
"""By template."""


async def solved(sandbox: DesktopSandbox, template: str) -> Hand:
    """Plays a task's script in its sandbox; says what came of it, and in how many steps."""
    hand = Hand(sandbox)
    await SCRIPTS[template](hand)
    return hand
