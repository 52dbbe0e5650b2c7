"""Describe the changes from one screen to the next, by rules on the elements recorded before and after.

The captions are for continual training (state-transition captioning, UI-TARS, arXiv 2501.12326, section 4): they are
true whatever the purpose of the action was. An element is identified by its kind and name, where only one has them.
"""

from collections import Counter
from collections.abc import Sequence

from schemas.observation import Element

NOTHING = "Nothing."
"""Caption of two screens that are equal pixel by pixel."""
MOST = 3
"""Maximum number of listed changes; further ones are only counted."""
MAX_TEXT = 40
"""Maximum length of a repeated name or value, in characters; longer ones are paragraphs."""
LEAST_MOVE = 0.02
"""Minimum distance of a move, as a share of the screen."""

Key = tuple[str, str]


def caption(before: Sequence[Element], after: Sequence[Element]) -> str:
    """Describe the changes in a sentence; empty if the elements show none."""
    found = changes(before, after)
    listed = found[:MOST] + ([f"{len(found) - MOST} more"] if len(found) > MOST else [])
    return "; ".join(listed) + "." if listed else ""


def changes(before: Sequence[Element], after: Sequence[Element]) -> list[str]:
    """Return every change as text: changed values, new elements, removed elements, moves; in that order."""
    old, new = _by_key(before), _by_key(after)
    both = [(old[key][0], new[key][0]) for key in old if len(old[key]) == len(new.get(key, ())) == 1]
    counts = Counter({key: len(found) for key, found in new.items()})
    counts.subtract({key: len(found) for key, found in old.items()})
    return [
        *(_holds(now) for was, now in both if was.value != now.value),
        *(f"{_called(new[key][0])} appeared" for key, more in counts.items() if more > 0),
        *(f"{_called(old[key][0])} went away" for key, more in counts.items() if more < 0),
        *(f"{_called(now)} moved {way}" for was, now in both if (way := _way(was, now))),
    ]


def _by_key(elements: Sequence[Element]) -> dict[Key, list[Element]]:
    found: dict[Key, list[Element]] = {}
    for element in elements:
        found.setdefault((element.kind, element.name), []).append(element)
    return found


def _called(element: Element) -> str:
    return f'{element.kind} "{element.name}"' if 0 < len(element.name) <= MAX_TEXT else element.kind


def _holds(element: Element) -> str:
    value = f'"{element.value}"' if len(element.value) <= MAX_TEXT else "a long text"
    return f"{_called(element)} now holds {value if element.value else 'nothing'}"


def _way(was: Element, now: Element) -> str:
    """Return `left`, `right`, `up` or `down`, the larger part of the move; empty for none."""
    right, down = (now.centre[axis] - was.centre[axis] for axis in (0, 1))
    if max(abs(right), abs(down)) < LEAST_MOVE:
        return ""
    if abs(right) >= abs(down):
        return "right" if right > 0 else "left"
    return "down" if down > 0 else "up"
