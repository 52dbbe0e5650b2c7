"""A step that an import's source takes out of training is context in every export of the lake that imported it, also of
a trajectory that the filter did not accept."""

import json
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curation.converters.exchanged import About, Correction, Exchanged, ExchangedStep, StepAssessment
from curation.converters.format import FORMATS
from curation.converters.rows import Import, exchanged_of, rows_of
from schemas.action import Type, Wait, to_json
from schemas.tables.step import Step
from schemas.tables.trajectory import Trajectory
from tests.unit.curation.converters.records import numbered, picture, same_screens, taken, written
from tests.unit.curation.converters.test_atif import agent, call, document, saved
from tests.unit.curation.converters.test_masked import source, turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OF = Import("lake", "run", -2, "import/x", frozenset(), "import:x:0", False, NOW)
MASKS = [{"loss_mask": 0}, {"weight": 0}, {"train": False}]


def stored(record: Exchanged, targets: Collection[int] | None = None, **of: Any) -> Exchanged:
    """The record as its lake exports it after it imported it."""
    rows = rows_of(record, OF)
    pictures = {one.screen.sha256: one.screen for one in record.steps}
    pictures |= {record.after.sha256: record.after} if record.after else {}
    return exchanged_of("lake", rows.trajectory, rows.steps, pictures, {}, targets=targets, **of)


def of_atif(folder: Path) -> Exchanged:
    copied = agent(call("wait"), shown=1, is_copied_context=True)
    form = FORMATS.class_of("atif")()
    (record,) = taken(form, saved(folder, document(copied, agent(call("wait"), shown=2))), unit="fraction")
    return record


def of_chat(folder: Path, mask: dict[str, Any]) -> Exchanged:
    file = source(folder, {"messages": turns(mask, {}), "images": ["0.png", "1.png"]})
    (record,) = taken(FORMATS.class_of("trl")(), file, unit="thousandths")
    return record


def taught(name: str, folder: Path) -> list[int]:
    """The number of screens up to each reply that an export trains on."""
    if name == "ui-tars":
        lines = [json.loads(line) for line in (folder / "ui-tars.jsonl").read_text().splitlines()]
        return [len(one["images"]) for one in lines if any(turn["loss_mask"] for turn in one["messages"])]
    if name == "scalecua":
        lines = [json.loads(line) for line in (folder / "scalecua.jsonl").read_text().splitlines()]
        return [1 + one["conversations"][0]["value"].count("\nStep ") for one in lines]
    if name == "verl":
        return [len(one["images"]) for one in pq.read_table(folder / "verl.parquet").to_pylist()]
    assert not pq.read_table(folder / "trl.parquet").num_rows
    return [len(one["images"]) for one in pq.read_table(folder / "trl-completions.parquet").to_pylist()]


@pytest.mark.parametrize("name", ["ui-tars", "trl", "verl", "scalecua"])
@pytest.mark.parametrize("mask", [None, *MASKS])
def test_a_step_that_is_no_target_of_its_source_is_none_of_an_undecided_export(
    tmp_path: Path, name: str, mask: dict[str, Any] | None
) -> None:
    record = of_atif(tmp_path / "in") if mask is None else of_chat(tmp_path / "in", mask)
    again = stored(Exchanged(record.name, record.instruction, record.steps, about=record.about))
    assert [again.is_target(step) for step in range(2)] == [False, True]
    folder = written(FORMATS.class_of(name)(), [again], tmp_path / name)
    assert taught(name, folder) == [2]
    (there,) = taken(FORMATS.class_of(name)(), folder)
    assert [there.is_target(step) for step in range(2)] == [False, True]


@pytest.mark.parametrize("name", ["agentnet", "atif", "lerobot"])
def test_a_format_without_masks_says_so_in_its_metadata(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    record = of_chat(tmp_path / "in", MASKS[0])
    (there,) = taken(form, written(form, [stored(record)], tmp_path / "out"))
    assert [one.about.target for one in there.steps] == [False, None]
    assert [stored(there).is_target(step) for step in range(2)] == [False, True]  # and in the lake after that


@pytest.mark.parametrize(
    "name",
    [
        "hf",
        "cua-lite",
        "agentnet",
        "atif",
        "lerobot",
        "trl",
        "ui-tars",
        "scalecua",
        "verl",
        "recording",
        "cua-lite-hub",
    ],
)
def test_the_author_of_a_thought_comes_back_and_is_kept_in_the_lake(name: str, tmp_path: Path) -> None:
    """A thought of a template is not taken for the actor's after an export and an import."""
    plain = Exchanged("t", "Wait.", tuple(ExchangedStep(picture(n), "I wait.", (Wait(),)) for n in range(2)))
    rows = rows_of(plain, OF)
    pictures = {one.screen.sha256: one.screen for one in plain.steps}
    record = exchanged_of("lake", rows.trajectory, rows.steps, pictures, {}, thought_by={1: "template"})
    form = FORMATS.class_of(name)()
    (there,) = taken(form, written(form, [record], tmp_path / "out"))
    for one in (there, stored(there)):
        assert [(step.thought, step.about.thought_by) for step in one.steps] == [
            ("I wait.", ""),
            ("I wait.", "template"),
        ]


def test_no_decision_of_this_lake_makes_it_a_target(tmp_path: Path) -> None:
    record = of_chat(tmp_path, MASKS[0])
    undone = {0: Correction(action=to_json(Wait()), replaces=True, taught=True)}
    for again in (stored(record, targets={0, 1}), stored(record, targets=set()), stored(record, corrections=undone)):
        assert again.steps[0].about.target is False and not again.is_target(0)
    assert [one.about.target for one in stored(record, targets={0, 1}).steps] == [False, True]


def test_a_target_of_the_source_is_none_where_its_trajectory_is_withheld_or_replayed(tmp_path: Path) -> None:
    (step, last) = of_chat(tmp_path, MASKS[0]).steps
    told = last.about.model_copy(update={"target": True})
    steps = (step, replace(last, about=told))
    for about in (About(withheld=True), About(continues="t9", replayed=2)):
        record = Exchanged("t", "Wait.", steps, about=about)
        assert not record.is_target(1) and not stored(record, withheld=about.withheld).is_target(1)
    assert stored(Exchanged("t", "Wait.", steps)).is_target(1)


@pytest.mark.parametrize("name", FORMATS.names)
def test_a_lake_whose_replies_hold_a_nul_is_exported_and_imported(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    steps = (
        ExchangedStep(picture(0), "so", (Type(content="ab"),)),
        ExchangedStep(picture(1), text="Action: (46 ,510)", error="no action in it"),
    )
    rows = rows_of(Exchanged("t", "Go.", steps, True), OF)
    acted, words = (step.model_dump() for step in rows.steps)
    stored = [
        Step.model_construct(**acted | {"thought": "s\0o", "actions": ['{"content":"a\\u0000b","type":"type"}']}),
        Step.model_construct(
            **words
            | {
                "raw_text": "Action: (46\0,510)",
                "action_error": "no action\0 in it",
                "extra": '{"x": {"a\\u0000": ["\\u0000"]}}',
            }
        ),
    ]
    screens = {step.screen.sha256: step.screen for step in steps}
    trajectory = Trajectory.model_construct(**rows.trajectory.model_dump() | {"instruction": "G\0o."})
    correction = Correction.model_construct(action=to_json(Wait()), thought="N\0o.", state="unverified", replaces=False)
    found = {1: StepAssessment(False, None, "It\0 is wrong.")}
    decided = ("sft", "ok\0ay")
    exported = exchanged_of(
        "lake", trajectory, stored, screens, found, {1: correction}, decided=decided, better={0: "b\0etter"}
    )
    (read,) = taken(form, written(form, numbered([exported]), tmp_path / "out"))
    assert getattr(read.steps[0].action, "content", "") == "a\\x00b"
    assert same_screens(name, [step.screen for step in read.steps], [picture(0), picture(1)])


@pytest.mark.parametrize("name", FORMATS.names)
def test_the_thought_of_a_step_without_an_action_comes_back(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    unread = ExchangedStep(picture(1), "I fly.", text="fly()", error="no action in it")
    record = Exchanged("t", "Go.", (ExchangedStep(picture(0), "so", (Type(content="a"),)), unread), True)
    (there,) = taken(form, written(form, [stored(record)], tmp_path / name))
    assert [(step.thought, step.text) for step in there.steps] == [("so", ""), ("I fly.", "fly()")]
