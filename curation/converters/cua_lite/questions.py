"""Read and write cua-lite's questions about places on a screen: rows of `grounding.point` and `grounding.bbox`.

A row has an image, a question, and one call: `point` with the middle of the element, or `bbox` with its box, both in
thousandths. Here it is a screen without an action, and a `PlaceQuestion` about it. A box keeps its call with the step,
and its middle answers the question.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from curation.converters.cua_lite.calls import SIDE, Platform
from curation.converters.exchanged import OWN, Exchanged, PlaceQuestion, RecordPlace, RecordRefused
from curation.converters.files import fields_of, items_of

POINT, BOX = "grounding.point", "grounding.bbox"
"""Types of tasks whose rows are questions about places."""
TOOLS: Mapping[str, str] = {POINT: "point", BOX: "bbox"}
"""Tool of the only call, by type of task."""
ASKED = "Locate the element: "
"""Beginning of cua-lite's questions, before the element's description."""
KEPT = "cua-lite"
"""Key of data without a column in this project, also of the Hub's layout."""
NOT_AN_ACTION = "a question about a place, no action"
"""Reason why the step of such a row has no action."""


def read_question(kind: str, instruction: str, calls: Sequence[Any], where: str, place: RecordPlace) -> PlaceQuestion:
    """Return the question of a row.

    Args:
        kind: type of task, `grounding.point` or `grounding.bbox`.
        instruction: the question.
        calls: the tool calls of the only reply.
        where: field of the reply. place: place of the row.

    Raises:
        RecordRefused: there is not one call of the tool, or its coordinate is missing or not on the screen.
    """
    tool, field = TOOLS[kind], f"{where}.tool_calls"
    if len(calls) != 1 or calls[0].function.name != tool:
        named = ", ".join(one.function.name[:80] for one in calls) or "none"
        raise RecordRefused(place, field, f"a row of `{kind}` has one call, of `{tool}` (it has {named})")
    given = calls[0].function.arguments.get("coordinate")
    field, count = f"{field}.0.function.arguments.coordinate", 2 if kind == POINT else 4
    values = items_of(given) or []
    if len(values) != count or not all(type(one) is int and 0 <= one <= SIDE for one in values):
        problem = "it is missing" if given is None else f"{str(given)[:80]} is no {tool}"
        raise RecordRefused(place, field, f"{problem}; write {count} whole numbers from 0 to {SIDE}")
    left, top, right, bottom = values if kind == BOX else (*values, *values)
    if left > right or top > bottom:
        raise RecordRefused(place, field, f"{values} is no box: write its upper left corner first")
    name = instruction.removeprefix(ASKED).strip() or instruction.strip()
    return PlaceQuestion(0, name, (left + right) / 2 / SIDE, (top + bottom) / 2 / SIDE)


def question_rows(
    record: Exchanged, kept: Mapping[str, Any], platform: Platform
) -> Iterator[tuple[int, list[dict[str, Any]], dict[str, Any]]]:
    """Yield the questions of a trajectory: the number of its step, the messages and the metadata of each row.

    Args:
        record: the trajectory.
        kept: the data of an imported row that this project has no columns for; empty for a trajectory of its own.
        platform: platform of the rows.
    """
    held = fields_of(kept.get("metadata"))
    about = record.about
    for number, one in enumerate(record.questions):
        kind = held["dims"][1] if held else POINT
        reply = fields_of(record.steps[one.step].extra.get(KEPT)) if held else {}
        call = next(iter(items_of(reply.get("calls")) or []), None) or _call(one)
        asked = record.instruction if held else f"{ASKED}{one.name}"
        message: dict[str, Any] = {"role": "assistant"}
        if content := reply.get("content"):
            message["content"] = content
        message["tool_calls"] = [call]
        screen = record.steps[one.step].screen
        name = about.trajectory_id or record.name or record.digest
        others = {
            "id": f"{name}-{one.step}-{number}",
            "resolution": [screen.width, screen.height],
            "source": OWN,
            **fields_of(held.get("others")),
            OWN: {"trajectory": about.model_dump(mode="json", include={"lake", "trajectory_id"})},
        }
        metadata = {
            "metadata_kind": "cua",
            "dims": [platform, kind],
            "extra_tool_schemas": held.get("extra_tool_schemas") or [],
            "valid_actions": held.get("valid_actions"),
            "others": others,
        }
        user = {"role": "user", "content": [{"type": "image", "index": 0}, {"type": "text", "text": asked}]}
        yield one.step, [*kept.get("system", []), user, message], metadata


def _call(one: PlaceQuestion) -> dict[str, Any]:
    point = [round(one.x * SIDE), round(one.y * SIDE)]
    return {"id": "call_0000", "type": "function", "function": {"name": "point", "arguments": {"coordinate": point}}}
