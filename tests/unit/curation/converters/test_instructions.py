"""An instruction is a text with words: every format refuses a blank one by its field."""

import json
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import About, Exchanged, ExchangedStep, RecordPlace, RecordRefused, checked
from curation.converters.format import FORMATS
from schemas.action import Wait
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, read, refused, taken, written

FIELDS = {
    "agentnet": "instruction",
    "atif": "steps",
    "label-studio": "data.instruction",
    "lerobot": "task_index",
    "hf": "instruction",
    "recording": "instruction",
    "cua-lite": "messages",
    "cua-lite-hub": "messages",
    "scalecua": "conversations.0.value",
    "trl": "messages",
    "ui-tars": "messages",
    "verl": "prompt",
}
SCREEN, REPLY = {"role": "user", "content": "<image>"}, {"role": "assistant", "content": "Action: wait()"}


def asked(*texts: str) -> dict[str, Any]:
    """A row of a chat in which the user asks so."""
    return {"messages": [*({"role": "user", "content": text} for text in texts), SCREEN, REPLY], "images": ["0.png"]}


def saved(folder: Path, row: object, name: str = "theirs.jsonl") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "0.png").write_bytes(picture(0).png)
    (folder / name).write_text(json.dumps(row) + "\n")
    return folder / name


@pytest.mark.parametrize("name", FORMATS.names)
@pytest.mark.parametrize("text", ["", "  ", "\n", "\t \u00a0\n"])
def test_a_blank_instruction_is_refused_by_its_field(tmp_path: Path, name: str, text: str, sentence: Sentences) -> None:
    form = FORMATS.class_of(name)()
    record = Exchanged("t", text, (ExchangedStep(picture(0), "", (Wait(),)),), about=About(trajectory_id="t"))
    problem, *_ = read(form, written(form, [record], tmp_path / "out"))
    assert isinstance(problem, RecordRefused) and problem.field == FIELDS[name]
    sentence(problem.problem)


def test_a_blank_instruction_of_a_format_of_a_users_own_is_refused(sentence: Sentences) -> None:
    with sentence.raises(RecordRefused, "instruction"):
        checked(Exchanged("t", " ", (ExchangedStep(picture(0), "", (Wait(),)),)), RecordPlace("a.json"))


@pytest.mark.parametrize("text", ["## User Instruction\n", "You are an agent.\n## User Instruction\n \n"])
def test_a_heading_without_an_instruction_holds_none(tmp_path: Path, text: str) -> None:
    said = refused(FORMATS.class_of("ui-tars")(), saved(tmp_path, asked(text)), unit="thousandths")
    assert ", messages: " in said


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_a_blank_turn_before_the_instruction_is_passed_over(tmp_path: Path, name: str) -> None:
    (record,) = taken(FORMATS.class_of(name)(), saved(tmp_path, asked(" \n", "Buy it.")), unit="thousandths")
    assert record.instruction == "Buy it."


def test_a_blank_instruction_gives_way_to_the_records_other_field(tmp_path: Path) -> None:
    step = {"image": "0.png", "value": {"code": "pyautogui.click(x=0.5, y=0.5)"}}
    line = {"task_id": "a", "instruction": " ", "natural_language_task": "Buy it.", "traj": [step]}
    task = {
        "data": {"image": "0.png", "instruction": "\n", "text": "Buy it.", "action": "click(start_box='(500,500)')"}
    }
    (first,) = taken(FORMATS.class_of("agentnet")(), saved(tmp_path / "a", line))
    (second,) = taken(FORMATS.class_of("label-studio")(), saved(tmp_path / "b", [task], "theirs.json"))
    for record in (first, second):
        assert record.instruction == "Buy it."
