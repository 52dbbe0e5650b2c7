"""A reply with several actions in every format: as its actions, or as a text that is counted."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.converters.exchanged import About, Exchanged, ExchangedStep, Picture
from curation.converters.files import Target
from curation.converters.format import FORMATS, Format
from curation.converters.rows import Import, exchanged_of, rows_of
from models.families.dialects import parse_reply
from schemas.action import Click, Finished, Hotkey, Type, to_json
from schemas.table import utc_now
from tests.unit.curation.converters.records import picture, same_screens, taken, written

ACTIONS = (Click(x=0.25, y=0.5), Type(content="a"), Hotkey(key="ctrl s"))
REPLY = "Thought: Both.\nAction: click(...) and more"
HELD = [name for name in FORMATS.names if FORMATS.class_of(name).several]
SINGLE = [name for name in FORMATS.names if not FORMATS.class_of(name).several]
FRAMED = ("hf", "cua-lite", "cua-lite-hub", "atif", "lerobot")
"""Formats with a place for the screens between actions."""


def three(**changes: object) -> ExchangedStep:
    step = ExchangedStep(picture(1), "Both.", actions=ACTIONS, frames=(picture(2), picture(3)), text=REPLY)
    return replace(step, **changes)  # pyright: ignore[reportArgumentType]


def trajectory(*steps: ExchangedStep) -> Exchanged:
    before, end = (
        ExchangedStep(picture(0), "Go.", ACTIONS[:1]),
        ExchangedStep(picture(4), "", (Finished(content="ok"),)),
    )
    whole = (before, *steps, end)
    return Exchanged("t", "Save it.", whole, True, picture(5), About(lake="l", trajectory_id="t", success=True))


def back(form: Format, record: Exchanged, folder: Path) -> Exchanged:
    folder.mkdir(parents=True)
    form.export([record], Target(folder))
    (read,) = taken(form, folder)
    return read


def test_every_format_holds_the_actions_of_a_reply_or_counts_it() -> None:
    assert (HELD, SINGLE) == (
        ["ui-tars", "hf", "cua-lite", "cua-lite-hub", "trl", "verl", "atif", "lerobot", "recording"],
        ["agentnet", "scalecua", "label-studio"],
    )


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("place", [0, 1])
def test_a_reply_with_several_actions_goes_round(name: str, place: int, tmp_path: Path) -> None:
    form = FORMATS.class_of(name)()
    for number, frames in enumerate([(), (picture(2),), (picture(2), picture(3))]):
        step = three(frames=frames, error=f"action {len(frames) + 1} of 3: no field" if len(frames) < 2 else None)
        record = trajectory(step, three()) if place else replace(trajectory(), steps=(step, *trajectory().steps))
        read = back(form, record, tmp_path / str(number))
        assert same_screens(name, [one.screen for one in read.steps], [one.screen for one in record.steps])
        assert [one.thought for one in read.steps] == [one.thought for one in record.steps]
        assert [one.actions for one in read.steps] == [one.actions for one in record.steps]
        assert [one.error for one in read.steps] == [one.error for one in record.steps]
        wanted = [one.frames if name in FRAMED else () for one in record.steps]
        assert [one.frames for one in read.steps] == wanted
    assert (form.as_text, form.notes) == (0, [])


@pytest.mark.parametrize("name", SINGLE)
def test_a_format_with_one_action_a_step_writes_the_reply_as_text_and_counts_it(name: str, tmp_path: Path) -> None:
    form = FORMATS.class_of(name)()
    record = trajectory(three(), three(text="", error="action 2 of 3: no field; 1 not performed"))
    read = back(form, record, tmp_path / "out")
    written = "click(start_box='(250,500)')\n\ntype(content='a')\n\nhotkey(key='ctrl s')"
    texts = [REPLY, f"Thought: Both.\nAction: {written}"]
    errors = ["3 actions in one reply", "3 actions in one reply; action 2 of 3: no field; 1 not performed"]
    assert [one.actions for one in read.steps] == [(ACTIONS[0],), (), (), (Finished(content="ok"),)]
    assert [(one.text, one.error) for one in read.steps[1:3]] == [*zip(texts, errors, strict=True)]
    assert form.as_text == 2
    assert form.notes == [f"2 steps with several actions are text: {name} has one action a step."]


def test_atif_has_a_call_for_each_action_and_the_screens_between_them(tmp_path: Path) -> None:
    form = FORMATS.class_of("atif")()
    back(form, trajectory(three()), tmp_path / "out")
    step = json.loads((tmp_path / "out/trajectories/000000.json").read_text())["steps"][2]
    assert [one["function_name"] for one in step["tool_calls"]] == ["click", "type", "hotkey"] and not step["message"]
    results = [(one["source_call_id"], one.get("extra")) for one in step["observation"]["results"]]
    between = {"between_actions": True}
    assert results == [("call_1_0", between), ("call_1_1", between), ("call_1_2", None)]


def test_the_screens_between_actions_are_no_screen_after_a_reply_whose_sandbox_was_lost(tmp_path: Path) -> None:
    record = replace(trajectory(), steps=(three(),), after=None)
    read = back(FORMATS.class_of("atif")(), record, tmp_path / "out")
    assert read.after is None and read.steps[0].frames == (picture(2), picture(3))


def test_lerobot_has_a_frame_for_each_action_with_the_number_of_its_reply(tmp_path: Path) -> None:
    back(FORMATS.class_of("lerobot")(), trajectory(three(frames=(picture(2),))), tmp_path / "out")
    (file,) = (tmp_path / "out/data").rglob("*.parquet")
    rows = pq.read_table(file).to_pydict()
    assert rows["reply_index"] == [0, 1, 1, 1, 2] and rows["frame_index"] == [0, 1, 2, 3, 4]
    assert rows["reply_screen"] == [True, True, True, False, True]
    assert rows["next.done"] == [False] * 4 + [True] and [json.loads(one)["type"] for one in rows["action_json"]] == [
        "click", "click", "type", "hotkey", "finished"
    ]  # fmt: skip


@pytest.mark.parametrize("outcomes", [[False, True], [True, False], [None, True], [True, None], [None, None]])
def test_next_success_of_the_last_frame_is_the_outcome_of_a_lerobot_episode(
    outcomes: list[bool | None], tmp_path: Path
) -> None:
    form = FORMATS.class_of("lerobot")()
    written(form, [replace(trajectory(), success=None, about=About(lake="l", trajectory_id="t"))], tmp_path)
    assert taken(form, tmp_path)[0].success is None
    (file,) = (tmp_path / "data").rglob("*.parquet")
    table = pq.read_table(file).drop_columns("flywheel")
    at = table.column_names.index("next.success")
    pq.write_table(table.set_column(at, "next.success", pa.array(outcomes, pa.bool_())), file)
    assert taken(form, tmp_path)[0].success is outcomes[-1]
    pq.write_table(table.drop_columns("next.success"), file)
    assert taken(form, tmp_path)[0].success is None


def test_the_lake_stores_all_actions_of_an_imported_reply_and_the_screens_between_them() -> None:
    record = trajectory(three(text=""))
    rows = rows_of(record, Import("l", "r", -2, "import/t", frozenset(), "import:atif:0", False, utc_now()))
    step = rows.steps[1]
    assert step.actions == [*map(to_json, ACTIONS)] and step.types == ["click", "type", "hotkey"]
    assert (step.action_type, step.x, step.y) == ("click", 0.25, 0.5)
    assert parse_reply(step.raw_text).thought == "Both." and step.raw_text.count("\n\n") == 2
    assert step.pictures == [picture(number).sha256 for number in (1, 2, 3, 4)]
    pictures = {one.sha256: Picture(one.png, one.width, one.height) for one in rows.screenshots}
    again = exchanged_of("l", rows.trajectory, rows.steps, pictures, {}).steps[1]
    assert (again.actions, again.frames, again.thought) == (ACTIONS, (picture(2), picture(3)), "Both.")
    assert len({replace(record, steps=(one,)).digest for one in (three(), three(frames=()), three(actions=()))}) == 3


def test_an_only_action_is_never_the_first_of_several() -> None:
    assert three().action is None and three().several and three().actions == ACTIONS
    assert replace(three(), actions=ACTIONS[:1]).action == ACTIONS[0]
