"""Records with the peers' own columns are read, and what they hold is written back in the same format."""

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from curation.converters.code import read_code
from curation.converters.exchanged import Exchanged, ExchangedStep
from curation.converters.format import FORMATS
from curation.converters.rows import Import, exchanged_of, rows_of
from curation.gates.actions import ActionsGate
from curation.gates.gate import GateContext
from models.families.code.calls import NoAction
from schemas.action import (
    Action,
    CallUser,
    Click,
    Drag,
    Finished,
    Hotkey,
    OpenApp,
    Press,
    Release,
    Scroll,
    Type,
    Wait,
    to_json,
)
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.table import utc_now
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, refused, taken, written


def source(folder: Path, name: str, *lines: Any, pictures: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    for number in range(pictures):
        (folder / f"{number}.png").write_bytes(picture(number).png)
    text = json.dumps(lines[0]) if name.endswith(".json") else "".join(json.dumps(one) + "\n" for one in lines)
    (folder / name).write_text(text)
    return folder / name


def lines_of(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_agentnets_columns_stay(tmp_path: Path) -> None:
    looked = {"last_step_correct": False, "last_step_redundant": True, "reflection": "It missed."}
    value = {
        "code": "pyautogui.moveTo(x=0.1, y=0.2)\npyautogui.scroll(-3)",
        "observation": "A list.",
        "thought": "Down.",
    }
    last = {"code": "pyautogui.click(x=0.1, y=0.2, clicks=4)", "action": "Select the line.", "thought": ""}
    traj = [
        {"index": 0, "image": "0.png", "value": {**value, **looked}},
        {"index": 1, "image": "1.png", "value": last},
    ]
    scores = {"alignment_score": 8, "efficiency_score": 7, "task_difficulty": 6, "reason": "Fine.", "domain": "desktop"}
    record = {"task_id": "a1", "instruction": "Scroll.", "traj": traj, "task_completed": True, **scores}
    form = FORMATS.class_of("agentnet")()
    (read,) = taken(form, source(tmp_path / "in", "theirs.jsonl", record))
    assert read.steps[0].action == Scroll(x=0.1, y=0.2, direction="down")
    assert read.steps[1].action is None and read.steps[1].text == last["code"] and read.success
    (back,) = lines_of(written(form, [read], tmp_path / "out") / "agentnet.jsonl")
    assert back.pop("flywheel")["unit"] == "fraction"
    for entry, ours in zip(traj, back["traj"], strict=True):
        assert {**entry["value"], "thought": entry["value"]["thought"]} == {"thought": "", **ours["value"]}
    assert {key: back[key] for key in (*scores, "task_id", "instruction", "task_completed")} == {
        key: record[key] for key in (*scores, "task_id", "instruction", "task_completed")
    }


@pytest.mark.parametrize(
    ("code", "then"),
    [
        ("pyautogui.click(x=0.5, y=0.2500, clicks=4)", Drag(x=0.5, y=0.25, to_x=0.9, to_y=0.9)),
        ("pyautogui.doubleClick(x=0.5,y=0.25, button='right')", Drag(x=0.5, y=0.25, to_x=0.9, to_y=0.9)),
        ("pyautogui.press(keys=['a', 'b'])", Drag(x=0.1, y=0.1, to_x=0.9, to_y=0.9)),
        ("pyautogui.moveRel(3, 4)", None),
        ("no code", None),
    ],
)
def test_code_that_is_no_action_of_ours_is_kept_as_it_is_with_the_steps_before_it_and_no_step_after_it_is_misread(
    tmp_path: Path, code: str, then: Drag | None
) -> None:
    codes = ["pyautogui.click(x=0.1, y=0.1)", code, "pyautogui.dragTo(x=0.9, y=0.9)"]
    values = [{"code": one, "thought": "T."} for one in codes]
    traj = [{"index": at, "image": f"{at}.png", "value": one} for at, one in enumerate(values)]
    record = {"task_id": "a1", "instruction": "Select the line.", "traj": traj, "task_completed": True}
    form = FORMATS.class_of("agentnet")()
    (taken_in,) = taken(form, source(tmp_path / "in", "theirs.jsonl", record))
    of = Import("lake", "run", -2, "import/a", frozenset(), "import:agentnet:a", False, utc_now())
    rows = rows_of(taken_in, of)
    found = ActionsGate(Section()).check(rows.trajectory, rows.steps, GateContext())
    assert (found.passed, found.error_step) == (False, 1)
    assert [step.action_error is None for step in rows.steps] == [True, False, then is not None]
    assert rows.steps[2].first == (then and to_json(then))
    screens = {one.screen.sha256: one.screen for one in taken_in.steps}
    stored = exchanged_of("lake", rows.trajectory, rows.steps, screens, {})
    (back,) = lines_of(written(form, [stored], tmp_path / "out") / "agentnet.jsonl")
    assert [entry["value"] for entry in back["traj"]] == values


def test_scalecuas_rows_that_go_on_with_each_other_are_one_trajectory(tmp_path: Path) -> None:
    def row(
        image: str, before: str, think: str, operation: str, code: str, task: str = "Read my book."
    ) -> dict[str, Any]:
        asked = f"<image>\nPlease go on.\n\nTask: {task}\n\nPrevious operations:\n{before}"
        answer = f"<think>\n{think}\n</think>\n<operation>\n{operation}\n</operation>\n<action>\n{code}\n</action>"
        said = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
        return {"image": image, "conversations": said, "width": 50, "height": 40}

    first = row("a/0.png", "None", "An app.", "Open the app", "open_app(app_name='Books')")
    second = row("1.png", 'Step 1: "Open the app"', "A tab.", "Click the tab", "click(x=0.3674, y=0.9192)")
    swiped = row("2.png", "None", "More.", "Swipe up", "swipe(direction='up', amount=0.5)", task="See more.")
    file = source(tmp_path / "in", "theirs.jsonl", first, second, swiped)
    (tmp_path / "in" / "a").mkdir()
    (tmp_path / "in" / "a" / "0.png").write_bytes(picture(0).png)
    form = FORMATS.class_of("scalecua")()
    one, other = taken(form, file)
    assert [step.action for step in one.steps] == [OpenApp(app_name="Books"), Click(x=0.3674, y=0.9192)]
    assert [step.thought for step in one.steps] == ["An app.", "A tab."]
    assert other.steps[0].action == Drag(x=0.5, y=0.75, to_x=0.5, to_y=0.25)
    folder = written(form, [one, other], tmp_path / "out")
    back = lines_of(folder / "scalecua.jsonl")
    assert [line["conversations"] for line in back] == [line["conversations"] for line in (first, second, swiped)]
    assert [(line["width"], line["height"]) for line in back] == [(50, 40)] * 3
    mix = json.loads((folder / "meta.json").read_text())["flywheel"]
    assert (mix["annotation"], mix["length"], mix["repeat_time"]) == ("scalecua.jsonl", 3, 1)
    assert [len(again.steps) for again in taken(form, folder / "scalecua.jsonl")] == [2, 1]


MESSAGES = [
    {"role": "system", "content": "You help.", "loss_mask": 0},
    {"role": "user", "content": "You are an agent.\n\n## User Instruction\nBuy it.\n\n ", "loss_mask": 0},
    {"role": "assistant", "content": "Action: click(start_box='<|box_start|>(495,30)<|box_end|>')", "loss_mask": 0},
    {"role": "user", "content": "<|vision_start|><|image_pad|>...<|image_pad|><|vision_end|>", "loss_mask": 0},
    {"role": "assistant", "content": "Action: click(start_box='<|box_start|>(66,638)<|box_end|>')", "loss_mask": 0},
    {"role": "user", "content": "<|vision_start|><|image_pad|>...<|image_pad|><|vision_end|>", "loss_mask": 0},
    {"role": "assistant", "content": "Thought: Done.\nAction: finished()", "loss_mask": 1},
]


def test_a_row_of_ui_tars_stays_as_it_is_and_needs_its_unit_and_its_pictures(
    tmp_path: Path, sentence: Sentences
) -> None:
    form = FORMATS.class_of("ui-tars")()
    file = source(tmp_path / "in", "theirs.jsonl", {"messages": MESSAGES, "images": ["0.png", "1.png"], "site": "shop"})
    sentence(refused(form, file))
    (read,) = taken(form, file, unit="thousandths")
    assert read.instruction == "Buy it."
    assert [step.action for step in read.steps] == [Click(x=0.066, y=0.638), Finished()]
    (back,) = lines_of(written(form, [read], tmp_path / "out") / "ui-tars.jsonl")
    assert (back["messages"], back["site"], back["flywheel"]["unit"]) == (MESSAGES, "shop", "thousandths")
    assert taken(form, tmp_path / "out")[0].steps == read.steps
    bare = source(tmp_path / "bare", "theirs.json", MESSAGES)
    sentence(refused(form, bare, unit="thousandths"), "messages.3.content", "images")


def test_rows_of_trl_are_read_with_placeholders_or_without(tmp_path: Path, sentence: Sentences) -> None:
    reply = {"role": "assistant", "content": [{"type": "text", "text": "Action: hotkey(key='ctrl c')"}]}
    rows = [
        {"messages": [{"role": "user", "content": "Copy."}, reply], "images": ["0.png"], "tools": []},
        {"prompt": [{"role": "user", "content": "Copy."}], "chosen": [reply], "rejected": [reply], "images": ["1.png"]},
        {"prompt": [{"role": "user", "content": "Copy."}], "completion": [reply], "image": "2.png"},
    ]
    form = FORMATS.class_of("trl")()
    read = taken(form, source(tmp_path / "in", "theirs.jsonl", *rows), unit="thousandths")
    assert [step.action for one in read for step in one.steps] == [Hotkey(key="ctrl c")] * 3
    assert read[1].extra["trl"]["row"]["rejected"] == [reply]
    again = taken(form, written(form, read, tmp_path / "out"))
    assert [one.extra for one in again] == [one.extra for one in read]
    lone = source(tmp_path / "lone", "theirs.jsonl", {**rows[0], "images": ["0.png", "1.png"]})
    sentence(refused(form, lone, unit="thousandths"), "messages.0.content")


def test_a_row_of_verl_stays_as_it_is(tmp_path: Path) -> None:
    row = {
        "data_source": "their/shop",
        "prompt": [{"role": "user", "content": "<image>Click the cart."}],
        "images": [{"bytes": picture(0).png, "path": None}],
        "ability": "grounding",
        "reward_model": {"style": "rule", "ground_truth": "Action: click(point='<point>200 300</point>')"},
        "extra_info": {"split": "train", "index": 7, "answer": "cart"},
    }
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "in" / "theirs.parquet")
    form = FORMATS.class_of("verl")()
    (read,) = taken(form, tmp_path / "in", unit="thousandths")
    assert (read.instruction, read.steps[0].action) == ("Click the cart.", Click(x=0.2, y=0.3))
    (back,) = pq.read_table(written(form, [read], tmp_path / "out") / "verl.parquet").to_pylist()
    assert {key: back[key] for key in ("data_source", "prompt", "ability", "reward_model")} == {
        key: row[key] for key in ("data_source", "prompt", "ability", "reward_model")
    }
    assert (back["extra_info"]["split"], back["extra_info"]["index"]) == ("train", 7)
    assert read.extra["verl"]["row"]["extra_info"]["answer"] == "cart"
    (tmp_path / "in" / "theirs.parquet").write_bytes(b"PAR1 not really")
    assert "no Parquet" in refused(form, tmp_path / "in", unit="thousandths")


def test_a_document_of_atif_stays_as_it_is(tmp_path: Path, sentence: Sentences) -> None:
    shown = {"type": "image", "source": {"media_type": "image/png", "path": "0.png"}}
    after = {"type": "image", "source": {"media_type": "image/png", "path": "1.png"}}
    call = {"tool_call_id": "c1", "function_name": "click", "arguments": {"x": 25, "y": 10}}
    agent = {
        "step_id": 2,
        "source": "agent",
        "message": "",
        "reasoning_content": "There.",
        "model_name": "m",
        "tool_calls": [call],
        "observation": {"results": [{"source_call_id": "c1", "content": [after]}]},
        "metrics": {"prompt_tokens": 9},
    }
    asked = {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Click."}, shown]}
    document = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "theirs", "version": "2"},
        "steps": [asked, agent],
        "notes": "kept",
    }
    form = FORMATS.class_of("atif")()
    file = source(tmp_path / "in", "theirs.json", document)
    assert "flywheel.unit" in refused(form, file)
    (read,) = taken(form, file, unit="pixels")
    assert (read.steps[0].action, read.after) == (Click(x=0.5, y=0.25), picture(1))
    folder = written(form, [read], tmp_path / "out")
    back = json.loads((folder / "trajectories" / "000000.json").read_text())
    assert back.pop("extra")["flywheel"]["unit"] == "pixels"
    names = [part["source"]["path"] for part in (back["steps"][0]["message"][1],)]
    assert (folder / "trajectories" / names[0]).resolve().read_bytes() == picture(0).png
    back["steps"][0]["message"][1] = shown
    back["steps"][1]["observation"]["results"][0]["content"] = [after]
    assert back == document
    assert taken(form, folder)[0].steps == read.steps
    agent["tool_calls"][0]["arguments"]["x"] = True
    sentence(refused(form, source(tmp_path / "in", "theirs.json", document), unit="pixels"))


def test_an_atif_agent_that_first_asks_for_the_screen_has_done_nothing_yet(tmp_path: Path) -> None:
    def shown(number: int) -> list[dict[str, object]]:
        return [{"type": "image", "source": {"media_type": "image/png", "path": f"{number}.png"}}]

    def called(number: int, name: str, **arguments: object) -> dict[str, object]:
        call = {"tool_call_id": f"c{number}", "function_name": name, "arguments": arguments}
        seen = {"results": [{"source_call_id": f"c{number}", "content": shown(number)}]}
        return {"step_id": number + 2, "source": "agent", "message": "", "tool_calls": [call], "observation": seen}

    asked = {"step_id": 1, "source": "user", "message": "Click."}
    steps = [asked, called(0, "screenshot"), called(1, "click", x=25, y=10)]
    document = {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {}, "steps": steps}
    form = FORMATS.class_of("atif")()
    (read,) = taken(form, source(tmp_path / "in", "theirs.json", document), unit="pixels")
    assert [step.action for step in read.steps] == [Click(x=0.5, y=0.25)]
    assert (read.steps[0].screen, read.after) == (picture(0), picture(1))
    assert len(json.loads(next(written(form, [read], tmp_path / "out").glob("*/*.json")).read_text())["steps"]) == 3
    document["steps"] = [asked, called(0, "click", x=25, y=10)]
    file = source(tmp_path / "blind", "theirs.json", document)
    assert "before any screen" in refused(form, file, unit="pixels")


def test_a_data_set_of_robots_or_of_videos_is_refused_by_its_features(tmp_path: Path) -> None:
    form = FORMATS.class_of("lerobot")()
    (tmp_path / "meta").mkdir()
    info = {"codebase_version": "v3.0", "features": {"action": {"dtype": "float32", "shape": [7]}}}
    for change, said in (({}, "no action_json"), ({"codebase_version": "v2.1"}, "v3 is read")):
        (tmp_path / "meta" / "info.json").write_text(json.dumps({**info, **change}))
        with pytest.raises(UsageError, match=said):
            taken(form, tmp_path)
    features = {"action_json": {"dtype": "string"}, "observation.images.top": {"dtype": "video"}}
    (tmp_path / "meta" / "info.json").write_text(json.dumps({**info, "features": features}))
    with pytest.raises(UsageError, match="0 of dtype image"):
        taken(form, tmp_path)


def test_a_label_studio_task_of_others_is_a_step_that_its_first_answer_gives(
    tmp_path: Path, sentence: Sentences
) -> None:
    value = {"x": 50.0, "y": 25.0, "width": 0.4, "keypointlabels": ["right_single"]}
    result = {"type": "keypointlabels", "from_name": "kp", "to_name": "img", "original_width": 50, "value": value}
    task = {
        "id": 11,
        "data": {"image": "/data/local-files/?d=0.png", "instruction": "Open its menu.", "app": "files"},
        "annotations": [{"id": 3, "completed_by": 2, "result": [result], "lead_time": 1.5}],
        "project": 1,
    }
    form = FORMATS.class_of("label-studio")()
    (read,) = taken(form, source(tmp_path / "in", "theirs.json", [task]))
    assert read.steps[0].action and read.steps[0].action.model_dump() == {"type": "right_single", "x": 0.5, "y": 0.25}
    folder = written(form, [read], tmp_path / "out")
    (back,) = json.loads((folder / "tasks.json").read_text())
    assert back["data"]["app"] == "files" and back["annotations"] == task["annotations"] and back["project"] == 1
    value["x"] = 150.0
    said = refused(form, source(tmp_path / "in", "theirs.json", [task]))
    sentence.lines(said, "annotations.result.value.x")


def answered_task(folder: Path, *results: dict[str, Any], size: tuple[int, int] = (50, 40)) -> Path:
    """A task of others about a picture of this size, with one answer."""
    folder.mkdir()
    Image.new("RGB", size).save(folder / "0.png")
    task = {"data": {"image": "0.png", "instruction": "Open its menu."}, "annotations": [{"result": list(results)}]}
    (folder / "theirs.json").write_text(json.dumps([task]))
    return folder / "theirs.json"


@pytest.mark.parametrize("kind", ["polygonlabels", "brushlabels", "ellipselabels", "polygon"])
def test_a_region_that_says_no_point_is_refused_unless_another_gives_the_action(
    tmp_path: Path, kind: str, sentence: Sentences
) -> None:
    form = FORMATS.class_of("label-studio")()
    region = {"type": kind, "from_name": "shape", "value": {"points": [[1, 1], [2, 2], [3, 1]]}}
    said = refused(form, answered_task(tmp_path / "alone", region))
    sentence.lines(said, "annotations.0.result.0.type", kind)
    point = {"type": "keypointlabels", "from_name": "point", "value": {"x": 50, "y": 25, "keypointlabels": ["click"]}}
    (read,) = taken(form, answered_task(tmp_path / "both", region, point))
    assert read.steps[0].action == Click(x=0.5, y=0.25)


def test_a_point_with_a_label_that_is_no_action_is_refused_and_one_without_is_a_click(
    tmp_path: Path, sentence: Sentences
) -> None:
    form = FORMATS.class_of("label-studio")()
    point = {"type": "keypointlabels", "from_name": "kp", "value": {"x": 50, "y": 25, "keypointlabels": ["Button"]}}
    said = refused(form, answered_task(tmp_path / "named", point))
    sentence.lines(said, "annotations.result.value.keypointlabels", "'Button'")
    bare = {"type": "keypoint", "from_name": "kp", "value": {"x": 50, "y": 25}}
    assert taken(form, answered_task(tmp_path / "bare", bare))[0].steps[0].action == Click(x=0.5, y=0.25)


def test_a_task_of_json_min_is_refused_with_the_export_to_choose(tmp_path: Path) -> None:
    task = {"image": "0.png", "id": 1, "instruction": "Open it.", "point": [{"x": 1, "y": 1}], "annotator": 1}
    (tmp_path / "theirs.json").write_text(json.dumps([task]))
    said = refused(FORMATS.class_of("label-studio")(), tmp_path / "theirs.json")
    assert said.startswith("theirs.json, task 1, data: it is missing, as in JSON_MIN") and "as JSON" in said


def test_a_rectangle_of_a_label_studio_answer_points_at_its_centre(tmp_path: Path) -> None:
    """Centres: label-studio-sdk 2.1.3, `converter/utils.py`, the mean corner of `convert_annotation_to_yolo_obb`."""
    form = FORMATS.class_of("label-studio")()
    box = {"x": 20.0, "y": 10.0, "width": 30.0, "height": 20.0}
    cases = [
        ({**box, "rectanglelabels": ["left_double"]}, (100, 100), ("left_double", 0.35, 0.2)),
        ({**box, "rectanglelabels": ["Button"]}, (100, 100), ("click", 0.35, 0.2)),
        ({**box, "rotation": 90, "rectanglelabels": ["click"]}, (100, 100), ("click", 0.1, 0.25)),
        ({**box, "rotation": 90, "rectanglelabels": ["click"]}, (200, 100), ("click", 0.15, 0.4)),
        ({**box, "rotation": 30, "rectanglelabels": ["click"]}, (200, 100), ("click", 0.3049038, 0.3366025)),
    ]
    for number, (value, size, (kind, x, y)) in enumerate(cases):
        result = {"type": "rectanglelabels", "from_name": "box", "value": value}
        (read,) = taken(form, answered_task(tmp_path / str(number), result, size=size))
        action = read.steps[0].action
        assert action and action.model_dump() == {"type": kind, "x": pytest.approx(x), "y": pytest.approx(y)}


@pytest.mark.parametrize(("kind", "size"), [("rectangle", {"width": 20.0, "height": 10.0}), ("keypoint", {})])
def test_a_region_and_its_label_may_be_two_results_of_one_id(tmp_path: Path, kind: str, size: dict[str, float]) -> None:
    value = {"x": 40.0, "y": 20.0, **size}
    region = {"id": "a", "type": kind, "from_name": "where", "value": value}
    label = {"id": "a", "type": "labels", "from_name": "what", "value": {**value, "labels": ["right_single"]}}
    other = {"id": "b", "type": "labels", "from_name": "what", "value": {"labels": ["scroll"]}}
    (read,) = taken(FORMATS.class_of("label-studio")(), answered_task(tmp_path / "in", other, region, label))
    x, y = (0.5, 0.25) if size else (0.4, 0.2)
    assert read.steps[0].action and read.steps[0].action.model_dump() == {"type": "right_single", "x": x, "y": y}


@pytest.mark.parametrize("kind", ["keypointlabels", "rectanglelabels"])
def test_a_region_of_a_turned_picture_is_refused_by_its_field(tmp_path: Path, kind: str) -> None:
    form = FORMATS.class_of("label-studio")()
    value = {"x": 40.0, "y": 20.0, "width": 2.0, "height": 2.0, kind: ["click"]}
    for turn, fits in ((0, True), (360, True), (90, False), (-90, False), (180, False), ("270", False)):
        result = {"type": kind, "from_name": "where", "image_rotation": turn, "value": value}
        file = answered_task(tmp_path / f"{turn}", result)
        if fits:
            assert taken(form, file)[0].steps[0].action
        else:
            said = refused(form, file)
            assert "annotations.result.image_rotation" in said and f"turned by {turn} degrees" in said
    del value["x"]
    assert "without x and y" in refused(form, answered_task(tmp_path / "none", {"type": kind, "value": value}))


@pytest.mark.parametrize("name", FORMATS.names)
def test_what_is_none_of_a_format_is_refused_and_not_passed_over(
    name: str, tmp_path: Path, sentence: Sentences
) -> None:
    form = FORMATS.class_of(name)()
    suffixes = {"atif": "json", "label-studio": "json"}
    suffixes |= dict.fromkeys(("hf", "cua-lite", "cua-lite-hub", "trl", "verl"), "parquet")
    suffix = suffixes.get(name, "jsonl")
    (tmp_path / f"theirs.{suffix}").write_text('{"neither": "nor"}\n')
    if name in ("lerobot", "recording"):
        with sentence.raises(UsageError):
            taken(form, tmp_path)
    else:
        assert f"theirs.{suffix}" in refused(form, tmp_path, unit="fraction")


def test_a_lerobot_folder_that_is_missing_parts_or_garbled_is_named_with_the_file_and_what_to_do(
    tmp_path: Path,
) -> None:
    form, meta = FORMATS.class_of("lerobot")(), tmp_path / "in" / "meta"
    meta.mkdir(parents=True)
    info = json.dumps({"codebase_version": "v3.0", "features": {"action_json": {}, "screen": {"dtype": "image"}}})
    for file, content, said in (
        ("info.json", None, "there is no such file"),
        ("info.json", "{", "no JSON"),
        ("info.json", '{"codebase_version": "v3.0"}', "it has no `features`"),
        ("info.json", info, "tasks.parquet is not that of a LeRobot data set: there is no such file"),
        ("tasks.parquet", "PAR", "no Parquet of `task` and `task_index`"),
    ):
        if content is not None:
            (meta / file).write_text(content)
        with pytest.raises(UsageError) as refused:
            taken(form, tmp_path / "in")
        text = f"{refused.value} {refused.value.hint}"
        assert said in text and "`--format lerobot`" in text and "Name the folder" in text
        assert "Errno" not in text and str(meta) in text


KEYS = {
    "press(' ')": "space",
    "pyautogui.press('\\t')": "tab",
    "press('\\n')": "enter",
    "press('Enter')": "enter",
    "press('A')": "shift a",
    "hotkey('Ctrl', 'C')": "ctrl c",
    "hotkey(['ctrl', 'F'])": "ctrl f",
    "pyautogui.hotkey(keys=['ctrl', 'F'])": "ctrl f",
    "hotkey('ctrl', 'Shift', 'C')": "ctrl shift c",
    "hotkey('Ctrl', ' ')": "ctrl space",
    "hotkey('esc', 'C', 'shift')": "esc c shift",
    "hotkey('ctrl+c')": "ctrl c",
}


@pytest.mark.parametrize("code", KEYS)
def test_keys_are_read_as_pyautogui_presses_them(code: str) -> None:
    assert code_read(code) == Hotkey(key=KEYS[code])
    assert code_read("keyDown('Shift')") == Press(key="shift") and code_read("keyUp(' ')") == Release(key="space")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("dragTo(0.5, 0.5, button='right')", "a drag with the right button"),
        ("pyautogui.dragTo(0.5, 0.5, 0.5, button='middle')", "a drag with the middle button"),
        ("dragTo(0.5, 0.5, 0.5, 'secondary')", "'secondary' is no tween of dragTo"),
        ("press('')", "'' is not a key"),
        ("press('ctrl c')", "'ctrl c' is not a key"),
        ("keyDown('')", "'' is not a key"),
    ],
)
def test_code_that_is_no_action_of_ours_says_what_is_wrong_and_is_taken_for_no_other(code: str, said: str) -> None:
    with pytest.raises(NoAction, match=said):
        code_read(code)


@pytest.mark.parametrize("enter", ["press('enter')", "press(keys=['enter'])", "hotkey('Return')"])
def test_text_and_the_enter_after_it_are_text_that_ends_its_line(enter: str, sentence: Sentences) -> None:
    assert code_read(f"pyautogui.write(message='blue lamp')\npyautogui.{enter}") == Type(content="blue lamp\n")
    for other in ("press('tab')", "press('enter', presses=2)", "click(x=0.1, y=0.1)"):
        with sentence.raises(NoAction):
            code_read(f"pyautogui.write(message='blue lamp')\npyautogui.{other}")


def code_read(code: str) -> Action:
    return read_code(code, lambda x, y: (x, y), (0.1, 0.1))[0]


@pytest.mark.parametrize(("status", "end"), [("success", Finished(content="42")), ("failure", CallUser())])
def test_scalecuas_answer_and_the_end_after_it_are_one_end_and_two_rows_again(
    status: str, end: Action, tmp_path: Path
) -> None:
    codes = ["click(x=0.5, y=0.5)", "response(answer='42')", f"terminate(status='{status}')"]
    said = ["Click the tab", "response(answer='42')", "Stop"]
    rows = []
    for number, (code, words) in enumerate(zip(codes, said, strict=True)):
        (tmp_path / f"{number}.png").write_bytes(picture(number).png)
        before = "\n".join(f'Step {at}: "{one}"' for at, one in enumerate(said[:number], 1)) or "None"
        asked = f"<image>\nGo on.\n\nTask: How many?\n\nPrevious operations:\n{before}"
        answer = f"<think>\nNow {number}.\n</think>\n<operation>\n{words}\n</operation>\n<action>\n{code}\n</action>"
        turns = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
        rows.append({"image": f"{number}.png", "conversations": turns, "width": 20, "height": 20})
    (tmp_path / "theirs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    form = FORMATS.class_of("scalecua")()
    (record,) = taken(form, tmp_path / "theirs.jsonl")
    assert [one.action for one in record.steps] == [Click(x=0.5, y=0.5), end]
    assert record.steps[-1].screen.sha256 == picture(1).sha256
    assert record.after is not None and record.after.sha256 == picture(2).sha256
    out = written(form, [record], tmp_path / "out") / "scalecua.jsonl"
    again = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["conversations"] for row in again] == [row["conversations"] for row in rows]
    (same,) = taken(form, tmp_path / "out")
    assert same.steps == record.steps and same.after == record.after


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("terminate(status='success')", True),
        ("terminate(status='failure')", False),
        ("response(answer='42')", None),
        ("click(x=0.5, y=0.5)", None),
    ],
)
def test_scalecuas_last_terminate_is_the_outcome(tmp_path: Path, code: str, outcome: bool | None) -> None:
    asked = "<image>\nTask: Go.\n\nPrevious operations:\nNone"
    answer = f"<operation>\nDo it.\n</operation>\n<action>\n{code}\n</action>"
    said = [{"from": "human", "value": asked}, {"from": "gpt", "value": answer}]
    (record,) = taken(
        FORMATS.class_of("scalecua")(), source(tmp_path / "in", "a.jsonl", {"image": "0.png", "conversations": said})
    )
    assert record.success is outcome


def test_scalecuas_response_ends_a_trajectory_with_the_answer() -> None:
    assert code_read("response(answer='42 euros')") == Finished(content="42 euros")


def test_a_trajectory_is_one_of_many_formats_in_turn_and_keeps_what_it_had(tmp_path: Path) -> None:
    entry = {
        "index": 0,
        "image": "0.png",
        "value": {"code": "pyautogui.click(x=0.5, y=0.25)", "observation": "A shop."},
    }
    record = {"task_id": "a1", "instruction": "Go.", "traj": [entry], "domain": "desktop"}
    first = FORMATS.class_of("agentnet")()
    whole: list[Exchanged] = taken(first, source(tmp_path / "in", "theirs.jsonl", record))
    for name in FORMATS.names:
        form = FORMATS.class_of(name)()
        whole = taken(form, written(form, whole, tmp_path / f"out-{name}"))
    (back,) = lines_of(written(first, whole, tmp_path / "back") / "agentnet.jsonl")
    assert back["domain"] == "desktop" and back["traj"][0]["value"]["observation"] == "A shop."


def test_a_lerobot_data_set_has_screens_of_one_size_and_several_sizes_are_several_data_sets(tmp_path: Path) -> None:
    """`LeRobotDataset` (lerobot 0.4.4) is batched by torch's default collation, which stacks pictures of one size."""
    form = FORMATS.class_of("lerobot")()
    small, large = (ExchangedStep(picture(1, *size), actions=(Wait(),)) for size in ((160, 210), (640, 480)))
    episodes = {"a": (small, small), "b": (large,), "c": (small,), "d": (large, small)}
    records = [Exchanged(name, f"Do {name}.", steps, True) for name, steps in episodes.items()]
    folder = written(form, records, tmp_path / "out")
    assert sorted(path.name for path in folder.iterdir()) == ["160x210", "640x480", "mixed"]
    assert 'root="DIR/160x210"' in form.loading
    assert "160x210/, 640x480/, mixed/" in form.notes[0] and "batch_size=1" in form.notes[1]
    for name, count in (("160x210", 3), ("640x480", 1), ("mixed", 2)):
        info = json.loads((folder / name / "meta" / "info.json").read_text())
        frames = pq.read_table(folder / name / "data").to_pylist()
        sizes = {Image.open(io.BytesIO(row["observation.images.screen"]["bytes"])).size[::-1] for row in frames}
        assert (info["total_frames"], len(frames)) == (count, count)
        shape = tuple(info["features"]["observation.images.screen"]["shape"][:2])
        assert shape in sizes and (len(sizes) == 1 or name == "mixed")
    back = {one.instruction: one.steps for one in taken(form, folder)}
    assert back == {f"Do {name}.": tuple(step for step in steps) for name, steps in episodes.items()}
    alone = FORMATS.class_of("lerobot")()
    assert (written(alone, records[:1], tmp_path / "one") / "meta" / "info.json").is_file() and not alone.notes
