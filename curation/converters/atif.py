"""ATIF, the Agent Trajectory Interchange Format of Harbor (RFC 0001, v1.8): a JSON file per trajectory.

The first step is the user's: the instruction and the first screen. An agent's step is a tool call, named as our
actions are with their fields as arguments (in fractions), the thought as `reasoning_content`, and the screen after it
as the observation. What an agent of others does before any screen, such as asking for one, is no step. Files of other
agents are read where their calls have these names; a file that came as one goes as it came.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    Picture,
    Place,
    Refused,
    metadata_of,
    with_metadata,
)
from curation.converters.files import Source, Target, line_of, model_of
from curation.converters.format import Format, Read
from curation.converters.units import fraction_of
from schemas.action import TYPES, Action, action_of, numeric
from schemas.problem import named_problem
from schemas.text import Storable, storable

FOLDER, VERSION = "trajectories", "ATIF-v1.8"
PAIRS = (("x", "y"), ("to_x", "to_y"))


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class _Call(_Open):
    tool_call_id: str
    function_name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class _ImageSource(_Open):
    path: str


class _Part(_Open):
    type: Literal["text", "image", "audio"]
    text: Storable | None = None
    source: _ImageSource | None = None


class _Result(_Open):
    content: str | list[_Part] | None = None


class _Observation(_Open):
    results: list[_Result] = []


class _Step(_Open):
    source: Literal["system", "user", "agent"]
    message: Storable | list[_Part] = ""
    reasoning_content: Storable | None = None
    tool_calls: list[_Call] | None = None
    observation: _Observation | None = None


class _Extra(_Open):
    flywheel: Metadata | None = None


class _Document(_Open):
    schema_version: str
    trajectory_id: Storable | None = None
    session_id: Storable | None = None
    steps: list[_Step]
    extra: _Extra | None = None


class Atif(Format):
    """A folder of documents and a folder of pictures."""

    name = "atif"

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """One document per trajectory."""
        for number, record in enumerate(records):
            target.write(f"{FOLDER}/{number:06d}.json", line_of(self._document(record, target)).encode())

    def _document(self, record: Exchanged, target: Target) -> dict[str, Any]:
        kept, metadata = record.extra.get(self.name, {}), metadata_of(record, self.name, self.unit)
        if kept:
            for picture in [step.screen for step in record.steps] + ([record.after] if record.after else []):
                target.picture(picture)
            document: dict[str, Any] = kept["document"]
            own = {**metadata, "unit": kept["unit"]}
            return {**document, "extra": {**(document.get("extra") or {}), OWN: own}}
        about = record.about
        agent = {"name": "flywheel", "version": "1", "model_name": about.policy_version or "unknown"}
        asked = [{"type": "text", "text": record.instruction}, _image(record.steps[0].screen, target)]
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": asked}]
        for number, step in enumerate(record.steps):
            after = record.steps[number + 1].screen if number + 1 < len(record.steps) else record.after
            steps.append(_agent_step(number, step, after, target))
        names = {"session_id": about.lake or "flywheel", "trajectory_id": record.name}
        return {"schema_version": VERSION, **names, "agent": agent, "steps": steps, "extra": {OWN: metadata}}

    def records(self, source: Source) -> Read:
        """One trajectory per document."""
        inner = source.folder / FOLDER
        folder = source.path.is_dir() and inner.is_dir()
        files = sorted(inner.glob("*.json")) if folder else source.files(".json")
        for file in files:
            place, value = source.document(file)
            try:
                yield place, self._record(model_of(_Document, value, place), source, place)
            except Refused as refused:
                yield place, refused

    def _record(self, document: _Document, source: Source, place: Place) -> Exchanged:
        known = document.extra.flywheel if document.extra else None
        unit = self.unit_of(known, source, place)
        asked, screen, answered = "", None, True
        steps: list[ExchangedStep] = []
        for number, step in enumerate(document.steps):
            where = f"steps.{number}"
            if step.source == "agent" and screen is not None:
                steps.append(_read(step, screen, unit, place, where))
                answered = True
            elif step.source == "agent" and _acts(step):
                raise Refused(place, f"{where}.observation", "a step of the agent before any screen")
            elif step.source == "user" and not asked:
                asked = _text(step.message)
            shown = list(_shown(step, source, place, where))
            if len(shown) > 1:
                raise Refused(place, where, f"{len(shown)} screens in one step")
            if shown:
                screen, answered = shown[0], False
        if not asked:
            raise Refused(place, "steps", "no step of the user says what is asked")
        kept: dict[str, Any] = {}
        if known is None:
            kept = {"document": _renamed(document, source, place), "unit": unit}
        name = document.trajectory_id or document.session_id or place.file
        after = None if answered else screen
        record = Exchanged(name, asked, tuple(steps), after=after, extra={self.name: kept} if kept else {})
        return with_metadata(record, known, place)


def _agent_step(number: int, step: ExchangedStep, after: Picture | None, target: Target) -> dict[str, Any]:
    call = f"call_{number}"
    written: dict[str, Any] = {"step_id": number + 2, "source": "agent", "message": step.text}
    if step.thought:
        written["reasoning_content"] = step.thought
    results: list[dict[str, Any]] = [{"content": [_image(after, target)]}] if after else []
    if step.action is not None:
        fields = step.action.model_dump(exclude={"type"})
        written["tool_calls"] = [{"tool_call_id": call, "function_name": step.action.type, "arguments": fields}]
        results = [{"source_call_id": call, **result} for result in results]
    if results:
        written["observation"] = {"results": results}
    return written


def _image(picture: Picture, target: Target) -> dict[str, Any]:
    """A picture, named from the document's folder."""
    return {"type": "image", "source": {"media_type": "image/png", "path": f"../{target.picture(picture)}"}}


def _text(message: str | list[_Part]) -> str:
    return message if isinstance(message, str) else "\n".join(part.text for part in message if part.text)


def _parts(step: _Step) -> Iterator[tuple[str, _Part]]:
    """The parts of a step, its observation's last."""
    if isinstance(step.message, list):
        yield from ((f"message.{at}", part) for at, part in enumerate(step.message))
    for number, result in enumerate(step.observation.results if step.observation else []):
        if isinstance(result.content, list):
            parts = enumerate(result.content)
            yield from ((f"observation.results.{number}.content.{at}", part) for at, part in parts)


def _shown(step: _Step, source: Source, place: Place, where: str) -> Iterator[Picture]:
    for field, part in _parts(step):
        if part.type == "image" and part.source:
            yield source.picture(_name(part.source.path), place, f"{where}.{field}.source.path")


def _name(path: str) -> str:
    """A picture's name below the export's folder: documents of ours name it from their own."""
    return path.removeprefix("../") if path.startswith("../images/") else path


def _renamed(document: _Document, source: Source, place: Place) -> dict[str, Any]:
    """The document as it came, its pictures named as an export names them."""
    copy = document.model_copy(deep=True)
    for number, step in enumerate(copy.steps):
        for field, part in _parts(step):
            if part.type == "image" and part.source:
                picture = source.picture(_name(part.source.path), place, f"steps.{number}.{field}")
                part.source = part.source.model_copy(update={"path": f"../images/{picture.sha256}.png", **PNG})
    return copy.model_dump(mode="json", exclude_unset=True)


PNG = {"media_type": "image/png"}


def _read(step: _Step, screen: Picture, unit: str, place: Place, where: str) -> ExchangedStep:
    calls, thought = step.tool_calls or [], step.reasoning_content or ""
    message = _text(step.message)
    if len(calls) != 1:
        error = f"{len(calls)} tool calls, one is an action" if calls else "no tool call"
        text = message if not calls else storable(str([call.model_dump() for call in calls]))
        return ExchangedStep(screen, thought, text=text, error=error)
    try:
        action = _action(calls[0], screen, unit)
    except ValidationError as error:
        text = storable(f"{calls[0].function_name}({calls[0].arguments})")
        return ExchangedStep(screen, thought, text=text, error=f"{named_problem(error)} in {text[:80]!r}")
    except (ValueError, TypeError) as error:
        raise Refused(place, f"{where}.tool_calls.0.arguments", f"{error}") from error
    return ExchangedStep(screen, thought, action)


def _acts(step: _Step) -> bool:
    """Whether a step does what is no mere asking for the screen: a call that has the name of an action."""
    return any(call.function_name in TYPES for call in step.tool_calls or [])


def _action(call: _Call, screen: Picture, unit: str) -> Action:
    fields = dict(call.arguments)
    for x, y in PAIRS:
        if x in fields and y in fields:
            at = float(numeric(fields[x])), float(numeric(fields[y]))
            fields[x], fields[y] = fraction_of(*at, unit, screen.width, screen.height)
    return action_of({**fields, "type": call.function_name})
