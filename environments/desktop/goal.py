"""Compare the state of a desktop, not its pictures, with its task's goal.

A goal names the changes. All other files must be unchanged, so a policy that destroys a file gets no reward. Hidden
files (names that begin with a dot) belong to the programs and are ignored.
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Want = Literal["closed", "open", "shown", "active", "maximised", "minimised", "left half", "right half"]
"""Goal states of a window; `shown` means open, and neither maximised nor minimised."""
SLACK = 0.06
"""Share of the screen's side by which a window may exceed its half."""


@dataclass(frozen=True, slots=True)
class Window:
    """A window that a program has opened; its inside in pixels of the screen."""

    id: int
    title: str
    classes: tuple[str, ...]
    x: int
    y: int
    width: int
    height: int
    active: bool
    maximised: bool
    minimised: bool


@dataclass(frozen=True, slots=True)
class File:
    """A file or, with no content and a name that ends with a slash, a folder."""

    content: bytes | None = None
    """Also None for a file that is too large or cannot be read."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """The state of a desktop that verifiers read."""

    files: Mapping[str, File]
    """Files by path below the home."""
    windows: tuple[Window, ...] = ()
    clipboard: str = ""
    width: int = 0
    height: int = 0


@dataclass(frozen=True, slots=True)
class DesktopGoal:
    """The goal state of a desktop."""

    files: Mapping[str, bytes | None] = field(default_factory=dict)
    """Goal content by path: empty for a folder, whose path ends with a slash, and None for a path that must not
    exist."""
    executable: tuple[str, ...] = ()
    """Files that must be executable; no other file may be."""
    windows: Mapping[str, Want] = field(default_factory=dict)
    """Goal of the window whose title begins with this text."""
    clipboard: str | None = None


def unmet(goal: DesktopGoal, start: Mapping[str, bytes], state: State) -> list[str]:
    """Describes each part of a goal that a state does not meet; empty if it meets all.

    Args:
        goal: goal of the task.
        start: the files that the task began with, by path; folders end with a slash.
        state: the current state.
    """
    return [*_files(goal, start, state), *_windows(goal, state), *_clipboard(goal, state)]


def expected(goal: DesktopGoal, start: Mapping[str, bytes]) -> dict[str, bytes]:
    """The expected files at the end, with all of their folders."""
    wanted = {**start, **{path: content for path, content in goal.files.items() if content is not None}}
    gone = [path for path, content in goal.files.items() if content is None]
    kept = {path: content for path, content in wanted.items() if path not in gone and not _below(path, gone)}
    return {**{folder: b"" for path in kept for folder in _folders(path)}, **kept}


def _below(path: str, folders: list[str]) -> bool:
    return any(folder.endswith("/") and path.startswith(folder) for folder in folders)


def _folders(path: str) -> Iterator[str]:
    parts = path.rstrip("/").split("/")[:-1]
    yield from ("/".join(parts[:end]) + "/" for end in range(1, len(parts) + 1))


def _files(goal: DesktopGoal, start: Mapping[str, bytes], state: State) -> Iterator[str]:
    wanted = expected(goal, start)
    yield from (f"{path} is not there" for path in sorted(wanted.keys() - state.files.keys()))
    yield from (f"{path} is there" for path in sorted(state.files.keys() - wanted.keys()))
    for path in sorted(wanted.keys() & state.files.keys()):
        found = state.files[path]
        if not path.endswith("/") and not same(wanted[path], found.content):
            yield f"{path} does not have the expected content"
        if not path.endswith("/") and found.executable != (path in goal.executable):
            yield f"{path} {'cannot' if path in goal.executable else 'can'} be run"


def same(wanted: bytes, found: bytes | None) -> bool:
    """Whether two files are equal: pictures by pixels, other files by text, ignoring a final line end, which some
    programs add."""
    if found is None:
        return False
    if wanted.startswith(b"\x89PNG"):
        return _pixels(wanted) == _pixels(found)
    return wanted.rstrip(b"\r\n") == found.rstrip(b"\r\n")


def _pixels(content: bytes) -> tuple[tuple[int, int], bytes] | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=("PNG",)) as picture:
            return picture.size, picture.convert("RGB").tobytes()
    except (OSError, ValueError, Image.DecompressionBombError):
        return None


def _windows(goal: DesktopGoal, state: State) -> Iterator[str]:
    for title, want in goal.windows.items():
        found = [one for one in state.windows if one.title.startswith(title)]
        if want == "closed":
            if found:
                yield f"the window {title} is open"
        elif not found:
            yield f"the window {title} is closed"
        elif not _is(found[0], want, state):
            yield f"the window {title} is not {want}"


def _is(window: Window, want: Want, state: State) -> bool:
    if want in ("left half", "right half"):
        return _in_half(window, want == "right half", state)
    if want == "shown":
        return not window.maximised and not window.minimised
    return want == "open" or bool(getattr(window, want))


def _in_half(window: Window, right: bool, state: State) -> bool:
    """Whether the window is shown, and within half of the screen up to `SLACK`."""
    middle, slack = state.width / 2, SLACK * state.width
    left_edge, right_edge = (middle, state.width) if right else (0, middle)
    inside = window.x >= left_edge - slack and window.x + window.width <= right_edge + slack
    return inside and not window.minimised and not window.maximised


def _clipboard(goal: DesktopGoal, state: State) -> Iterator[str]:
    if goal.clipboard is not None and state.clipboard.strip() != goal.clipboard.strip():
        yield "the clipboard does not have the expected content"
