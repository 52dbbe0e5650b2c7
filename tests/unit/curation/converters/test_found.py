"""Valid records of others that were refused: uploaded pictures, an instruction that is null, a byte order mark."""

import json
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import RecordRefused
from curation.converters.format import FORMATS
from schemas.action import Click
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, refused, taken


@pytest.mark.parametrize(
    ("image", "file"),
    [
        ("/data/upload/1/x.png", "x.png"),
        ("/data/upload/1/x.png", "upload/1/x.png"),
        ("/data/upload/1/x.png", "1/x.png"),
        ("upload/12/x.png", "x.png"),
        ("/data/upload/1/0a1b2c3d-x.png", "0a1b2c3d-x.png"),
        ("/data/upload/1/0a1b2c3d-x.png", "x.png"),
        ("/data/upload/1/my%20x.png", "my x.png"),
        ("/storage-data/uploaded/?filepath=upload/1/x.png", "x.png"),
        ("/data/local-files/?d=shots/x.png", "shots/x.png"),
        ("/data/local-files/?d=shots/x.png", "x.png"),
        ("x.png", "images/x.png"),
        ("/data/upload/1/x.png", "sub/x.png"),
        ("/data/upload/1/0a1b2c3d-x.png", "a/b/x.png"),
        ("/data/local-files/?d=data/sub/x.png", "sub/x.png"),
        ("/data/local-files/?d=data%2Fsub%2Fx.png", "images/sub/x.png"),
        ("/data/local-files/?d=data/x.png", "elsewhere/x.png"),
    ],
)
def test_pictures_that_label_studio_serves_are_found_beside_its_export(tmp_path: Path, image: str, file: str) -> None:
    """Addresses: label-studio-sdk 2.1.2, `get_local_path` of `_extensions/label_studio_tools/core/utils/io.py`."""
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_bytes(picture(1).png)
    task = {"data": {"image": image, "instruction": "Buy it.", "action": "wait()"}, "annotations": []}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    (record,) = taken(FORMATS.class_of("label-studio")(), tmp_path / "tasks.json")
    assert record.steps[0].screen == picture(1)


@pytest.mark.parametrize(
    "image", ["/data/upload/1/../../secret.png", "/data/upload/1/none.png", "/data/other/secret.png", "../secret.png"]
)
def test_no_address_of_label_studio_leads_out_of_the_folder(tmp_path: Path, image: str, sentence: Sentences) -> None:
    (tmp_path / "secret.png").write_bytes(picture(1).png)
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "tasks.json"
    file.write_text(json.dumps([{"data": {"image": image, "instruction": "Buy it."}}]))
    sentence(refused(FORMATS.class_of("label-studio")(), file), "tasks.json", "data.image")


def label_studio(folder: Path, image: str, *files: tuple[str, int]) -> Path:
    """The export of one task, and pictures of a shade each."""
    for name, shade in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(picture(shade).png)
    task = {"data": {"image": image, "instruction": "Buy it.", "action": "wait()"}}
    (folder / "tasks.json").write_text(json.dumps([task]))
    return folder / "tasks.json"


SERVED = ["/data/upload/1/x.png", "/data/local-files/?d=data/x.png"]


@pytest.mark.parametrize("image", SERVED)
def test_a_name_of_different_pictures_is_ambiguous(tmp_path: Path, image: str) -> None:
    form = FORMATS.class_of("label-studio")()
    for number, files in enumerate(([("a/x.png", 1), ("b/x.png", 2)], [("x.png", 1), ("images/x.png", 2)])):
        said = refused(form, label_studio(tmp_path / f"{number}", image, *files))
        assert "task 1, data.image: " in said and "different " in said and "--images DIR" in said
    same = label_studio(tmp_path / "same", image, ("a/x.png", 1), ("b/x.png", 1))
    assert taken(form, same)[0].steps[0].screen == picture(1)
    longer = label_studio(tmp_path / "longer", "/data/local-files/?d=data/b/x.png", ("a/x.png", 1), ("b/x.png", 2))
    assert taken(form, longer)[0].steps[0].screen == picture(2)


@pytest.mark.parametrize("image", SERVED)
def test_a_picture_that_is_not_there_is_refused_with_its_names_the_folder_and_the_fix(
    tmp_path: Path, image: str
) -> None:
    file = label_studio(tmp_path / "in", image, ("y.png", 1))
    said = refused(FORMATS.class_of("label-studio")(), file)
    assert "'x.png'" in said and str(tmp_path / "in") in said and "--images DIR" in said
    (tmp_path / "other" / "deep").mkdir(parents=True)
    (tmp_path / "other" / "deep" / "x.png").write_bytes(picture(2).png)
    (record,) = taken(FORMATS.class_of("label-studio")(), file, images=tmp_path / "other")
    assert record.steps[0].screen == picture(2)


def test_a_picture_in_the_folder_and_in_images_is_ambiguous_in_every_format(
    tmp_path: Path, sentence: Sentences
) -> None:
    (tmp_path / "images").mkdir()
    for shade, name in enumerate(("0.png", "images/0.png")):
        (tmp_path / name).write_bytes(picture(shade).png)
    line = {"task_id": "a", "instruction": "Open it.", "traj": [{"image": "0.png", "value": {"code": "wait()"}}]}
    (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
    form = FORMATS.class_of("agentnet")()
    said = refused(form, tmp_path / "theirs.jsonl")
    sentence.lines(said, "traj.0.image", "'0.png'", tmp_path)
    assert "--images DIR" in said
    assert taken(form, tmp_path / "theirs.jsonl", images=tmp_path / "images")[0].steps[0].screen == picture(1)


def test_a_link_in_images_to_a_picture_of_the_folder_is_that_picture(tmp_path: Path, sentence: Sentences) -> None:
    data, form = tmp_path / "data", FORMATS.class_of("agentnet")()
    (data / "images").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(picture(5).png)
    for shade, name in enumerate(("x.png", "images/y.png", "w.png")):
        (data / name).write_bytes(picture(shade).png)
    (data / "images/x.png").symlink_to("../x.png")
    (data / "images/w.png").symlink_to(tmp_path / "secret.png")
    (data / "y.png").symlink_to(tmp_path / "secret.png")
    (data / "images/z.png").symlink_to(tmp_path / "secret.png")
    traj = [{"image": name, "value": {"code": "wait()"}} for name in ("x.png", "w.png", "images/x.png")]
    (data / "theirs.jsonl").write_text(json.dumps({"task_id": "a", "instruction": "Open it.", "traj": traj}))
    (record,) = taken(form, data / "theirs.jsonl")
    assert [one.screen for one in record.steps] == [picture(0), picture(2), picture(0)]
    traj[0]["image"] = "y.png"
    (data / "theirs.jsonl").write_text(json.dumps({"task_id": "a", "instruction": "Open it.", "traj": traj}))
    assert taken(form, data / "theirs.jsonl")[0].steps[0].screen == picture(1)
    for name in ("z.png", "../secret.png", "images/../../secret.png"):
        traj[0]["image"] = name
        (data / "theirs.jsonl").write_text(json.dumps({"task_id": "a", "instruction": "Open it.", "traj": traj}))
        sentence(refused(form, data / "theirs.jsonl"), "traj.0.image", f"{name!r}")


def test_steps_of_agentnet_are_in_the_order_of_their_index(tmp_path: Path, sentence: Sentences) -> None:
    def record(*indices: object) -> list[str]:
        traj = list[dict[str, Any]]()
        for number, index in enumerate(indices):
            (tmp_path / f"{number}.png").write_bytes(picture(number).png)
            value = {"code": f"pyautogui.write(message='{number}')"}
            traj.append({"image": f"{number}.png", "value": value, **({} if index is None else {"index": index})})
        line = {"task_id": "a", "instruction": "Open it.", "traj": traj, "loss_mask": [0, *[1] * (len(traj) - 1)]}
        (tmp_path / "theirs.jsonl").write_text(json.dumps(line))
        (found,) = taken(FORMATS.class_of("agentnet")(), tmp_path / "theirs.jsonl")
        (masked,) = [one for one in found.steps if one.about.target is False]
        assert masked.screen == picture(0)
        return [getattr(one.action, "content", "") for one in found.steps]

    assert record(1, 0) == ["1", "0"]
    assert record(2, 0, 1) == ["1", "2", "0"]
    assert record(0, 1, 2) == record(None, None, None) == record(5, None, 3) == ["0", "1", "2"]
    assert record(0, 0) == ["0", "1"]
    assert record("1", "0") == record(1.5, "0") == record("10", "9") == ["1", "0"]
    assert record(0, "") == record(0, float("nan")) == record(0, "none") == ["0", "1"]
    assert record(10**400, 3) == ["1", "0"]
    for wrong in ("banana", float("inf"), True, [1]):
        with sentence.raises(RecordRefused, "traj.1.index"):
            record(0, wrong)


@pytest.mark.parametrize("instruction", [{"instruction": None}, {"instruction": ""}, {}])
def test_agentnets_task_in_words_stands_for_an_instruction_that_is_null(
    tmp_path: Path, instruction: dict[str, None], sentence: Sentences
) -> None:
    """`natural_language_task` beside `instruction`, as the lines of xlangai/AgentNet have it."""
    (tmp_path / "0.png").write_bytes(picture(0).png)
    step = {"index": 0, "image": "0.png", "value": {"code": "pyautogui.click(x=0.5, y=0.5)"}}
    line = {"task_id": "a", **instruction, "natural_language_task": "Open it.", "traj": [step]}
    file = tmp_path / "theirs.jsonl"
    file.write_text(json.dumps(line) + "\n")
    (record,) = taken(FORMATS.class_of("agentnet")(), file)
    assert record.instruction == "Open it."
    file.write_text(json.dumps({**line, "natural_language_task": None}) + "\n")
    sentence(refused(FORMATS.class_of("agentnet")(), file))


def test_a_file_of_lines_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "0.png").write_bytes(picture(0).png)
    step = {"image": "0.png", "value": {"code": "pyautogui.click(x=0.5, y=0.5)"}}
    line = json.dumps({"task_id": "a", "instruction": "Open it.", "traj": [step]})
    (tmp_path / "theirs.jsonl").write_text(f"\ufeff{line}\n{line}\n", "utf-8")
    assert len(taken(FORMATS.class_of("agentnet")(), tmp_path / "theirs.jsonl")) == 2


def test_answers_of_old_exports_and_fields_that_are_null_are_read(tmp_path: Path) -> None:
    """label-studio-sdk 2.1.2 `converter/converter.py`, `annotation_result_from_task`: `completions` are annotations,
    `skipped` is `was_cancelled`, and a result that is null is empty."""
    (tmp_path / "0.png").write_bytes(picture(0).png)

    def result(x: int) -> dict[str, Any]:
        value = {"x": x, "y": 25, "width": 1.0, "keypointlabels": ["click"]}
        return {"type": "keypointlabels", "from_name": "point", "to_name": "image", "id": None, "value": value}

    data = {"image": "0.png", "instruction": "Press it.", "thought": None}
    old = {"data": data, "completions": [{"skipped": True, "result": [result(10)]}, {"result": [result(50)]}]}
    cancelled = {"result": None, "was_cancelled": None}
    new = {"data": data, "predictions": None, "annotations": [cancelled, {"result": [result(50)], "skipped": None}]}
    (tmp_path / "tasks.json").write_text(json.dumps([old, new, {"data": data, "annotations": None}]))
    records = taken(FORMATS.class_of("label-studio")(), tmp_path / "tasks.json")
    assert [record.steps[0].action for record in records] == [Click(x=0.5, y=0.25), Click(x=0.5, y=0.25), None]


def test_a_relation_of_two_regions_has_no_value_and_is_no_answer(tmp_path: Path) -> None:
    """Label Studio exports a relation with the ids of its regions and a direction alone."""
    (tmp_path / "0.png").write_bytes(picture(0).png)
    value = {"x": 50, "y": 25, "width": 1.0, "keypointlabels": ["click"]}
    point = {"type": "keypointlabels", "from_name": "point", "to_name": "image", "id": "a", "value": value}
    relation = {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"}
    task = {"data": {"image": "0.png", "instruction": "Press it."}, "annotations": [{"result": [point, relation]}]}
    (tmp_path / "tasks.json").write_text(json.dumps([task]))
    (one,) = taken(FORMATS.class_of("label-studio")(), tmp_path / "tasks.json")
    assert one.steps[0].action == Click(x=0.5, y=0.25)
