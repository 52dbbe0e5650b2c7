"""Reads and writes ScaleCUA's JSON lines (arXiv 2509.15221): a row per step, code without a module, fractions.

`{image, conversations: [{from: human, value}, {from: gpt, value}], width, height}`: the human asks with `Task:` and
`Previous operations:`, the answer is `<think>`, `<operation>` (the step in words) and `<action>` (code). A data set is
named in a mix file, `meta.json`: `{NAME: {root, annotation, repeat_time, length, ...}}`. Rows of other projects name no
trajectory: a row for the same task with one previous operation more than the row before continues that row's
trajectory. There `response(answer=...)` gives the answer and a following `terminate(...)` ends the trajectory; here
they are one end, `finished` with the answer or `call_user` after a failure, and two rows again in an export.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, Field

from common.text import Storable, counted
from curation.converters.chat import MARKS, ChatRow, joined, key_of, record_of
from curation.converters.code import read_code, stated_outcome, write_code
from curation.converters.exchanged import (
    OWN,
    Exchanged,
    ExchangedStep,
    Metadata,
    RecordPlace,
    RecordRefused,
    StepAbout,
    instructed,
    metadata_of,
    without_action,
)
from curation.converters.files import ImportSource, OpenModel, Target, line_of, model_of
from curation.converters.format import Format, Read, each
from curation.converters.lessons import lessons_of, whole
from curation.converters.masks import masks_of
from curation.converters.search import CONTEXT, JSON_LINES
from curation.converters.tokens import for_trainers, plain, plain_between
from curation.converters.units import fraction_of
from models.families.code.calls import NoAction
from models.families.code.program import OutOfScreen
from models.families.thinking import split_thinking
from schemas.action import Action, CallUser, Finished

FILE, META = "scalecua.jsonl", "meta.json"
IMAGE = MARKS[0]
_IMAGE = re.compile(re.escape(IMAGE))
ASK = f"{IMAGE}\nGive the next action for the screen, the task and what was done."
_TASK = "Task:"
_PREVIOUS = re.compile(r"\n[^\S\n]*+Previous operations:")
_HEADING = re.compile(r"(\n[^\S\n]*+Previous +)(?=operations:)")
_BROKEN_HEADING = re.compile(r"(\n[^\S\n]*+Previous +) (?=operations:)")
"""A line of an instruction that looks like the next heading, perhaps broken by additional spaces."""
_STEP = re.compile(r"^Step \d+:", re.MULTILINE)
_THINK_END = re.compile(r"</think>(?=\s*+(?:<(?:operation|action)>|\Z))")
_OPERATION_END = re.compile(r"</operation>(?=\s*+(?:<action>|\Z))")
_ANY_OPERATION_END = re.compile(r"</operation>")
"""Ends of the parts of an answer, with the text after them there; elsewhere they are text."""
_END = "end"
"""Key of the end's row in the kept fields of the answer's row."""
_TAG = re.compile(r"<( *)(?=/?(?:think|operation|action)>)")
_BROKEN_TAG = re.compile(r"<( *) (?=/?(?:think|operation|action)>)")


class _Turn(BaseModel, extra="forbid"):
    who: Storable = Field("", alias="from")
    value: Storable


class _ScaleCuaRow(OpenModel):
    image: str | list[str]
    conversations: list[_Turn]
    width: int | None = None
    height: int | None = None
    flywheel: Metadata | None = None


class ScaleCua(Format):
    """A file of lines, a folder of pictures, the mix file, and a file of trajectories that are not all targets."""

    name = "scalecua"
    units = ("fraction",)
    assumed = "fraction"

    def write(self, records: Iterable[Exchanged], target: Target) -> None:
        """Write a line for each target, and the mix file."""
        count = 0
        with target.path(FILE).open("w", encoding="utf-8") as lines:
            for record in map(_opened, map(Exchanged.as_taught, records)):
                every = [self._row(record, number, target) for number in range(len(record.steps))]
                if not whole(record):
                    target.append(f"{CONTEXT}/{FILE}", "".join(map(line_of, every)).encode())
                    lessons = lessons_of(record)
                    every = [self._row(one, len(one.steps) - 1, target, copied=True) for one in lessons]
                lines.writelines(map(line_of, every))
                count += len(every)
        mix = {"root": ".", "annotation": FILE, "data_augment": False, "repeat_time": 1, "length": count}
        target.write(META, json.dumps({OWN: mix}, indent=2).encode())

    def _row(self, record: Exchanged, number: int, target: Target, copied: bool = False) -> dict[str, Any]:
        shown = for_trainers(record)
        step, operations = shown.steps[number], [_operation(one) for one in shown.steps[:number]]
        kept: dict[str, Any] = step.extra.get(self.name, {})
        done = "\n".join(f"Step {at}: {json.dumps(one)}" for at, one in enumerate(operations, 1)) or "None"
        instruction = _HEADING.sub(r"\1 ", shown.instruction)
        asked = f"{ASK}\n\nTask: {instruction}\n\nPrevious operations:\n{done}"
        code = step.text if step.action is None else write_code(step.action, "scalecua")
        parts = {"think": _untagged(step.thought), "operation": _untagged(_operation(step)), "action": code}
        answer = "\n".join(f"<{name}>\n{text}\n</{name}>" for name, text in parts.items() if text or name != "think")
        conversations = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
        if "conversations" in kept:
            kept = {**kept, "conversations": [_plain(one) for one in kept["conversations"]]}
        row = {"conversations": conversations, "width": step.screen.width, "height": step.screen.height, **kept}
        return {
            "image": target.picture(step.screen),
            **row,
            OWN: metadata_of(record, self.name, self.unit, step=number, copied=copied),
        }

    def records(self, source: ImportSource) -> Read:
        """Yield one trajectory per run of rows."""
        return (
            (place, one if isinstance(one, RecordRefused) else _with_outcome(_closed(one)))
            for place, one in joined(each(source, source.rows(*JSON_LINES), self._part))
        )

    def _part(self, value: Any, source: ImportSource, place: RecordPlace) -> ChatRow:
        row = model_of(_ScaleCuaRow, value, place)
        known, unit = row.flywheel, self.unit_of(row.flywheel, source, place)
        name, human, answer = _one_of_each(row, place)
        begin = human.find(_TASK)
        previous = _PREVIOUS.search(human, begin)
        if begin < 0 or previous is None:
            raise RecordRefused(place, "conversations.0.value", "no `Task:` and `Previous operations:`")
        instruction = human[begin + len(_TASK) : previous.start()]
        ours = known is not None and human.startswith(ASK)  # written by this module
        if ours:
            instruction = _BROKEN_HEADING.sub(r"\1", instruction)
        instruction = instructed(instruction.strip(), place, "conversations.0.value")
        screen = source.picture(name, place, "image")
        thought, operation, code = _parts(answer)
        thought, code = thought.removesuffix("\n"), code.removesuffix("\n") if ours else code.rstrip("\n")
        if known is not None:
            thought = _tagged(thought)
        action, error = None, None
        try:
            if without_action(known, 1):
                raise NoAction
            action, _ = read_code(code, lambda x, y: fraction_of(x, y, unit, screen.width, screen.height))
        except NoAction as unmapped:
            error = str(unmapped)
        except OutOfScreen as outside:
            raise RecordRefused(place, "conversations.1.value", f"{outside}; --unit names another unit") from outside
        kept: dict[str, Any] = {}
        gives_up = isinstance(action, CallUser) and write_code(action, "scalecua") != code
        written = _tagged(operation) if ours else operation
        if written != code or _is_answer(action, code) or gives_up:  # the record's own words
            kept["conversations"] = [one.model_dump(by_alias=True, exclude_unset=True) for one in row.conversations]
        kept |= row.others
        text = "" if action else code if ours else code or answer
        replies = [one.who == "gpt" for one in row.conversations]
        masks = masks_of(row.others, replies, place, "turn", labelled=1)
        off = any(masked for reply, masked in zip(replies, masks, strict=True) if reply)
        about = StepAbout(target=False) if off else StepAbout()
        extra = {self.name: kept} if kept else {}
        step = ExchangedStep(screen, thought, (action,) if action else (), text, error, about=about, extra=extra)
        before = len(_STEP.findall(human[previous.end() :].lstrip()))
        named = known is not None and known.trajectory.trajectory_id
        key, number = key_of(known, place) if named else (instruction, before)
        copied = known is not None and known.copied
        return ChatRow(record_of(self.name, instruction, [step], known, {}, place), key, number, copied)


def _one_of_each(row: _ScaleCuaRow, place: RecordPlace) -> tuple[str, str, str]:
    """Return the picture's name, the question and the answer of a row.

    Raises RecordRefused if there are several, which would be left out, or a placeholder without a picture.
    """
    names = [row.image] if isinstance(row.image, str) else row.image
    if len(names) != 1:
        left = f"; {names[1][:200]!r} is left over" if names else ""
        raise RecordRefused(place, "image", f"{counted(len(names), 'image')}, a step has one screen{left}")
    for who in ("human", "gpt"):
        if (turns := sum(one.who == who for one in row.conversations)) > 1:
            raise RecordRefused(place, "conversations", f"{turns} turns of `{who}`, a row is one step")
    human = next((one.value for one in row.conversations if one.who == "human"), "")
    if (slots := human.count(IMAGE)) > 1:
        raise RecordRefused(place, "conversations.0.value", f"{slots} placeholders for 1 image")
    return names[0], human, next((one.value for one in row.conversations if one.who == "gpt"), "")


def _is_answer(action: Action | None, code: str) -> bool:
    return isinstance(action, Finished) and code.lstrip().startswith("response")


def _closed(record: Exchanged) -> Exchanged:
    """Join an answer and the following end into one step, which keeps the end's row."""
    if len(record.steps) < 2:
        return record
    answer, end = record.steps[-2:]
    if not (isinstance(end.action, Finished | CallUser) and _is_answer(answer.action, _answered(answer))):
        return record
    content = end.action.content if isinstance(end.action, Finished) else None
    row = {"thought": end.thought, "content": content, "row": end.extra.get(ScaleCua.name, {})}
    kept = {**answer.extra, ScaleCua.name: {**answer.extra[ScaleCua.name], _END: row}}
    last = replace(answer, actions=(end if content is None else answer).actions, extra=kept)
    return replace(record, steps=(*record.steps[:-2], last), after=end.screen)


def _with_outcome(record: Exchanged) -> Exchanged:
    """Return a trajectory of another project with the outcome that its last `terminate` states."""
    if record.success is not None or record.about.trajectory_id:
        return record
    last = record.steps[-1]
    code = "terminate" if _END in last.extra.get(ScaleCua.name, {}) else _answered(last)
    written = code or (write_code(last.action, "scalecua") if last.action else "")
    return replace(record, success=stated_outcome(last.action, written))


def _opened(record: Exchanged) -> Exchanged:
    """Split an answer's end into a separate step, if the import had one."""
    last = record.steps[-1]
    kept = last.extra.get(ScaleCua.name, {})
    if _END not in kept:
        return record
    row = kept[_END]
    answer = {**last.extra, ScaleCua.name: {name: one for name, one in kept.items() if name != _END}}
    extra = {ScaleCua.name: row["row"]} if row["row"] else {}
    end = replace(
        last,
        screen=record.after or last.screen,
        thought=row["thought"],
        actions=(CallUser() if row["content"] is None else Finished(content=row["content"]),),
        extra=extra,
    )
    return replace(record, steps=(*record.steps[:-1], replace(last, extra=answer), end))


def _answered(step: ExchangedStep) -> str:
    """Return the code of a step from its kept row."""
    turns = step.extra.get(ScaleCua.name, {}).get("conversations", ())
    reply = next((one["value"] for one in turns if one.get("from") == "gpt"), "")
    return _parts(reply)[2]


def _operation(step: ExchangedStep) -> str:
    """Return the operation of the record, or else the step's code; tokens must be broken already (`for_trainers`)."""
    for one in step.extra.get("scalecua", {}).get("conversations", ()):
        if one.get("from") == "gpt":
            return plain(_parts(one["value"])[1])
    return step.text if step.action is None else write_code(step.action, "scalecua")


def _plain(turn: dict[str, Any]) -> dict[str, Any]:
    """Return an imported turn, without tokens other than its picture's placeholder."""
    value = turn["value"]
    return {**turn, "value": plain_between(value, _IMAGE) if turn.get("from") == "human" else plain(value)}


def _untagged(text: str) -> str:
    """Break the tags of an answer's parts in a text with one more space; `_tagged` restores it."""
    return _TAG.sub(r"<\1 ", text)


def _tagged(text: str) -> str:
    """Return the text that `_untagged` broke."""
    return _BROKEN_TAG.sub(r"<\1", text)


def _parts(answer: str) -> tuple[str, str, str]:
    """Return the thought, the step in words and the code of an answer.

    Each part ends where the next part begins, so that tags in typed texts of the code are text.
    """
    unthought = answer.lstrip().startswith(("<operation>", "<action>"))
    thought = None if unthought else _part(answer, "think", _THINK_END)
    rest = thought[1] if thought else answer if unthought else split_thinking(answer)[1]
    operation = _part(rest, "operation", _OPERATION_END)
    code = operation[1] if operation else rest.rpartition("</operation>")[2]
    words = operation or _part(rest, "operation", _ANY_OPERATION_END)
    return thought[0] if thought else "", words[0].removesuffix("\n") if words else "", _code(code)


def _part(answer: str, name: str, end: re.Pattern[str]) -> tuple[str, str] | None:
    """Return a part of an answer and the text after it, or None."""
    begin = answer.find(f"<{name}>")
    closed = end.search(answer, begin) if begin >= 0 else None
    if closed is None:
        return None
    return answer[begin + len(name) + 2 : closed.start()].removeprefix("\n"), answer[closed.end() :]


def _code(text: str) -> str:
    """Return the code between the first `<action>` and the last `</action>`."""
    begin = text.find("<action>")
    end = text.rfind("</action>")
    return text[begin + len("<action>") : end].removeprefix("\n") if 0 <= begin < end else ""
