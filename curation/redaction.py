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
from schemas.action import Action, Finished, Navigate, Type, point_of
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
        secrets = typed([(one.screen.sha256, one.action) for one in record.steps], screens)
        known = long_enough(secrets)
        about = record.about.model_copy(
            update={
                "failure_reason": record.about.failure_reason and self.text(record.about.failure_reason, known),
                "extra": self.value(record.about.extra, known),
            }
        )
        after = record.after
        if after is not None and after.sha256 not in screens:
            after, self.left_out = None, self.left_out + 1
        return replace(
            record,
            name=self.text(record.name, known),
            instruction=self.text(record.instruction, known),
            steps=tuple(self._step(step, screens, secrets, known) for step in record.steps),
            after=after and self.picture(after, screens, known),
            about=about,
            extra=self.value(record.extra, known),
        )

    def _step(
        self, step: ExchangedStep, screens: Screens, secrets: frozenset[str], known: frozenset[str]
    ) -> ExchangedStep:
        found = step.found and replace(step.found, reflection=self.text(step.found.reflection, known))
        about = step.about.model_copy(
            update={
                "error": step.about.error and self.text(step.about.error, known),
                "extra": self.value(step.about.extra, known),
            }
        )
        return replace(
            step,
            screen=self.picture(step.screen, screens, known),
            thought=self.text(step.thought, known),
            action=step.action and self.action(step.action, secrets, known),
            text=self.text(step.text, known),
            error=step.error and self.text(step.error, known),
            found=found,
            about=about,
            extra=self.value(step.extra, known),
        )

    def action(self, action: Action, secrets: frozenset[str], known: frozenset[str]) -> Action:
        """The action with its words redacted: what is typed, an address, a last message.

        Args:
            action: any.
            secrets: everything that was typed into a password field.
            known: those of them that are looked for within other words.
        """
        if not isinstance(action, Type | Navigate | Finished):
            return action
        whole = known | {action.content.rstrip("\n")} if action.content.rstrip("\n") in secrets else known
        text = self.text(action.content, whole)
        return action if text == action.content else action.model_copy(update={"content": text})

    def text(self, text: str, secrets: frozenset[str]) -> str:
        """The text without what is found in it, and without these secrets."""
        left, kinds = without(text, secrets)
        self.texts.update(kinds)
        return left

    def value(self, value: Any, secrets: frozenset[str]) -> Any:
        """The same in all texts of a JSON value; keys stay."""
        if isinstance(value, str):
            return self.text(value, secrets)
        if isinstance(value, Mapping):
            held = cast(Mapping[str, Any], value)
            return {key: self.value(one, secrets) for key, one in held.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, secrets) for one in cast(Sequence[Any], value)]
        return value

    def picture(self, picture: Picture, screens: Screens, secrets: frozenset[str]) -> Picture:
        """The picture with every box painted over that shows what is found, or one of these secrets."""
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


def long_enough(secrets: frozenset[str]) -> frozenset[str]:
    """Those that may be looked for within other words."""
    return frozenset(one for one in secrets if len(one) >= LEAST)


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


def typed(steps: Sequence[tuple[str, Action | None]], screens: Screens) -> frozenset[str]:
    """What was typed into password fields: where the last click was on one, or one held it on a later screen.

    Args:
        steps: of one trajectory, in order: sha256 of the screen, and the action.
        screens: what they show.
    """
    found: set[str] = set()
    aimed: Element | None = None
    for screen, action in steps:
        shown = screens.get(screen, ())
        found |= {one.value for one in shown if one.kind == PASSWORD and one.value}
        if action is None:
            continue
        if (point := point_of(action)) is not None:
            aimed = element_at(point, shown)
        elif isinstance(action, Type) and aimed is not None and aimed.kind == PASSWORD:
            found.add(action.content.rstrip("\n"))
    return frozenset(one for one in found if one)
