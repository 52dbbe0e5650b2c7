"""Takes secrets and personal data out of trajectories that leave the house: out of their texts and out of their pixels.

A picture's text is known where its page lists its elements or a reader has read it (table `readings`); a box that shows
what must not be shown is painted over. What was typed into a password field is a secret wherever it stands in the
trajectory. What was taken out is counted, and so are pictures whose text nobody knows.
"""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from PIL import Image, ImageDraw

from curation.converters.exchanged import Exchanged, ExchangedStep, Picture
from curation.private import without
from schemas.action import Action, point_of
from schemas.observation import Element, element_at

PASSWORD = "password field"
LEAST = 4
"""Characters of a password that is looked for everywhere; a shorter one is in many words."""
Screens = Mapping[str, Sequence[Element]]
"""By sha256 of a picture, what it shows; of a picture that is not here nobody knows."""


class Redactor:
    """Redacts one trajectory after the other, and keeps count."""

    def __init__(self) -> None:
        self.texts = Counter[str]()
        """What was taken out of texts, by kind."""
        self.painted: set[str] = set()
        """Pictures (sha256) that something was painted over in."""
        self.unread: set[str] = set()
        """Pictures that are exported although nobody knows their text."""
        self.regions = 0
        """Boxes painted over."""
        self.left_out = 0
        """Screens after a last step, left out because nobody knows their text."""
        self._made: dict[tuple[str, frozenset[str]], Picture] = {}

    def numbers(self) -> dict[str, Any]:
        """The count, for a program."""
        return {
            "texts": dict(sorted(self.texts.items())),
            "pictures": len(self.painted),
            "regions": self.regions,
            "unread_pictures": len(self.unread),
            "left_out": self.left_out,
        }

    def record(self, record: Exchanged, screens: Screens) -> Exchanged:
        """The trajectory without what is found in it."""
        secrets = _typed(record.steps, screens)
        known = frozenset(one for one in secrets if len(one) >= LEAST)
        about = record.about.model_copy(
            update={
                "failure_reason": record.about.failure_reason and self._text(record.about.failure_reason, known),
                "extra": self._value(record.about.extra, known),
            }
        )
        after = record.after
        if after is not None and after.sha256 not in screens:
            after, self.left_out = None, self.left_out + 1
        return replace(
            record,
            name=self._text(record.name, known),
            instruction=self._text(record.instruction, known),
            steps=tuple(self._step(step, screens, secrets, known) for step in record.steps),
            after=after and self._picture(after, screens, known),
            about=about,
            extra=self._value(record.extra, known),
        )

    def _step(
        self, step: ExchangedStep, screens: Screens, secrets: frozenset[str], known: frozenset[str]
    ) -> ExchangedStep:
        found = step.found and replace(step.found, reflection=self._text(step.found.reflection, known))
        about = step.about.model_copy(
            update={
                "error": step.about.error and self._text(step.about.error, known),
                "extra": self._value(step.about.extra, known),
            }
        )
        return replace(
            step,
            screen=self._picture(step.screen, screens, known),
            thought=self._text(step.thought, known),
            action=step.action and self._action(step.action, secrets, known),
            text=self._text(step.text, known),
            error=step.error and self._text(step.error, known),
            found=found,
            about=about,
            extra=self._value(step.extra, known),
        )

    def _action(self, action: Action, secrets: frozenset[str], known: frozenset[str]) -> Action:
        """Its words: what is typed, an address, a last message."""
        if action.type not in ("type", "navigate", "finished"):
            return action
        whole = known | {action.content.rstrip("\n")} if action.content.rstrip("\n") in secrets else known
        text = self._text(action.content, whole)
        return action if text == action.content else action.model_copy(update={"content": text})

    def _text(self, text: str, secrets: frozenset[str]) -> str:
        left, kinds = without(text, secrets)
        self.texts.update(kinds)
        return left

    def _value(self, value: Any, secrets: frozenset[str]) -> Any:
        """The same in all texts of a JSON value; keys stay."""
        if isinstance(value, str):
            return self._text(value, secrets)
        if isinstance(value, Mapping):
            held = cast(Mapping[str, Any], value)
            return {key: self._value(one, secrets) for key, one in held.items()}
        if isinstance(value, list | tuple):
            return [self._value(one, secrets) for one in cast(Sequence[Any], value)]
        return value

    def _picture(self, picture: Picture, screens: Screens, secrets: frozenset[str]) -> Picture:
        name = picture.sha256
        if name not in screens:
            self.unread.add(name)
            return picture
        key = (name, secrets)
        if key not in self._made:
            boxes = [one.box for one in screens[name] if without(f"{one.name}\n{one.value}", secrets)[1]]
            self._made = {key: painted(picture, boxes) if boxes else picture}
            if boxes and name not in self.painted:
                self.painted.add(name)
                self.regions += len(boxes)
        return self._made[key]


def painted(picture: Picture, boxes: Sequence[tuple[float, float, float, float]]) -> Picture:
    """The picture with these boxes, in fractions of it, painted over; a pixel more on every side."""
    with Image.open(io.BytesIO(picture.png)) as image:
        shown = image.convert("RGB")
    draw = ImageDraw.Draw(shown)
    for left, top, right, bottom in boxes:
        corners = (left * shown.width - 1, top * shown.height - 1, right * shown.width + 1, bottom * shown.height + 1)
        draw.rectangle(corners, fill="black")
    made = io.BytesIO()
    shown.save(made, "PNG")
    return Picture(made.getvalue(), picture.width, picture.height)


def _typed(steps: Sequence[ExchangedStep], screens: Screens) -> frozenset[str]:
    """What was typed into password fields: where the last click was on one, or one held it on a later screen."""
    found: set[str] = set()
    aimed: Element | None = None
    for step in steps:
        shown = screens.get(step.screen.sha256, ())
        found |= {one.value for one in shown if one.kind == PASSWORD and one.value}
        if step.action is None:
            continue
        if (point := point_of(step.action)) is not None:
            aimed = element_at(point, shown)
        elif step.action.type == "type" and aimed is not None and aimed.kind == PASSWORD:
            found.add(step.action.content.rstrip("\n"))
    return frozenset(one for one in found if one)
