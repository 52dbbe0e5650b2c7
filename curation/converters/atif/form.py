"""Read and write ATIF, Harbor's Agent Trajectory Interchange Format (RFC 0001, v1.8): a JSON file per trajectory.

The first step is the user's: the instruction and the first screen. An agent's step has a tool call for each action: its
name is an action type of this project, and its arguments are the action's fields, in fractions. The thought is
`reasoning_content`, and the next screen is the observation; a screen between two actions is the result of the first
one, with `between_actions`. The metrics have the tokens of the prompt and of the reply,
with their log-probs. Another agent's actions before the first screen, such as asking for a screen, are no steps. Files
of other agents are parsed if their calls have these names or belong to a computer tool
(`curation.converters.atif.computer`). An imported document is exported unchanged.

Source: harbor 0.26.0, `harbor/models/trajectories` (ATIF v1.8).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from curation.converters.atif.computer import DONE, TOOLS, kind_of
from curation.converters.atif.document import (
    BETWEEN,
    COMPUTER_1,
    OURS,
    ContentPart,
    Document,
    ImageSource,
    parts_of,
    text_of,
)
from curation.converters.atif.reading import DocumentPictures, DocumentReader
from curation.converters.code import stated_outcome
from curation.converters.exchanged import (
    OWN,
    About,
    Exchanged,
    ExchangedStep,
    Picture,
    RecordPlace,
    RecordRefused,
    instructed,
    metadata_of,
    with_metadata,
)
from curation.converters.files import ImportSource, Target, fields_of, items_of, line_of, model_of
from curation.converters.format import Format, Read
from curation.converters.search import is_visible
from models.families.code.calls import NoAction, is_unset
from schemas.action import TYPES

FOLDER, VERSION = "trajectories", "ATIF-v1.8"
NAME = "trajectory.json"
"""Harbor's and cua-bench's name of a document, which has its own folder."""
RESULT = "result.json"
"""Harbor's and cua-bench's name of the trial's result, in the same folder or its parent."""


class Atif(Format):
    """ATIF's format: a folder of documents and a folder of pictures."""

    name = "atif"
    theirs = ("pixels", "fraction", "thousandths")
    several = True
    prompts = True

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write one document per trajectory."""
        for number, record in enumerate(records):
            target.write(f"{FOLDER}/{number:06d}.json", line_of(self._document(record, target)).encode())

    def _document(self, record: Exchanged, target: Target) -> dict[str, Any]:
        kept, metadata = record.extra.get(self.name, {}), metadata_of(record, self.name, self.unit)
        if kept:
            document = _carried(kept["document"], record, target)
            own = {**metadata, "unit": kept["unit"]}
            return {**document, "extra": {**(document.get("extra") or {}), OWN: own}}
        about = record.about
        agent = {"name": OURS, "version": "1", "model_name": about.policy_version or "unknown"}
        asked = [{"type": "text", "text": record.instruction}, _image(record.steps[0].screen, target)]
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": asked}]
        for number, step in enumerate(record.steps):
            after = record.steps[number + 1].screen if number + 1 < len(record.steps) else record.after
            copied = {"is_copied_context": True} if about.continues and number < about.replayed else {}
            steps.append({**_agent_step(number, step, after, target), **copied})
        names = {"session_id": about.lake or OURS, "trajectory_id": record.name}
        return {"schema_version": VERSION, **names, "agent": agent, "steps": steps, "extra": {OWN: metadata}}

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per document."""
        for file in _documents(source):
            place, value = source.document(file)
            try:
                yield place, self._record(model_of(Document, value, place), source, place, file)
            except RecordRefused as refused:
                yield place, refused

    def _record(self, document: Document, source: ImportSource, place: RecordPlace, file: Path) -> Exchanged:
        known = document.extra.flywheel if document.extra else None
        calls = [call.function_name for step in document.steps for call in step.tool_calls or ()]
        usual = "pixels" if any(name in TOOLS for name in calls) or document.agent.name == COMPUTER_1 else None
        acting = document.agent.name in (OURS, COMPUTER_1) or any(name in (*TYPES, *TOOLS) for name in calls)
        unit = self.unit_of(known, source, place, usual or (None if acting else self.unit))
        pictures = DocumentPictures(source, place, file)
        reading = _reading(document, unit, place, pictures)
        steps, after = reading.ended()
        if known and len(known.steps) > len(steps):  # an export of a lake that has a step for each call
            reading = _reading(document, unit, place, pictures, joins=False)
            steps, after = reading.ended()
        kept: dict[str, Any] = {}
        success, about = None, About()
        if known is None:
            kept = {"document": _renamed(document, pictures, reading.first), "unit": unit}
            reward = _reward(document, source, file)
            success = _stated(document, steps) if reward is None else reward >= 1.0
            about = About(reward=reward if reward is not None and -1.0 <= reward <= 1.0 else None)
        name = document.trajectory_id or document.session_id or place.file
        extra = {self.name: kept} if kept else {}
        record = Exchanged(name, reading.asked, steps, success, after=after, about=about, extra=extra)
        return with_metadata(record, known, place)


def _stated(document: Document, steps: Sequence[ExchangedStep]) -> bool | None:
    """Return the outcome that the status of a last `terminate` states; None if there is none."""
    calls = [one for step in document.steps for one in step.tool_calls or () if one.function_name != DONE]
    actions = steps[-1].actions if steps else ()
    try:
        kind, fields = kind_of(calls[-1].function_name, calls[-1].arguments) if calls else ("", {})
    except NoAction:
        return None
    return None if is_unset(fields.get("status")) or not actions else stated_outcome(actions[-1], kind)


def _reading(
    document: Document, unit: str, place: RecordPlace, pictures: DocumentPictures, joins: bool = True
) -> DocumentReader:
    """Parse all steps of a document; raises RecordRefused as `Atif` does."""
    reading = DocumentReader(document.agent.name, unit, place, pictures, joins)
    for number, step in enumerate(document.steps):
        reading.take(step, f"steps.{number}")
    instructed(reading.asked, place, "steps")
    return reading


def _documents(source: ImportSource) -> list[Path]:
    """Return the files of this project's export, or the files named `trajectory.json`, or else all JSON files of the
    folder."""
    if not source.path.is_dir():
        return [source.path]
    own = (source.folder / FOLDER).is_dir()
    named = (source.folder / FOLDER).glob("*.json") if own else source.folder.rglob(NAME)
    found = sorted(file for file in named if is_visible(file, source.folder))
    if not found and not own:
        return source.files(".json")
    source.leave_out(found, f"read are {FOLDER}/*.json" if own else f"read is {NAME}", _may_be_document)
    return found


def _may_be_document(file: Path) -> bool:
    """Return whether a file that is not read may be a document: any but JSON that does not begin as one."""
    if file.suffix.lower() != ".json" or not file.is_file():
        return True
    with file.open("rb") as content:
        return b'"ATIF-v' in content.read(4096)


def _reward(document: Document, source: ImportSource, file: Path) -> float | None:
    """Return a trial's reward: from the document, else from the verifier in the result file; None if neither has a
    number.

    The result file is in the same folder or its parent.

    Raises:
        RecordRefused: the result is not valid JSON.
    """
    own = _number(fields_of((document.final_metrics or {}).get("extra")).get("reward"))
    candidates = [file.with_name(RESULT), file.parent.parent / RESULT]
    found = next((one for one in candidates if one.is_file()), None)
    if own is not None or found is None or file.name != NAME:
        return own
    at, value = source.document(found)
    if isinstance(value, RecordRefused):
        raise RecordRefused(at, "", value.problem)
    rewards = fields_of(fields_of(fields_of(value).get("verifier_result")).get("rewards"))
    return _number(rewards.get(next(iter(rewards)) if len(rewards) == 1 else "reward"))


def _number(value: object) -> float | None:
    """Parse a reward, also from a text; return None for other values."""
    try:
        number = float(value) if isinstance(value, int | float | str) else None
    except (ValueError, OverflowError):
        number = None
    return number if number is not None and math.isfinite(number) else None


def _agent_step(number: int, step: ExchangedStep, after: Picture | None, target: Target) -> dict[str, Any]:
    written: dict[str, Any] = {"step_id": number + 2, "source": "agent", "message": "" if step.actions else step.text}
    if step.thought:
        written["reasoning_content"] = step.thought
    results: list[dict[str, Any]] = [{"content": [_image(after, target)]}] if after else []
    if step.actions:
        calls = [f"call_{number}_{at}" if step.several else f"call_{number}" for at in range(len(step.actions))]
        written["tool_calls"] = [
            {"tool_call_id": call, "function_name": one.type, "arguments": one.model_dump(exclude={"type"})}
            for call, one in zip(calls, step.actions, strict=True)
        ]
        results = [{"source_call_id": calls[-1], **result} for result in results]
        between = zip(calls, step.frames, strict=False)
        results[:0] = [
            {"source_call_id": call, "content": [_image(frame, target)], "extra": {BETWEEN: True}}
            for call, frame in between
        ]
    if results:
        written["observation"] = {"results": results}
    if step.sampled is not None:
        asked = step.sampled.prompt_ids
        written["metrics"] = {
            **({"prompt_tokens": len(asked), "prompt_token_ids": list(asked)} if asked is not None else {}),
            "completion_tokens": len(step.sampled.token_ids),
            "completion_token_ids": list(step.sampled.token_ids),
            **({"logprobs": list(step.sampled.logprobs)} if step.sampled.logprobs is not None else {}),
        }
    return written


def _image(picture: Picture, target: Target) -> dict[str, Any]:
    """Return a picture, named from the document's folder."""
    return {"type": "image", "source": {"media_type": "image/png", "path": f"../{target.picture(picture)}"}}


def _renamed(document: Document, pictures: DocumentPictures, first: Picture | None) -> dict[str, Any]:
    """Return the imported document with its pictures named as in an export.

    A first screen without a name in the document is added to the instruction.
    """
    copy = document.model_copy(deep=True)
    for number, step in enumerate(copy.steps):
        for name, _, part in parts_of(step):
            if part.type == "image" and part.source:
                picture = pictures.of(part.source.path, f"steps.{number}.{name}")
                part.source = part.source.model_copy(update={"path": f"{SHOWN}{picture.sha256}.png", **PNG})
    if first is not None:
        asked = next(step for step in copy.steps if step.source == "user" and text_of(step.message).strip())
        parts = [ContentPart(type="text", text=asked.message)] if isinstance(asked.message, str) else asked.message
        source = ImageSource.model_validate({**PNG, "path": f"{SHOWN}{first.sha256}.png"})
        asked.message = [*parts, ContentPart(type="image", source=source)]
    return copy.model_dump(mode="json", exclude_unset=True)


PNG = {"media_type": "image/png"}
SHOWN = "../images/"
"""Path from an export's documents to its pictures."""


def _carried(document: Mapping[str, Any], record: Exchanged, target: Target) -> dict[str, Any]:
    """Return an imported document, with the pictures of its trajectory.

    Other pictures, pictures of called agents, and sounds are not part of a trajectory; a text replaces them.
    """
    held = [one for step in record.steps for one in (step.screen, *step.frames)]
    held += [record.after] if record.after else []
    names = {f"{SHOWN}{one.original or one.sha256}.png": one for one in held}

    def copied(value: Any) -> Any:
        if isinstance(value, list):
            return [copied(one) for one in cast(list[Any], value)]
        if not isinstance(value, dict):
            return value
        fields = cast(dict[str, Any], value)
        if fields.get("type") not in ("image", "audio") or not isinstance(fields.get("source"), dict):
            return {name: copied(one) for name, one in fields.items()}
        picture = names.get(str(fields["source"].get("path"))) if fields["type"] == "image" else None
        return _image(picture, target) if picture else {"type": "text", "text": f"[{fields['type']} left out]"}

    def steps_of(whole: Mapping[str, Any]) -> dict[str, Any]:
        """Change only the parts of messages and results, since arguments of calls may look like parts."""
        steps = [_withparts_of(fields_of(step), copied) for step in items_of(whole.get("steps")) or []]
        called = [steps_of(fields_of(one)) for one in items_of(whole.get("subagent_trajectories")) or []]
        return {**whole, "steps": steps, **({"subagent_trajectories": called} if called else {})}

    return steps_of(document)


def _withparts_of(step: Mapping[str, Any], copied: Any) -> dict[str, Any]:
    """Return a step with the parts of its message and its results replaced by `copied`."""
    made = {**step, **({"message": copied(step["message"])} if isinstance(step.get("message"), list) else {})}
    seen = fields_of(step.get("observation"))
    results = [fields_of(one) for one in items_of(seen.get("results")) or []]
    if any(isinstance(one.get("content"), list) for one in results):
        shown = [{**one, "content": copied(one["content"])} if "content" in one else one for one in results]
        made["observation"] = {**seen, "results": shown}
    return made
