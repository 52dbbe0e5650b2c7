"""Make questions about a recording: what changed between two times, when, and in what order things happened.

The answers are known from the recorded actions (`play`), from the page's elements in two frames (`page`), or from the
pixels of two frames (`pixels`). A question shows a clip of the recording, and its times count from the clip's start.
The recording decides clips and wordings, so one recording always has the same questions.
"""

import hashlib
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise, zip_longest

from curation.annotation import MAX_TEXT, NOTHING, caption
from curation.perception.screen import at
from schemas.action import Action, from_json_list
from schemas.observation import Element
from schemas.tables.annotation import Annotation
from schemas.tables.recording import Recording
from schemas.tables.step import Step

LEAST_CLIP_S = 2.0
"""Minimum seconds of a clip: four frames at two a second, the least that a model samples."""
MOST_EVENTS = 4
"""Maximum number of things whose order a question asks for."""
MOST_SIDE = 0.45
"""Maximum sides of a changed box, as a share of the screen, for which words name its place. A larger one may hold
several changes."""
LETTERS = "ABCD"
_NOUNS = {
    "click": "a click", "left_double": "a double click", "triple_click": "a triple click",
    "right_single": "a right click", "middle_single": "a middle click", "long_press": "a long press", "drag": "a drag",
}  # fmt: skip
_HELD = ("press", "release")
Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Film:
    """A recording, and sources of what its frames show."""

    recording: Recording
    steps: Sequence[Step]
    """Steps of its trajectory; empty without one."""
    elements: Mapping[str, Sequence[Element]]
    """Elements of frames that words can describe, as far as a page listed them."""
    difference: Callable[[str, str], Box | None]
    """Finds the box of the changed pixels of two frames."""

    def shown(self, second: float) -> str:
        """Returns the frame that is shown at a time."""
        return self.recording.frames[max(0, bisect_right(self.recording.times, second) - 1)]

    def changes(self, begin: float, end: float) -> list[tuple[float, str, str]]:
        """Lists the changes within a clip: the time, the frame before, and the frame after."""
        times, frames = self.recording.times, self.recording.frames
        first, last = bisect_right(times, begin), bisect_left(times, end)
        return [(times[place], frames[place - 1], frames[place]) for place in range(max(1, first), last)]

    def happened(self, begin: float, end: float) -> list[tuple[float, str]]:
        """Lists the actions within a clip in words, with their times."""
        began = zip(self.recording.step_times, self.steps, strict=False)
        found = ((second, in_words(step)) for second, step in began if begin < second < end)
        return [(second, words) for second, words in found if words]

    def pick(self, topic: str, count: int) -> int:
        """Chooses a number below `count`, always the same for equal recordings and topics."""
        name = f"{self.recording.recording_id}|{topic}"
        return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) % count


@dataclass(frozen=True, slots=True)
class ClipQuestion:
    """A question about a clip, with its answer."""

    question: str
    answer: str
    begin_s: float
    end_s: float
    author: str


def over_time(film: Film, most: int, clip_s: float, now: datetime) -> list[Annotation]:
    """Ask at most `most` questions about a recording: the first of each sort, then the second of each.

    Args:
        film: the recording.
        most: maximum number of questions.
        clip_s: maximum seconds of a clip.
        now: creation time of the annotations.
    """
    windows = clips(film, clip_s)
    windows = windows[:: max(1, len(windows) // (2 * most))]
    sorts = (changed, order, when, done)
    begins = film.pick("sorts", len(sorts))
    in_turn = zip_longest(*(sort(film, windows) for sort in (*sorts[begins:], *sorts[:begins])))
    asked = islice((one for several in in_turn for one in several if one), most)
    return [_row(film, one, number, now) for number, one in enumerate(asked)]


def clips(film: Film, clip_s: float) -> list[tuple[float, float]]:
    """Return the clips to ask about: the whole of a short recording, else a clip around each change or action."""
    whole = film.recording.seconds
    if whole < LEAST_CLIP_S:
        return []
    if whole <= clip_s:
        return [(0.0, whole)]
    found = list[tuple[float, float]]()
    for second in sorted({*film.recording.times[1:], *film.recording.step_times}):
        offset = clip_s * (0.3 + 0.1 * film.pick(f"clip {second:.3f}", 5))
        begin = round(min(max(0.0, second - offset), whole - clip_s), 1)
        if not found or begin - found[-1][0] > clip_s / 4:
            found.append((begin, min(whole, begin + clip_s)))
    return found


def changed(film: Film, windows: Sequence[tuple[float, float]]) -> Iterator[ClipQuestion]:
    """Ask what changed between two times, sometimes of one frame."""
    for number, (begin, end) in enumerate(windows):
        still = list(pairwise([begin, *(second for second, _, _ in film.changes(begin, end)), end]))
        for turn in range(2):
            first, last = sorted(film.pick(f"{side} {number} {turn}", len(still)) for side in ("from", "to"))
            one, other = (round(_within(still[gap], share), 1) for gap, share in ((first, 0.4), (last, 0.6)))
            if found := _between(film, one, other):
                answer, author = found
                question = f"What changed between {one - begin:.1f} s and {other - begin:.1f} s?"
                yield ClipQuestion(question, answer, begin, end, author)


def order(film: Film, windows: Sequence[tuple[float, float]]) -> Iterator[ClipQuestion]:
    """Ask in what order actions happened, or parts of the screen changed."""
    for number, (begin, end) in enumerate(windows):
        happened, author = film.happened(begin, end), "play"
        what = "In what order did these happen?"
        if len(_once(happened)) < 2 and len(film.changes(begin, end)) <= MOST_EVENTS:
            happened = [(second, _place(film.difference(*pair))) for second, *pair in film.changes(begin, end)]
            what, author = "In what order did these parts of the screen change?", "pixels"
        known = _once(happened)[:MOST_EVENTS]
        if len(known) < 2 or ("" in (words for _, words in happened) and author == "pixels"):
            continue
        named = sorted(known, key=lambda one: film.pick(f"order {number} {one[1]}", 1 << 30))
        letters = {words: LETTERS[place] for place, (_, words) in enumerate(named)}
        listed = "; ".join(f"{letters[words]}: {words}" for _, words in named)
        yield ClipQuestion(
            f"{what} {listed}.", f"{', '.join(letters[words] for _, words in known)}.", begin, end, author
        )


def when(film: Film, windows: Sequence[tuple[float, float]]) -> Iterator[ClipQuestion]:
    """Ask when the screen changes, in clips with one change."""
    for begin, end in windows:
        if len(found := film.changes(begin, end)) == 1:
            yield ClipQuestion("When does the screen change?", f"At {found[0][0] - begin:.1f} s.", begin, end, "pixels")


def done(film: Film, windows: Sequence[tuple[float, float]]) -> Iterator[ClipQuestion]:
    """Ask which actions happened in a clip."""
    for begin, end in windows:
        happened = film.happened(begin, end)
        if 0 < len(happened) <= MOST_EVENTS:
            listed = ", then ".join(words for _, words in happened)
            yield ClipQuestion(
                "What did the user do, in order?", f"{listed[0].upper()}{listed[1:]}.", begin, end, "play"
            )


def in_words(step: Step) -> str:
    """Return a step's action in words that need no coordinates; empty for one that is not visible or failed."""
    actions = [one for one in from_json_list(step.actions) if one.type not in _HELD]
    if len(actions) != 1 or step.action_error:
        return ""
    return _words_of(actions[0])


def _words_of(action: Action) -> str:
    if action.type in _NOUNS:
        x, y = getattr(action, "x", None), getattr(action, "y", None)
        where = "" if x is None or y is None else at(Element("", "", (x, y, x, y), False))
        return f"{_NOUNS[action.type]}{where}"
    if action.type == "scroll":
        return f"a scroll {action.direction}"
    if action.type == "type":
        text = action.content.rstrip("\n")
        what = f'the text "{text}" typed' if 0 < len(text) <= MAX_TEXT and "\n" not in text else "a text typed"
        return f"{what} and submitted" if action.content.endswith("\n") else what
    return f"the keys {action.key} pressed" if action.type == "hotkey" else ""


def _once(happened: Sequence[tuple[float, str]]) -> list[tuple[float, str]]:
    """Return what has words that nothing else has."""
    counts = Counter(words for _, words in happened)
    return [one for one in happened if one[1] and counts[one[1]] == 1]


def _within(gap: tuple[float, float], share: float) -> float:
    """Return the time after a share of a gap."""
    return gap[0] + share * (gap[1] - gap[0])


def _between(film: Film, one: float, other: float) -> tuple[str, str] | None:
    """Return the change between two times in words, and its author; None if no words are certain."""
    before, after = film.shown(one), film.shown(other)
    if one >= other:
        return None
    if before == after:
        return NOTHING, "pixels"
    listed = film.elements.get(before), film.elements.get(after)
    if listed[0] and listed[1] and (words := caption(listed[0], listed[1])):
        return words, "page"
    place = _place(film.difference(before, after))
    return (f"{place[0].upper()}{place[1:]}.", "pixels") if place else None


def _place(box: Box | None) -> str:
    """Return a part of the screen in words; empty if no words are certain."""
    if box is None or max(box[2] - box[0], box[3] - box[1]) > MOST_SIDE:
        return ""
    return at(Element("", "", box, False)).strip().partition(" ")[2]


def _row(film: Film, one: ClipQuestion, number: int, now: datetime) -> Annotation:
    recording = film.recording
    name = f"{recording.recording_id}|video|{number}"
    return Annotation(
        annotation_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        trajectory_id=recording.trajectory_id,
        step=min(bisect_right(recording.step_times, one.begin_s), max(0, len(film.steps) - 1)),
        iteration=recording.iteration,
        kind="video",
        author=one.author,
        thought=one.answer,
        action=None,
        before=None,
        after=None,
        created_at=now,
        question=one.question,
        recording=recording.recording_id,
        begin_s=one.begin_s,
        end_s=one.end_s,
    )
