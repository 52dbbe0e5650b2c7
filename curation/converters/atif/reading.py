"""Parse the steps of an ATIF document: the screen and the action of each, and whether it may be trained on.

An action belongs to the last screen that was shown. Of several calls in a step, those with a screen between them are
steps of their own. Others are one action if they form one (a text and Enter), else one step with several actions. So
are the actions of one call: a text typed at a place is a click, keys that empty the field, and the text. If one of the
calls has no action, each is a step, and the steps after the first, for a screen that was not shown, are context.

A trajectory of another agent has at most one end. Calls of one step that end are one `finished`, on the screen before
the first. An end after which the agent acts or ends again (computer-1 asks to confirm it) is context: its answer, or
else its thought, as text.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from common.text import storable, strict_json
from curation.converters.atif.computer import DONE, GRID, LOOKS, NATIVE, TOOLS, codes_of, kind_of, shrunk
from curation.converters.atif.document import COMPUTER_1, OURS, AtifStep, CallResult, ToolCall, parts_of, text_of
from curation.converters.code import pointer_after, read_code
from curation.converters.exchanged import ExchangedStep, Picture, RecordPlace, RecordRefused, StepAbout
from curation.converters.files import ImportSource
from curation.converters.units import fraction_of
from models.families.code.calls import NoAction
from models.families.code.program import OutOfScreen, Point
from schemas.action import TYPES, Action, CallUser, Finished, Hotkey, Press, Release, action_of, numeric
from schemas.keyboard import chord, single
from schemas.problem import named_problem

FIRST = tuple(f"screenshot_init.{end}" for end in ("webp", "png", "jpg"))
"""Files with the screen of computer-1's first action, which its documents do not name."""
STARTED = "call_start_url_navigation"
"""Id of a call that computer-1 makes itself, before its first screen."""
PAIRS = (("x", "y"), ("to_x", "to_y"))
_PROMPT = re.compile(
    r"You are computer-1,.*?^Task instructions:\n(.*?)\n\nYou interact with the computer", re.DOTALL | re.MULTILINE
)
"""computer-1's prompt, which contains the instruction."""


@dataclass(frozen=True, slots=True)
class DocumentPictures:
    """The pictures that a document names, from its own folder or from that of the import."""

    source: ImportSource
    place: RecordPlace
    file: Path

    def of(self, path: str, where: str) -> Picture:
        """Return the picture of a path; raises RecordRefused as `ImportSource.picture` does."""
        folder = self.file.parent
        if folder != self.source.folder and folder.is_relative_to(self.source.folder):
            path_there = PurePosixPath(folder.relative_to(self.source.folder).as_posix(), path)
            try:
                return self.source.picture(str(path_there), self.place, where)
            except RecordRefused:
                pass
        return self.source.picture(_name(path), self.place, where)

    def first(self) -> Picture | None:
        """Return the screen of computer-1's first action."""
        found = next((name for name in FIRST if (self.file.parent / name).is_file()), None)
        return None if found is None else self.of(found, "steps")

    def screens_of(self, step: AtifStep, where: str) -> list[tuple[str | None, Picture]]:
        """Return the pictures of a step, each with the id of its call.

        Raises:
            RecordRefused: a picture has no file name, or several pictures belong to the same call or to no call.
        """
        found = list[tuple[str | None, Picture]]()
        for name, call, part in parts_of(step):
            if part.type == "image":
                if part.source is None:
                    raise RecordRefused(self.place, f"{where}.{name}.source", "an image without a source")
                found.append((call, self.of(part.source.path, f"{where}.{name}.source.path")))
        calls = {call for call, _ in found}
        if len(calls) < len(found) or (len(calls) > 1 and None in calls):
            raise RecordRefused(self.place, where, f"{len(found)} screens in one step")
        return found


End = Finished | CallUser
"""Actions that end a trajectory: with an answer, or with a declared failure."""


@dataclass(slots=True)
class DocumentReader:
    """Parses a document's steps in order."""

    agent: str
    unit: str
    place: RecordPlace
    pictures: DocumentPictures
    joins: bool = True
    """Whether calls of a step without a shown screen between them are one step with several actions."""
    asked: str = ""
    steps: list[ExchangedStep] = field(default_factory=list[ExchangedStep])
    screen: Picture | None = None
    """The last shown screen."""
    answered: bool = True
    """Whether a step of the agent followed this screen."""
    acted: bool = False
    """Whether an action was performed on this screen, so that the next action is for another screen."""
    words: list[int] = field(default_factory=list[int])
    """Numbers of steps with only words on this screen, which are context of an action on it."""
    pointer: Point | None = None
    first: Picture | None = None
    """The first screen, where the document does not name it."""
    final: tuple[int, ...] = ()
    """The numbers in `words` when the last step was a message without a call and without a reply; else empty."""
    act: int = -1
    """Number of the last step of a call."""

    @property
    def foreign(self) -> bool:
        """Whether another agent than this project's wrote the document."""
        return self.agent != OURS

    def take(self, step: AtifStep, where: str) -> None:
        """Parse a step; raises RecordRefused as `Atif` does."""
        shown = self.pictures.screens_of(step, where)
        if step.source == "agent":
            self._act(step, dict(shown), where)
        elif step.source == "user" and not self.asked.strip():
            asked = text_of(step.message)
            prompt = _PROMPT.match(asked) if self.agent == COMPUTER_1 else None
            self.asked = prompt[1] if prompt else asked
        for call, picture in shown:
            if call is None or step.source != "agent":
                self._show(picture)

    def ended(self) -> tuple[tuple[ExchangedStep, ...], Picture | None]:
        """Return all steps, and the screen after them."""
        if self.foreign and self.steps:
            self._settle_end()
        return tuple(self.steps), None if self.answered else self.screen

    def _settle_end(self) -> None:
        """Make the last call that ends the only end, or a final message where no call ends with an answer."""
        last, final = self._end_at(self.act), self.steps[-1]
        if self.final and not _is_settled(last):
            self._make_context(self.final[:-1])
            self.act = len(self.steps) - 1
            self.steps[-1] = replace(final, actions=(Finished(content=final.text),), text="", error=None)
        elif last:
            self._make_context(range(self.act + 1, len(self.steps)))
        for at in range(self.act):
            if end := self._end_at(at):
                self.steps[at] = _without_end(self.steps[at], end)
                self._make_context([at])

    def _end_at(self, number: int) -> End | None:
        """Return the end that a step is; None for another step or none."""
        action = self.steps[number].action if 0 <= number < len(self.steps) else None
        return action if isinstance(action, End) else None

    def _make_context(self, numbers: Iterable[int]) -> None:
        for at in numbers:
            self.steps[at] = replace(self.steps[at], about=StepAbout(target=False))

    def _show(self, picture: Picture) -> None:
        self.screen, self.answered, self.acted, self.words = picture, False, False, []

    def _act(self, step: AtifStep, shown: Mapping[str | None, Picture], where: str) -> None:
        results = {one.source_call_id: one for one in (step.observation.results if step.observation else [])}
        step = step.model_copy(update={"tool_calls": [call.ordered() for call in step.tool_calls or []]})
        calls = [one for one in step.tool_calls or [] if _status(results.get(one.tool_call_id)) != "not_executed"]
        message, thought = text_of(step.message), step.reasoning_content or ""
        if not calls:
            if self.screen is not None and (message or thought or not self.foreign):
                self._add(ExchangedStep(self.screen, thought, text=message, error="no tool call"), step)
                self.words.append(len(self.steps) - 1)
                self.final = () if step.tool_calls or any(map(_has_text, results.values())) else tuple(self.words)
            return
        thought = thought or (message if self.foreign else "")
        run, frames, begun = list[ToolCall](), list[Picture](), len(self.steps)
        for number, call in enumerate(calls):
            run.append(call)
            picture, result = shown.get(call.tool_call_id), results.get(call.tool_call_id)
            if picture is not None and result is not None and result.between:
                frames.append(picture)
                picture = None
            if picture is None and number + 1 < len(calls):
                continue
            for one in self._joined(self._performed(run, step, where), frames):
                self._make_context(self.words if self.foreign else ())
                tried = run if one.several else run[-1:]
                failures = (_failure(results.get(other.tool_call_id)) for other in tried)
                failed = one.error or next(filter(None, failures), None)
                self._perform(replace(one, thought=thought, error=failed), step, begun)
                thought = ""
            if picture is not None and not any(map(_zooms, run)):
                self._show(picture)
            run, frames = [], []

    def _joined(self, read: list[ExchangedStep], frames: Sequence[Picture]) -> list[ExchangedStep]:
        """Return the steps of calls on one screen as one step with several actions, and another agent's ends after it.

        Steps stay as they are if one of them has no action, or if an end is not the last.
        """
        ends = sum(self.foreign and isinstance(one.action, End) for one in read)
        acting = read[: len(read) - ends]
        actions = [one.action for one in acting if one.action and not (self.foreign and isinstance(one.action, End))]
        if not self.joins or len(actions) < 2 or len(actions) < len(acting):
            return read
        return [ExchangedStep(acting[0].screen, actions=tuple(actions), frames=tuple(frames)), *read[len(acting) :]]

    def _performed(self, run: Sequence[ToolCall], step: AtifStep, where: str) -> list[ExchangedStep]:
        """Parse calls without a screen between them: as one action, or as one action for each call."""
        acting = [call for call in run if not self._takes_screenshot(call) and call.tool_call_id != STARTED]
        if self.screen is None and acting and (first := self.pictures.first()) is not None:
            self._show(first)
            self.first = first
        if self.screen is None and any(map(self._is_action, acting)) and not step.context:
            raise RecordRefused(self.place, f"{where}.observation", "a step of the agent before any screen")
        if self.screen is None or not acting:
            return []
        if len(acting) > 1 and (action := self._single(acting, where)) is not None:
            return [ExchangedStep(self.screen, actions=(action,) if action else ())]
        numbers = [(step.tool_calls or []).index(call) for call in acting]
        steps = [self._read(call, f"{where}.tool_calls.{number}") for number, call in zip(numbers, acting, strict=True)]
        return [one for read in steps for one in read]

    def _add(self, step: ExchangedStep, of: AtifStep) -> None:
        """Add a step; if its screen was not shown, the step is context."""
        context = of.context or (self.foreign and self.acted)
        self.steps.append(replace(step, about=StepAbout(target=False)) if context else step)
        self.answered, self.final = True, ()

    def _perform(self, step: ExchangedStep, of: AtifStep, begun: int) -> None:
        """Add a step of a call. An end right behind another one of the same call list is the same end.

        Args:
            step: the call's screen and action.
            of: the document's step with the call list.
            begun: number of steps before that list.
        """
        end, same = step.action, self._end_at(len(self.steps) - 1)
        if isinstance(end, End) and same and len(self.steps) > begun:
            self.steps[-1] = replace(self.steps[-1], actions=(same if _is_settled(same) else end,))
            return
        self._add(step, of)
        self.act = len(self.steps) - 1
        self.acted = self.acted or not isinstance(end, End)

    def _native(self, call: ToolCall) -> bool:
        return self.agent == COMPUTER_1 and call.function_name in NATIVE

    def _is_action(self, call: ToolCall) -> bool:
        return call.function_name in (*TYPES, *TOOLS) or self._native(call)

    def _takes_screenshot(self, call: ToolCall) -> bool:
        """Whether a call only takes a screenshot."""
        if call.function_name not in (*TOOLS, *LOOKS) and not self._native(call):
            return False
        try:
            return kind_of(call.function_name, call.arguments)[0] in LOOKS
        except NoAction:
            return False

    def _single(self, calls: Sequence[ToolCall], where: str) -> Action | None:
        """Return the single action that calls of a computer tool form; None if they form several."""
        if not all(call.function_name in (*TOOLS, DONE) or self._native(call) for call in calls):
            return None
        assert self.screen is not None
        try:
            code = "\n".join(code for call in calls for code in self._codes(call))
            action, self.pointer = read_code(code, self._fraction(calls[0]), self.pointer)
        except NoAction:
            return None
        except OutOfScreen as error:
            raise RecordRefused(self.place, f"{where}.tool_calls", f"{error}") from error
        return action

    def _codes(self, call: ToolCall) -> list[str]:
        kind, fields = kind_of(call.function_name, call.arguments)
        if kind == "scroll" and call.function_name != "computer" and not {"x", "coordinate"} & fields.keys():
            assert self.screen is not None
            fields |= {"x": self.screen.width // 2, "y": self.screen.height // 2}
        if kind == "type" and call.function_name == "computer_action":  # its runtime types into the focused element
            fields = {name: value for name, value in fields.items() if name not in ("x", "y")}
        return codes_of(kind, fields)

    def _read(self, call: ToolCall, at: str) -> list[ExchangedStep]:
        """Return the steps of a call: one for each action, or one with the reason why there is no action."""
        assert self.screen is not None
        text = storable(f"{call.function_name}({strict_json(call.arguments, ensure_ascii=False)})")
        codes, actions = list[str](), list[Action]()
        try:
            if call.function_name in TYPES and not self._native(call):
                return [ExchangedStep(self.screen, actions=(_action(call, self.screen, self.unit),))]
            if call.function_name not in (*TOOLS, DONE) and not self._native(call):
                raise NoAction(f"not supported: {call.function_name[:80]}")
            codes = self._codes(call)
            pointer = self.pointer
            for code in codes:
                action, pointer = read_code(code, self._fraction(call), pointer)
                actions.append(action)
            self.pointer = pointer
            return [ExchangedStep(self.screen, actions=(action,) if action else ()) for action in actions]
        except ValidationError as error:
            return [ExchangedStep(self.screen, text=text, error=f"{named_problem(error)} in {text[:80]!r}")]
        except NoAction as error:
            if codes:
                self.pointer = pointer_after("\n".join(codes), self._fraction(call), self.pointer)
            return [ExchangedStep(self.screen, text=text, error=storable(str(error)))]
        except (ValueError, TypeError) as error:
            raise RecordRefused(self.place, f"{at}.arguments", f"{error}") from error

    def _fraction(self, call: ToolCall) -> Callable[[float, float], Point]:
        """Return a function from a call's coordinates to fractions of the screen."""
        assert self.screen is not None
        width, height = self.screen.width, self.screen.height
        across = down = 1.0
        if self._native(call) or call.arguments.get("source") == "normalized_completion":
            across, down = (width - 1) / GRID, (height - 1) / GRID
        elif self.agent == COMPUTER_1 and call.function_name == "computer":
            across = down = 1 / shrunk(width, height)

        def fraction(x: float, y: float) -> Point:
            return fraction_of(x * across, y * down, self.unit, width, height)

        return fraction


def _is_settled(end: End | None) -> bool:
    """Whether an end has an answer or declares a failure; later messages and ends of its step then change nothing."""
    return isinstance(end, CallUser) or (end is not None and bool(end.content))


def _without_end(step: ExchangedStep, end: End) -> ExchangedStep:
    """Return a step that ended as text: its answer, or else its thought."""
    answer = end.content if isinstance(end, Finished) else ""
    thought, text = (step.thought, answer) if answer else ("", step.thought)
    return replace(step, thought=thought, actions=(), text=text, error="no end: the agent went on after it")


def _status(result: CallResult | None) -> object:
    """Return computer-1's status of a call: `success`, `error` or `not_executed`."""
    return (result.extra or {}).get("execution_status") if result else None


def _failure(result: CallResult | None) -> str | None:
    """Return why a call could not be performed; None if it was performed or the reason is unknown."""
    if _status(result) != "error" or result is None:
        return None
    parts = result.content if isinstance(result.content, list) else []
    text = result.content if isinstance(result.content, str) else " ".join(part.text for part in parts if part.text)
    return storable(text)[:1000] or "the call failed"


def _has_text(result: CallResult) -> bool:
    """Whether a result has a text, to which a model has to reply."""
    if isinstance(result.content, str):
        return bool(result.content)
    return any(part.text for part in result.content or ())


def _zooms(call: ToolCall) -> bool:
    """Whether the picture after a call shows a part of the screen."""
    try:
        return kind_of(call.function_name, call.arguments)[0] in ("zoom", "zoom_region")
    except NoAction:
        return False


def _name(path: str) -> str:
    """Return a picture's name below the export's folder; documents of this project name it relative to their own
    folder."""
    return path.removeprefix("../") if path.startswith("../images/") else path


def _action(call: ToolCall, screen: Picture, unit: str) -> Action:
    fields = dict(call.arguments)
    for x, y in PAIRS:
        if x in fields and y in fields:
            at = float(numeric(fields[x])), float(numeric(fields[y]))
            fields[x], fields[y] = fraction_of(*at, unit, screen.width, screen.height)
    action = action_of({**fields, "type": call.function_name})
    if isinstance(action, Hotkey | Press | Release):
        try:
            (chord if isinstance(action, Hotkey) else single)(action.key)
        except ValueError as error:
            raise NoAction(str(error)) from error
    return action
