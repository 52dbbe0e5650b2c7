"""Make perception annotations of a screen, of the requested kinds, from the page's elements or a reader of pixels.

The screens of an iteration are sampled by their content, so the same iteration always gives the same data.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest

from curation.annotation import MOST_TARGETS, TrajectoryRoute, annotation, grounding_annotations
from curation.perception.caption import captions
from curation.perception.description import descriptions
from curation.perception.marks import marks
from curation.perception.question import questions
from curation.perception.screen import Perceived, RecognisedScreen
from schemas.action import Click, to_json
from schemas.tables.annotation import Annotation, Kind
from schemas.tables.step import Step

Maker = Callable[[RecognisedScreen, int], list[Perceived]]
MAKERS: Mapping[Kind, Maker] = {
    "description": descriptions,
    "caption": captions,
    "question": questions,
    "marks": marks,
}


@dataclass
class Chosen:
    """Sample of `most` screens, of all that pass by, for perception data.

    A screen is identified by its first step. The sample has the least sha256 values, so sampling needs no state.
    """

    decisions: Mapping[str, TrajectoryRoute]
    """Decisions by trajectory; quarantined ones and environment failures give no perception data."""
    most: int
    steps: dict[str, tuple[Step, Step | None]] = field(default_factory=dict[str, tuple[Step, Step | None]])
    """The step and its following one, by screenshot."""

    def passing(self, trajectories: Iterable[Sequence[Step]]) -> Iterator[Sequence[Step]]:
        """Pass the steps of trajectories on, and add their screens to the sample."""
        for steps in trajectories:
            decision = self.decisions.get(steps[0].trajectory_id) if steps else None
            if decision is not None and decision.route in ("sft", "ct"):
                for step, following in zip_longest(steps, steps[1:]):
                    self.steps.setdefault(step.screenshot, (step, following))
                self._keep()
            yield steps

    def _keep(self) -> None:
        for digest in sorted(self.steps)[self.most :]:
            del self.steps[digest]


def perceive(
    screen: RecognisedScreen, step: Step, kinds: Collection[str], most: int, now: datetime
) -> tuple[list[Annotation], list[bytes]]:
    """Make the annotations of a screen for every requested kind, and return them with the pictures drawn for them.

    A screen read from its pixels also gets grounding targets.
    """
    made: list[Annotation] = []
    pictures: list[bytes] = []
    if screen.author == "ocr":
        made += grounding_annotations(step, screen.elements, MOST_TARGETS, now, screen.author)
    for kind, maker in MAKERS.items():
        if kind in kinds:
            found = maker(screen, most)
            made += (_row(step, kind, screen, one, now, number) for number, one in enumerate(found))
            pictures += [one.picture for one in found[:1] if one.picture]
    return made, pictures


def picture_name(png: bytes) -> str:
    """Return the sha256 of a picture, its name in the lake."""
    return hashlib.sha256(png).hexdigest()


def _row(step: Step, kind: Kind, screen: RecognisedScreen, one: Perceived, now: datetime, number: int) -> Annotation:
    place = None if one.place is None else to_json(Click(x=one.place[0], y=one.place[1]))
    made = annotation(step, kind, screen.author, one.answer, place, now, number)
    drawn = {} if one.picture is None else {"before": screen.digest, "after": picture_name(one.picture)}
    return made.model_copy(update={"question": one.question, **drawn})
