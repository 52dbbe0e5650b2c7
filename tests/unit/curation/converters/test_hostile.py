"""Records of others are taken for hostile: refused by file, line and field; nothing outside their folder is read."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.converters.agentnet import AgentNet
from curation.converters.chat import split
from curation.converters.exchanged import Exchanged, ExchangedStep, RecordRefused
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS, Format
from curation.converters.lerobot import SCHEMA, LeRobot
from curation.converters.scalecua import ScaleCua
from curation.converters.trl import Trl
from curation.converters.ui_tars import UiTars
from curation.converters.verl import Verl
from schemas.action import Action, Click, OpenApp, Type, Wait
from schemas.failure import UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, read, refused, taken, written


def line(code: object = "pyautogui.click(x=0.5, y=0.5)", image: str = "a.png", **more: Any) -> dict[str, Any]:
    return {"task_id": "one", "instruction": "Do it.", "traj": [{"image": image, "value": {"code": code}}], **more}


def file_of(folder: Path, *lines: object) -> Path:
    (folder / "a.png").write_bytes(picture(1).png)
    file = folder / "theirs.jsonl"
    file.write_text("".join((one if isinstance(one, str) else json.dumps(one)) + "\n" for one in lines))
    return file


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("{", "theirs.jsonl, line 1: not JSON"),
        ('{"task_id": "one"', "line 1: not JSON: Expecting ',' delimiter: character 18 of the line"),
        (
            '{"a": 1, nil}',
            "line 1: not JSON: Expecting property name enclosed in double quotes: character 10 of the line",
        ),
        ("[" * 100_000, "line 1: not JSON"),
        ("[1]", "line 1: should be an object"),
        (line(image="../secret.png"), "line 1, traj.0.image: '../secret.png' leads out"),
        (line(image="/etc/passwd"), "traj.0.image: '/etc/passwd' is absolute"),
        (line(image="link.png"), "traj.0.image: 'link.png' leads out"),
        (line(image=""), "traj.0.image: no screenshot"),
        (line(image="a\0.png"), "traj.0.image: a NUL is not text"),
        (line(image="\ud800.png"), "traj.0.image: half of a character, '\\ud800', is not text"),
        (line(image="x" * 5000), "traj.0.image"),
        (line(image="none.png"), "traj.0.image: there is no image 'none.png'"),
        (line(image="text.png"), "traj.0.image: no image in 'text.png': it is none of PNG"),
        (line(image="half.png"), "traj.0.image: no image in 'half.png'"),
        (line(traj=[]), "line 1, traj: no steps"),
        (line(instruction="x" * 100_001), "instruction: 100,001 characters"),
        (line(code="pyautogui.click(x=1.5, y=0.5)"), "traj.0.value.code: (1.5, 0.5) is not a point"),
        (line(code="pyautogui.click(x=1e999, y=0.5)"), "traj.0.value.code: (inf, 0.5) is not a point"),
        (line(code=7), "traj.0.value.code: should be a valid string"),
        (line(task_completed="perhaps"), "task_completed: should be a valid boolean"),
        (line(flywheel={"trajectory": {"seed": 1_000_000}}), "flywheel.trajectory.seed: seed 1000000 measures"),
        (line(flywheel={"trajectory": {"reward": 7}}), "flywheel.trajectory.reward"),
        (line(flywheel={"trajectory": {"reward": float("nan")}}), "flywheel.trajectory.reward"),
        (line(flywheel={"trajectory": {"wall_s": float("inf")}}), "flywheel.trajectory.wall_s"),
        (line(flywheel={"trajectory": {"wall_s": 1e300}}), "flywheel.trajectory.wall_s"),
        (line(flywheel={"trajectory": {"iteration": 2**31}}), "flywheel.trajectory.iteration"),
        (
            line(flywheel={"trajectory": {"trajectory_id": "a", "continues": "a"}}),
            "trajectory.continues: a continues itself",
        ),
        (line(flywheel={"steps": [{}, {}]}), "line 1, flywheel.steps: it describes 2 steps, and the record has 1"),
        (line(instruction="half \ud800 a letter"), "line 1, instruction: half of a character"),
        (line(mood={"deep": ["fine", "\ud801"]}), "line 1, mood.deep.1: half of a character"),
        (line(mood={"a\0": 1}), "line 1, mood: a NUL is not text"),
        (line(mood=json.loads("[" * 160 + "]" * 160)), "line 1, mood"),
    ],
)
def test_a_bad_record_is_refused_by_line_and_field(tmp_path: Path, bad: object, said: str) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "secret.png").write_bytes(picture(2).png)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    (folder / "text.png").write_text("no image")
    (folder / "half.png").write_bytes(picture(1).png[:60])
    assert said in refused(AgentNet(), file_of(folder, bad, line()))


PARSEC = {"unit": "parsec"}
TURNS = [{"from": "human", "value": "Task: Do it.\nPrevious operations:\nNone"}, {"from": "gpt", "value": "wait()"}]
CHAT = [{"role": "user", "content": "Do it."}, {"role": "user", "content": "<image>"}]
VERL: dict[str, Any] = {"prompt": CHAT, "images": ["a.png"], "reward_model": {"ground_truth": "Action: wait()"}}
TARS = [*CHAT, {"role": "assistant", "content": "Action: wait()"}]


@pytest.mark.parametrize(
    ("form", "bad", "said"),
    [
        (ScaleCua(), {"image": "a.png", "conversations": [{"from": "human"}]}, "conversations.0.value: it is missing"),
        (ScaleCua(), {"image": "a.png", "conversations": [TURNS[0], {"from": "gpt"}]}, "conversations.1.value"),
        (ScaleCua(), {"image": "a.png", "conversations": TURNS, "flywheel": PARSEC}, "flywheel.unit: there is no unit"),
        (UiTars(), {"messages": TARS, "images": ["a.png"], "flywheel": PARSEC}, "flywheel.unit: there is no unit"),
        (Trl(), {"messages": TARS, "image": "a.png", "flywheel": json.dumps(PARSEC)}, "flywheel.unit: there is no"),
        (Verl(), {**VERL, "extra_info": {"flywheel": json.dumps(PARSEC)}}, "flywheel.unit: there is no unit"),
        (Verl(), {**VERL, "data_source": 7}, "data_source: should be a valid string"),
        (Verl(), {**VERL, "extra_info": {"index": 10**30}}, "extra_info.index: should be less than"),
        (AgentNet(), line(flywheel=PARSEC), "flywheel.unit: there is no unit"),
    ],
)
def test_a_key_that_is_not_there_or_says_nothing_is_refused_in_every_format(
    tmp_path: Path, form: Format, bad: object, said: str
) -> None:
    assert f"theirs.jsonl, line 1, {said}" in refused(form, file_of(tmp_path, bad), unit="thousandths")


def test_a_frame_s_number_that_is_none_is_refused_by_row(tmp_path: Path, sentence: Sentences) -> None:
    form = LeRobot()
    folder = written(form, [Exchanged("t", "Do it.", (ExchangedStep(picture(1)),))], tmp_path / "set")
    (file,) = folder.glob("data/*/*.parquet")
    (row,) = pq.read_table(file).to_pylist()
    pq.write_table(pa.Table.from_pylist([{**row, "frame_index": "first"}]), file)
    of_row, of_episode = map(str, read(form, folder))
    sentence(of_row, "frame_index")
    sentence(of_episode)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((0, 2, 3), "1 frames of episode 0 can be read in turn, and it has 2"),
        ((1, 2, 3), "1 frames of episode 0 can be read in turn, and it has 2"),
        ((0, 1), "meta/episodes, episode_index: no frame of episode 1 can be read in data/"),
        ((0, 1, 3, 2), "2 frames of episode 1 can be read in turn, and it has 2"),
    ],
)
def test_an_episode_that_is_not_whole_is_refused_and_others_are_read(
    tmp_path: Path, rows: tuple[int, ...], said: str
) -> None:
    form = LeRobot()
    steps = ExchangedStep(picture(1), actions=(Wait(),)), ExchangedStep(picture(2), actions=(Wait(),))
    records = [Exchanged(name, "Do it.", steps) for name in ("t", "u")]
    folder = written(form, records, tmp_path / "set")
    (file,) = folder.glob("data/*/*.parquet")
    frames = pq.read_table(file).to_pylist()
    pq.write_table(pa.Table.from_pylist([frames[row] for row in rows], schema=SCHEMA), file)
    assert said in refused(form, folder)
    assert [len(one.steps) for one in read(form, folder) if isinstance(one, Exchanged)] == [2]


def test_texts_in_a_lerobot_folder_that_are_none_are_refused_with_their_file(
    tmp_path: Path, sentence: Sentences
) -> None:
    form = LeRobot()
    folder = written(form, [Exchanged("t", "Do it.", (ExchangedStep(picture(1)),))], tmp_path / "set")
    tasks = folder / "meta" / "tasks.parquet"
    for bad, said in ((None, "a task is null"), (b"Do \x82 it.", "invalid start byte")):
        texts = pa.array([bad], pa.binary()).view(pa.string())
        pq.write_table(pa.table({"task_index": [0], "task": texts}), tasks)
        with sentence.raises(UsageError, "tasks.parquet", said):
            read(form, folder)


def test_a_part_of_a_message_with_a_number_for_its_text_goes_out_as_it_was_read(tmp_path: Path) -> None:
    asked = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": 7}]}
    row = {"messages": [asked, TARS[-1]], "image": "a.png"}
    (record,) = taken(Trl(), file_of(tmp_path, row), unit="thousandths")
    again = taken(Trl(), written(Trl(), [record], tmp_path / "out"))
    assert [one.instruction for one in again] == [record.instruction] == ["7"]


def test_a_thought_of_any_length_up_to_the_limit_is_taken_and_beyond_it_refused(tmp_path: Path) -> None:
    entry = line()
    entry["traj"][0]["value"]["thought"] = "x" * 100_000
    assert len(taken(AgentNet(), file_of(tmp_path, entry))[0].steps[0].thought) == 100_000
    entry["traj"][0]["value"]["thought"] += "x"
    assert "steps.0.thought: 100,001 characters" in refused(AgentNet(), file_of(tmp_path, entry))


@pytest.mark.parametrize(
    "begun",
    [
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+12:00",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
        "2199-12-31T23:59:59-01:00",
        "2200-01-01T00:00:00Z",
        10**13,
    ],
)
def test_a_beginning_out_of_the_time_that_a_lake_and_python_hold_is_refused(
    tmp_path: Path, begun: object, sentence: Sentences
) -> None:
    bad = line(flywheel={"trajectory": {"started_at": begun}})
    said = refused(AgentNet(), file_of(tmp_path, line(), bad))
    sentence.lines(said, "theirs.jsonl", "flywheel.trajectory.started_at")
    sentence(said)


def test_a_beginning_of_any_zone_within_that_time_is_taken(tmp_path: Path) -> None:
    begun = ["1970-01-01T00:00:00Z", "1969-12-31T23:00:00-01:00", "2200-01-01T00:59:59+01:00"]
    lines = [line(flywheel={"trajectory": {"started_at": one}}) for one in begun]
    assert [one.about.started_at is not None for one in taken(AgentNet(), file_of(tmp_path, *lines))] == [True] * 3


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"trajectory": {"task_id": "\ud800"}}, "flywheel: "),
        ({"trajectory": {"continues": "a\0"}}, "flywheel: trajectory.continues: a NUL is not text"),
        ({"trajectory": {"started_at": "9999-12-31T23:59:59-12:00"}}, "flywheel.trajectory.started_at"),
        ({"steps": [{}, {}]}, "flywheel.steps: it describes 2 steps, and the record has 1"),
    ],
)
def test_metadata_that_a_format_keeps_as_text_is_refused_as_any(
    tmp_path: Path, known: dict[str, Any], said: str
) -> None:
    row = {"messages": TARS, "image": "a.png", "flywheel": json.dumps(known)}
    found = refused(Trl(), file_of(tmp_path, row), unit="thousandths")
    assert f"theirs.jsonl, line 1, {said}" in found


@pytest.mark.parametrize(
    "code",
    [
        "__import__('os').system('touch ran')",
        "import os\nos.system('touch ran')",
        "pyautogui.click(x=open('a').read(), y=1)",
        "pyautogui.click(",
        "while True: pass",
        "pyautogui.middleClick(x=0.5, y=0.5, clicks=2)",
        "pyautogui.click(x='a', y='b')",
        "pyautogui.click(x=0.5, y=0.5)\npyautogui.click(x=0.6, y=0.5)",
        "flywheel.click(x=7, y=0.5)",
        "flywheel.nothing()",
        "(" * 5000,
        "",
    ],
)
def test_code_is_never_run_and_what_it_means_nothing_to_us_is_kept_as_text(
    tmp_path: Path, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (record,) = taken(AgentNet(), file_of(tmp_path, line(code)))
    (step,) = record.steps
    assert step.action is None and step.error and step.text == code
    assert not (tmp_path / "ran").exists()


def test_a_good_record_beside_bad_ones_is_still_read_and_each_bad_one_named(tmp_path: Path) -> None:
    found = read(AgentNet(), file_of(tmp_path, "{", line(), "", line(image="b.png")))
    assert [isinstance(one, RecordRefused) for one in found] == [True, False, True]
    assert "line 4" in str(found[2])


def test_pixels_are_refused_unless_the_command_names_their_unit(tmp_path: Path) -> None:
    file = file_of(tmp_path, line(code="pyautogui.click(x=25, y=10)"))
    assert "--unit" in refused(AgentNet(), file)
    (record,) = taken(AgentNet(), file, unit="pixels")
    assert record.steps[0].action and record.steps[0].action.model_dump() == {"type": "click", "x": 0.5, "y": 0.25}


def test_what_is_not_there_is_said_before_anything_is_read(tmp_path: Path, sentence: Sentences) -> None:
    with sentence.raises(UsageError):
        ImportSource(tmp_path / "none")
    with pytest.raises(UsageError, match="`--images`"):
        ImportSource(tmp_path, tmp_path / "none")
    with sentence.raises(UsageError):
        read(AgentNet(), tmp_path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("count", [3, 32, 33])
def test_a_reply_with_more_actions_than_a_policy_performs_is_kept_as_text(tmp_path: Path, count: int) -> None:
    reply = "Thought: Write.\nAction: click(start_box='(500,500)')" + "\n\ntype(content='a')" * (count - 1)
    form, screen = UiTars(), "<image>"
    turns = [("system", "Act."), ("user", "Write a."), ("user", screen), ("assistant", reply)]
    record = {"messages": [{"role": role, "content": text} for role, text in turns], "images": ["0.png"]}
    (tmp_path / "0.png").write_bytes(picture(0).png)
    (tmp_path / "ui-tars.jsonl").write_text(json.dumps(record) + "\n")
    (read,) = taken(form, tmp_path / "ui-tars.jsonl", unit="thousandths")
    (step,) = read.steps
    kept = (0, "33 actions in one reply", reply)
    assert (len(step.actions), step.error, step.text) == (kept if count == 33 else (count, None, ""))


def test_a_thought_cannot_put_another_action_in_the_place_of_a_step_s(tmp_path: Path) -> None:
    form = ScaleCua()
    thought = "x</think><operation>o</operation><action>click(x=0.9, y=0.9)</action>"
    step = ExchangedStep(picture(0), thought, (Click(x=0.1, y=0.1),))
    out = written(form, [Exchanged("i", "Click.", (step,), True)], tmp_path)
    answer = json.loads((out / "scalecua.jsonl").read_text())["conversations"][1]["value"]
    assert answer.count("<action>") == 1
    (back,) = taken(form, out)
    assert back.steps[0].action == Click(x=0.1, y=0.1)


@pytest.mark.parametrize("thought", ["", "a", "a </think> b", "<action>click(x=0.9, y=0.9)</action>", "</operation>"])
@pytest.mark.parametrize(
    "text", ["</think>", "</operation>", "</action>", "<action>", "</think><operation>a</operation>"]
)
def test_scalecuas_tags_within_a_typed_text_come_back_as_text(tmp_path: Path, text: str, thought: str) -> None:
    steps = tuple(ExchangedStep(picture(0), thought, (one,)) for one in (Type(content=text), OpenApp(app_name=text)))
    (back,) = taken(ScaleCua(), written(ScaleCua(), [Exchanged("i", "Type it.", steps, True)], tmp_path))
    assert [step.action for step in back.steps] == [step.action for step in steps]
    assert [step.thought for step in back.steps] == [thought, thought]


@pytest.mark.parametrize("spaces", [" ", "  ", "   "])
@pytest.mark.parametrize("before", ["a\n", "a\n \t", "a\nPrevious operations:\n", "", "a "])
@pytest.mark.parametrize("action", [Click(x=0.1, y=0.1), Type(content="</think>")])
def test_scalecuas_heading_within_an_instruction_comes_back_as_text(
    tmp_path: Path, before: str, spaces: str, action: Action
) -> None:
    form, asked = ScaleCua(), f"{before}Previous{spaces}operations: bz\nStep 1: c"
    first = Exchanged("i", asked, (ExchangedStep(picture(0), "", (action,)),) * 2, True)
    (back,) = taken(form, written(form, [first], tmp_path / "one"))
    (again,) = taken(form, written(form, [back], tmp_path / "two"))
    assert [(one.instruction, len(one.steps)) for one in (back, again)] == [(asked, 2)] * 2


@pytest.mark.parametrize(
    "piece", ["\n", " \n", "\nPrevious  ", "Task:", "<think>", "</think> ", "<operation>", "</operation>", "<action>"]
)
def test_scalecuas_rows_are_read_in_time_that_grows_as_their_length(tmp_path: Path, piece: str) -> None:
    text = piece * (60_000 // len(piece))
    row = {"image": "a.png", "conversations": [
        {"from": "human", "value": f"<image>\nTask:{text}\nPrevious operations:\nNone"},
        {"from": "gpt", "value": f"<think>\n{text}\n</think>\n<action>\nwait()\n</action>"},
    ]}  # fmt: skip
    (tmp_path / "a.png").write_bytes(picture(0).png)
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    began = time.process_time()
    assert len(read(ScaleCua(), tmp_path)) == 1
    assert time.process_time() - began < 2


@pytest.mark.parametrize("name", ["ui-tars", "trl", "verl"])
@pytest.mark.parametrize(
    "thought",
    ["the <think> tag", "<think>", "a </think> b", "</seed:think>", "press <function=wait> now", "a\nAction: wait()"],
)
def test_a_thought_of_markup_comes_back_with_its_action(tmp_path: Path, name: str, thought: str) -> None:
    form = FORMATS.class_of(name)()
    step = ExchangedStep(picture(0), thought, (Type(content="a </think> <function=finished>"),))
    (back,) = taken(form, written(form, [Exchanged("i", "Type it.", (step,), True)], tmp_path))
    assert [(one.thought, one.action) for one in back.steps] == [(thought, step.action)]


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize("text", ["[" * 900 + "0" + "]" * 900, "[" * 100_000, '{"loss":' * 900 + "0" + "}" * 900])
def test_a_mask_that_is_nested_deeply_ends_no_import(tmp_path: Path, name: str, text: str) -> None:
    turns = [{"role": "user", "content": "<image>Open"}, {"role": "assistant", "content": "Action: wait()"}]
    turns[1]["loss"] = text
    (tmp_path / "0.png").write_bytes(picture(0).png)
    (tmp_path / "rows.jsonl").write_text(json.dumps({"messages": turns, "images": ["0.png"]}) + "\n")
    form = FORMATS.class_of(name)()
    if not text.endswith(("]", "}")):
        assert "messages.1.loss: '[[[" in refused(form, tmp_path / "rows.jsonl", unit="thousandths")
        return
    (record,) = taken(form, tmp_path / "rows.jsonl", unit="thousandths")
    assert record.steps[0].about.target is False


@pytest.mark.parametrize("piece", ["<|vision_start|>", "<|vision_start|>a", "<image", "<|vision_end|>", "<|"])
def test_the_texts_of_a_chat_are_read_in_time_that_grows_as_their_length(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    began = time.process_time()
    assert split(text) == [text]
    assert time.process_time() - began < 2
    assert split(f"<|vision_start|>{text}<|vision_start|>a<|vision_end|>b")[-2:] == [None, "b"]
