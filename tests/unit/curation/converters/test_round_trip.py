"""What is written in a format and read again is what it was, but for what the format has no place for."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curation.converters.code import Style, read_code, write_code
from curation.converters.exchanged import About, Correction, Exchanged, ExchangedStep, StepAbout
from curation.converters.format import FORMATS
from curation.converters.tokens import plain
from models.families.code.calls import NoAction
from models.families.code.program import play
from schemas.action import Action, CallUser, Finished, LeftDouble, Scroll, TripleClick, action_of, to_json
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import ACTIONS, RECORDS, found, picture, refused, taken, written

WAYS = [
    ("agentnet", None, None),
    ("ui-tars", None, None),
    ("ui-tars", "resized_pixels", "point"),
    ("ui-tars", "thousandths", "bbox4"),
    ("scalecua", None, None),
    ("trl", None, None),
    ("verl", "resized_pixels", "point"),
    ("atif", None, None),
    ("lerobot", None, None),
    ("hf", None, None),
    ("cua-lite", None, None),
    ("cua-lite-hub", None, None),
    ("label-studio", None, None),
]
"""Format, unit and dialect."""


def near(one: Action | None, other: Action | None) -> bool:
    if one is None or other is None:
        return one is other
    ours, theirs = one.model_dump(), other.model_dump()
    return ours.keys() == theirs.keys() and all(
        abs(value - theirs[key]) <= 0.02 if isinstance(value, float) else value == theirs[key]
        for key, value in ours.items()
    )


@pytest.mark.parametrize(("name", "unit", "dialect"), WAYS)
@settings(max_examples=15, deadline=None)
@given(records=RECORDS)
def test_a_trajectory_goes_round_whole(
    name: str, unit: str | None, dialect: str | None, records: list[Exchanged]
) -> None:
    form = FORMATS.class_of(name)(unit, dialect)
    with tempfile.TemporaryDirectory() as folder:
        back = sorted(taken(form, written(form, records, Path(folder))), key=lambda one: one.name)
    assert [one.about for one in back] == [one.about for one in records]
    for ours, theirs in zip(records, back, strict=True):
        assert (ours.name, ours.success) == (theirs.name, theirs.success)
        assert theirs.instruction in (ours.instruction, plain(ours.instruction))
        for step, again in zip(ours.steps, theirs.steps, strict=True):
            assert (step.screen, step.thought, step.error) == (again.screen, again.thought, again.error)
            assert step.about == again.about and step.extra == again.extra
            assert near(step.action, again.action), (step.action, again.action)


@pytest.mark.parametrize("style", ["agentnet", "scalecua"])
@settings(deadline=None)
@given(action=ACTIONS | st.sampled_from([LeftDouble(), TripleClick(), Scroll(direction="up")]))
def test_an_action_is_written_as_code_and_read_back(style: Style, action: Action) -> None:
    code = write_code(action, style)
    assert read_code(code, lambda x, y: (x, y))[0] == action


def test_what_has_no_call_of_theirs_is_written_so_that_their_readers_refuse_it() -> None:
    assert write_code(action_of({"type": "press_home"}), "agentnet") == "flywheel.press_home()"
    assert write_code(action_of({"type": "press_home"}), "scalecua") == "navigate_home()"


def test_a_call_without_a_point_is_where_the_pointer_was_left() -> None:
    _, pointer = read_code("pyautogui.click(x=0.25, y=0.5)", lambda x, y: (x, y))
    assert read_code("pyautogui.scroll(-2)", lambda x, y: (x, y), pointer)[0] == Scroll(x=0.25, y=0.5, direction="down")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("pyautogui.click(0.5, 0.25, 2)", "left_double"),
        ("pyautogui.click(0.5, 0.25, 1, 0.1, 'right')", "right_single"),
        ("click(0.5, 0.25, 1, 'right')", "right_single"),
        ("pyautogui.click(0.5, 0.25, button='primary')", "click"),
        ("pyautogui.doubleClick(0.5, 0.25)", "left_double"),
        ("pyautogui.rightClick(x=0.5, y=0.25)", "right_single"),
        ("pyautogui.middleClick(x=0.5, y=0.25)", "middle_single"),
        ("computer.tripleClick(x=0.5, y=0.25)", "triple_click"),
        ("pyautogui.click(0.5, 0.25, 3)", "triple_click"),
        ("pyautogui.moveTo(0.5, 0.25)", "move"),
        ("pyautogui.mouseDown(0.5, 0.25)", "mouse_down"),
        ("long_press(x=0.5, y=0.25)", "long_press"),
    ],
)
def test_clicks_and_button_count_wherever_they_are_given(code: str, kind: str) -> None:
    assert read_code(code, lambda x, y: (x, y))[0] == action_of({"type": kind, "x": 0.5, "y": 0.25})


@pytest.mark.parametrize(
    "code",
    [
        "pyautogui.doubleClick(x=0.5, y=0.25, button='right')",
        "pyautogui.doubleClick(0.5, 0.25, 0.0, 'middle')",
        "pyautogui.click(0.5, 0.25, 4)",
        "pyautogui.click(0.5, 0.25, clicks=0)",
        "pyautogui.click(0.5, 0.25, [2])",
    ],
)
def test_clicks_that_are_no_action_of_ours_are_never_taken_for_others(code: str, sentence: Sentences) -> None:
    with sentence.raises(NoAction):
        read_code(code, lambda x, y: (x, y))


def test_an_answer_that_ends_a_trajectory_is_what_it_says() -> None:
    code = "computer.terminate(status='success', answer='42')"
    assert read_code(code, lambda x, y: (x, y))[0] == action_of({"type": "finished", "content": "42"})


FAILURES = (
    "computer.terminate(status='failure')",
    "terminate('failure')",
    "computer.terminate(status='infeasible', info='no such file: a.txt')",
    "FAIL",
)


def meant_by(code: str) -> CallUser:
    return CallUser(content="no such file: a.txt" if "info" in code else "")


@pytest.mark.parametrize("code", FAILURES)
def test_a_failure_that_is_declared_asks_for_a_person_as_a_policys_does(code: str) -> None:
    played = play(code, lambda x, y: (x, y))
    assert (read_code(code, lambda x, y: (x, y))[0],) == played.actions == (meant_by(code),)


@pytest.mark.parametrize("code", FAILURES)
@pytest.mark.parametrize("operation", ["Give up.", ""])
def test_a_failure_of_a_record_is_written_back_as_it_was_and_as_one_in_every_other_format(
    code: str, operation: str, tmp_path: Path
) -> None:
    (tmp_path / "a.png").write_bytes(picture(1).png)
    entry = {"index": 0, "image": "a.png", "value": {"code": code}}
    asked = "<image>\nTask: Open it.\nPrevious operations:\nNone"
    answer = f"<operation>\n{operation or code}\n</operation>\n<action>\n{code}\n</action>"
    turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
    theirs: dict[str, dict[str, Any]] = {
        "agentnet": {"task_id": "one", "instruction": "Open it.", "traj": [entry], "task_completed": True},
        "scalecua": {"image": "a.png", "conversations": turns},
    }
    for name, row in theirs.items():
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row))
        form = FORMATS.class_of(name)()
        (record,) = taken(form, tmp_path / f"{name}.jsonl")
        assert [step.action for step in record.steps] == [meant_by(code)]
        out = written(form, [record], tmp_path / "out" / name)
        (again,) = taken(form, out)
        assert again.steps == record.steps
        assert json.dumps(code)[1:-1] in (out / f"{name}.jsonl").read_text()
        for other in FORMATS.names:
            there = FORMATS.class_of(other)()
            (same,) = taken(there, written(there, [record], tmp_path / "others" / name / other))
            assert [step.action for step in same.steps] == [meant_by(code)], other


def test_a_failure_without_a_code_of_its_own_is_one_in_agentnets_words_and_an_answer_of_that_word_is_none() -> None:
    assert write_code(CallUser(), "agentnet") == "computer.terminate(status='failure')"
    for style in ("agentnet", "scalecua"):
        said = Finished(content="failure: disk full")
        assert read_code(write_code(said, style), lambda x, y: (x, y))[0] == said


def test_what_a_step_was_found_to_be_goes_round_in_agentnets_columns(tmp_path: Path) -> None:
    form = FORMATS.class_of("agentnet")()
    step = ExchangedStep(picture(1), actions=(action_of({"type": "wait"}),), found=found())
    record = Exchanged("one", "Wait.", (step,))
    assert taken(form, written(form, [record], tmp_path / "out"))[0].steps[0].found == found()


def waits(count: int) -> Exchanged:
    steps = tuple(ExchangedStep(picture(at % 6), actions=(action_of({"type": "wait"}),)) for at in range(count))
    return Exchanged("t", "Wait.", steps, True, None, About(lake="l", trajectory_id="t"))


def test_a_row_without_the_rows_before_it_teaches_its_own_step_alone(tmp_path: Path) -> None:
    form = FORMATS.class_of("ui-tars")()
    file = written(form, [waits(7)], tmp_path) / "ui-tars.jsonl"
    file.write_text(file.read_text().splitlines()[-1] + "\n")
    (alone,) = taken(form, file)
    assert [alone.is_target(step) for step in range(len(alone.steps))] == [False, False, False, False, True]


@pytest.mark.parametrize("name", ["verl", "scalecua", "trl"])
@pytest.mark.parametrize("replayed", [{"replayed": 1}, {"continues": "failed", "replayed": 0}])
def test_targets_whose_trajectory_was_left_behind_are_refused(
    name: str, replayed: dict[str, object], tmp_path: Path, sentence: Sentences
) -> None:
    form, record = FORMATS.class_of(name)(), waits(2)
    partial = replace(record, about=record.about.model_copy(update=replayed))
    folder = written(form, [partial], tmp_path)
    assert len(taken(form, folder)) == 1
    (file,) = [*folder.glob("*.jsonl"), *folder.glob("verl.parquet"), *folder.glob("trl-completions.parquet")]
    sentence(refused(form, file, images=folder))


def test_a_row_of_others_that_a_person_corrected_has_its_loss_on_the_correction(tmp_path: Path) -> None:
    form, given = FORMATS.class_of("ui-tars")(), action_of({"type": "type", "content": "meant"})
    said = [("user", "Wait."), ("user", "<image>"), ("assistant", "Action: wait()")]
    messages = [{"role": role, "content": text, "loss_mask": int(role == "assistant")} for role, text in said]
    about = StepAbout(correction=Correction(action=to_json(given), taught=True))
    step = ExchangedStep(picture(1), actions=(action_of({"type": "wait"}),), about=about)
    record = replace(waits(1), steps=(step,), extra={"ui-tars": {"messages": messages, "unit": "thousandths"}})
    first, second = (written(form, [record], tmp_path) / "ui-tars.jsonl").read_text().splitlines()
    assert '"loss_mask": 1' not in first and second.count('"loss_mask": 1') == 1 and "meant" in second
    (back,) = taken(form, tmp_path)
    assert back.steps[0].about.correction == about.correction and back.decisions[0].action == to_json(given)
