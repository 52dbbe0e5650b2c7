"""Remove secrets and personal data from exported trajectories: from their texts and from their pixels.

A picture's text is known if its page lists elements or a reader has read it (table `readings`). Boxes with secret text
are painted over. Text typed into a password field is a secret everywhere in the trajectory. The redactor counts
removals, and pictures of unknown text.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from PIL import ImageDraw

from common.picture import rgb_of
from curation.converters.exchanged import Correction, Exchanged, ExchangedStep, Picture, Sampled
from curation.forms import called
from curation.private import Secrets, placeholder, without
from schemas.action import (
    Action,
    CallUser,
    Finished,
    Navigate,
    Note,
    ReadFile,
    Terminal,
    Type,
    UseTool,
    WriteFile,
    from_json,
    point_of,
    to_json,
)
from schemas.observation import Element, element_at

PASSWORD = "password field"
Screens = Mapping[str, Sequence[Element]]
"""Elements of pictures by sha256; a picture without an entry has unknown text."""

_NUMBER = r"-?\d{1,5}(?:\.\d{1,17})?"
_PLACE = rf"[(\[]{{0,2}}{_NUMBER}(?:[\s,()\[\]]{{1,4}}{_NUMBER}){{0,7}}[)\]]{{0,2}}"
_ARGUMENT = rf"(?:\w{{1,20}}\s?=\s?)?['\"]?(?:<[a-z_|]{{2,14}}>)?\s?{_PLACE}\s?(?:<[/a-z_|]{{2,14}}>)?['\"]?"
COORDINATES = re.compile(
    rf"<\|?(?:bbox|box|point|box_start|point_start)\|?>\s?{_PLACE}\s?<"
    rf"|\b(?:\w{{0,10}}[cC]lick|(?:left|middle|right|mouse)_\w{{1,10}}|long_press|drag|scroll|swipe|tap|hover|move)\w{{0,10}}"
    rf"\({_ARGUMENT}(?:,\s?{_ARGUMENT}){{0,3}}"
)
"""Text between the parentheses of an action that points, and in the tokens of boxes and points."""
NUMBERED = re.compile(
    r"(?:^|_)(?:ids?|uuid|seed|size|width|height|resolution|step|index|time|times|timestamps?|ts|date|at|ms|us|ns"
    r"|hash|sha256|bbox|box|boxes|points?|coordinates?|position|images?|screenshots?|files?|paths?)$"
)
"""Field names of ids, times, sizes, places and files, in all formats."""
TYPED = "typed"
VERBATIM = frozenset({TYPED, "content", "text", "message", "value"})
"""Fields that may consist of only typed text."""


class Redactor:
    """Redacts trajectories, and counts removals."""

    def __init__(self) -> None:
        self.texts = Counter[str]()
        """Number of removals from texts, by kind."""
        self.painted: set[str] = set()
        """Pictures (sha256) with painted boxes."""
        self.unread: set[str] = set()
        """Exported pictures of unknown text (sha256)."""
        self.regions = 0
        """Number of painted boxes."""
        self.left_out = 0
        """Number of screens after a last step or between actions that are left out, since their text is unknown."""
        self._made: dict[tuple[str, Secrets], Picture] = {}

    def numbers(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "texts": dict(sorted(self.texts.items())),
            "pictures": len(self.painted),
            "regions": self.regions,
            "unread_pictures": len(self.unread),
            "left_out": self.left_out,
        }

    def record(self, record: Exchanged, screens: Screens) -> Exchanged:
        """Redact a trajectory."""
        secrets = typed([one for step in record.steps for one in _typing(step, screens)], screens)
        about = record.about.model_copy(
            update={
                "failure_reason": record.about.failure_reason and self.text(record.about.failure_reason, secrets),
                "reason": self.text(record.about.reason, secrets),
                "extra": self.value(record.about.extra, secrets),
            }
        )
        after = record.after
        if after is not None and after.sha256 not in screens:
            after, self.left_out = None, self.left_out + 1
        instruction = self.text(record.instruction, secrets)
        steps = [self._step(step, screens, secrets) for step in record.steps]
        return replace(
            record,
            name=self.text(record.name, secrets, "id"),
            instruction=instruction,
            steps=tuple(_without_tokens(record, steps, instruction == record.instruction)),
            after=after and self.picture(after, screens, secrets),
            about=about,
            extra=self.value(record.extra, secrets),
            questions=tuple(one for one in record.questions if self.text(one.name, secrets) == one.name),
        )

    def _step(self, step: ExchangedStep, screens: Screens, secrets: Secrets) -> ExchangedStep:
        found = step.found and replace(step.found, reflection=self.text(step.found.reflection, secrets))
        about = step.about.model_copy(
            update={
                "error": step.about.error and self.text(step.about.error, secrets),
                "correction": step.about.correction and self._correction(step.about.correction, secrets),
                "extra": self.value(step.about.extra, secrets),
            }
        )
        frames = step.frames
        if any(one.sha256 not in screens for one in frames):  # a part of them would be taken for the first ones
            frames, self.left_out = (), self.left_out + len(frames)
        return replace(
            step,
            screen=self.picture(step.screen, screens, secrets),
            frames=tuple(self.picture(one, screens, secrets) for one in frames),
            thought=self.text(step.thought, secrets),
            better=self.text(step.better, secrets),
            actions=tuple(self.action(one, secrets) for one in step.actions),
            text=self.text(step.text, secrets),
            error=step.error and self.text(step.error, secrets),
            found=found,
            about=about,
            extra=self.value(step.extra, secrets),
            sampled=_clean(step.sampled, secrets),
        )

    def _correction(self, one: Correction, secrets: Secrets) -> Correction:
        action = to_json(self.action(from_json(one.action), secrets))
        return one.model_copy(update={"action": action, "thought": self.text(one.thought, secrets)})

    def action(self, action: Action, secrets: Secrets) -> Action:
        """Redact an action's words: typed or written text, a command, a path, an address, a note, a last
        message, a tool's arguments."""
        if isinstance(action, UseTool):
            arguments = self._arguments(action.arguments, secrets)
            return action if arguments == action.arguments else action.model_copy(update={"arguments": arguments})
        if not isinstance(action, Type | Navigate | Note | Finished | CallUser | Terminal | ReadFile | WriteFile):
            return action
        held = action.model_dump(exclude={"type"})
        texts = {name: self.text(value, secrets, TYPED) for name, value in held.items()}
        return action if texts == held else action.model_copy(update=texts)

    def _arguments(self, value: Any, secrets: Secrets) -> Any:
        """Redact the values of a tool's arguments as typed text; a number with a secret becomes text."""
        if isinstance(value, Mapping):
            held = cast(Mapping[str, Any], value)
            return {key: self._arguments(one, secrets) for key, one in held.items()}
        if isinstance(value, list):
            return [self._arguments(one, secrets) for one in cast(list[Any], value)]
        if value is None or isinstance(value, bool):
            return value
        left = self.text(str(value), secrets, TYPED)
        return value if left == str(value) else left

    def text(self, text: str, secrets: Secrets, field: str = "") -> str:
        """Redact a text, and remove these secrets from it.

        Args:
            text: any text.
            secrets: known passwords.
            field: name of the text's field. Numbers in ids and times stay; in a field of typed text, secrets of any
                length are removed.
        """
        plain = text.rstrip("\n")
        if plain and ((field in VERBATIM and plain in secrets.all) or called(field, plain) == len(plain)):
            self.texts["password"] += 1
            return placeholder("password") + text[len(plain) :]
        whole = NUMBERED.search(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", field).lower())
        places = [one.span() for one in COORDINATES.finditer(text)] if field != TYPED else []
        left, kinds = without(text, secrets, [(0, len(text))] if whole else places)
        self.texts.update(kinds)
        return left

    def value(self, value: Any, secrets: Secrets, field: str = "") -> Any:
        """Redact all texts of a JSON value; keys stay."""
        if isinstance(value, str):
            return self.text(value, secrets, field)
        if isinstance(value, Mapping):
            held = cast(Mapping[str, Any], value)
            return {key: self.value(one, secrets, key) for key, one in held.items()}
        if isinstance(value, list | tuple):
            return [self.value(one, secrets, field) for one in cast(Sequence[Any], value)]
        return value

    def picture(self, picture: Picture, screens: Screens, secrets: Secrets) -> Picture:
        """Paint over every box of a picture that shows personal data or one of these secrets."""
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
    """Paint over boxes of a picture, given in fractions of it; a pixel more on every side."""
    shown = rgb_of(picture.png)
    draw = ImageDraw.Draw(shown)
    for left, top, right, bottom in boxes:
        corners = (left * shown.width - 1, top * shown.height - 1, right * shown.width + 1, bottom * shown.height + 1)
        draw.rectangle(corners, fill="black")
    made = io.BytesIO()
    shown.save(made, "PNG")
    return Picture(made.getvalue(), picture.width, picture.height, picture.original or picture.sha256)


def _clean(sampled: Sampled | None, secrets: Secrets) -> Sampled | None:
    """Return the tokens of a reply; None if its text has a secret."""
    if sampled is None or without(sampled.text, secrets, [one.span() for one in COORDINATES.finditer(sampled.text)])[1]:
        return None
    return sampled


def _without_tokens(record: Exchanged, steps: Sequence[ExchangedStep], clean: bool) -> Iterator[ExchangedStep]:
    """Drop the tokens of each reply and each prompt that contain removed text, and yield the redacted steps.

    Args:
        record: the original trajectory.
        steps: its steps, redacted.
        clean: whether the instruction is unchanged.
    """
    for before, after in zip(record.steps, steps, strict=True):
        same = (before.thought, before.actions, before.text) == (after.thought, after.actions, after.text)
        sampled = after.sampled if same else None
        yield replace(after, sampled=sampled if clean or sampled is None else replace(sampled, prompt_ids=None))
        clean = clean and same and (before.sampled is None) == (sampled is None)


def _typing(step: ExchangedStep, screens: Screens) -> list[tuple[str, Action | None]]:
    """Return a step's screens and the actions on them: a reviewer's correction that types, then the recorded ones.

    A screen between two actions of which no elements are known counts as the step's screen, which probably has the same
    fields.
    """
    given, first = step.about.correction and from_json(step.about.correction.action), step.screen.sha256
    shown = [(screen.sha256, one) for screen, one in step.acted]
    recorded = [(name if name in screens else first, one) for name, one in shown]
    return [(first, given if isinstance(given, Type) else None), *recorded]


def typed(steps: Sequence[tuple[str, Action | None]], screens: Screens) -> Secrets:
    """Find the passwords: text typed after a click on a password field, or the content of a password field on a later
    screen.

    Args:
        steps: ordered steps of one trajectory, as the sha256 of the screen and the action.
        screens: elements of the screens.
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
    return Secrets(frozenset(one for one in found if one))
