"""Perception data of a screen as annotations: the kinds that are asked for, from whoever knows what is on it.

Which screens of an iteration it is made of is drawn by what they show, so the same iteration gives the same data
however often it is gone through.
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
    """The screens that perception data is made of: `most` of all that pass by.

    A screen is known by its first step; those whose sha256 is least are kept, which is a draw that needs no state.
    """

    decisions: Mapping[str, TrajectoryRoute]
    """By trajectory; what is in quarantine or failed by its environment shows nothing that is learnt from."""
    most: int
    steps: dict[str, tuple[Step, Step | None]] = field(default_factory=dict[str, tuple[Step, Step | None]])
    """By screenshot: its step, and the one that follows."""

    def passing(self, trajectories: Iterable[Sequence[Step]]) -> Iterator[Sequence[Step]]:
        """Hands the steps of trajectories on, and looks at them."""
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
    """Every kind that is asked for, of one screen, and the pictures that were drawn for it; what stands where too, of a
    screen that was read off its pixels."""
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
    """sha256 of a picture, its name in the lake."""
    return hashlib.sha256(png).hexdigest()


def _row(step: Step, kind: Kind, screen: RecognisedScreen, one: Perceived, now: datetime, number: int) -> Annotation:
    place = None if one.place is None else to_json(Click(x=one.place[0], y=one.place[1]))
    made = annotation(step, kind, screen.author, one.answer, place, now, number)
    drawn = {} if one.picture is None else {"before": screen.digest, "after": picture_name(one.picture)}
    return made.model_copy(update={"question": one.question, **drawn})
