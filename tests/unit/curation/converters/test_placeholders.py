"""Pictures and their placeholders are counted against each other, per turn and in total, in and out of every format."""

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.converters.exchanged import About, Exchanged
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS, Format
from schemas.action import Click, Wait
from tests.fixtures.sentences import Sentences
from tests.tiers import NIGHTLY
from tests.unit.curation.converters.records import picture, refused, taken, written

REPLY = "Action: click(start_box='(500,250)')"
NAMES = ["0.png", "1.png", "2.png"]


def source(folder: Path, row: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(picture(number).png)
    (folder / "theirs.jsonl").write_text(json.dumps(row) + "\n")
    return folder / "theirs.jsonl"


def ui_tars(screens: list[int], images: list[str]) -> dict[str, Any]:
    """A chat whose turns have so many placeholders each, every one replied to."""
    turns = [part for count in screens for part in (("user", "<image>" * count or "Go on."), ("assistant", REPLY))]
    said = [("user", "## User Instruction\nBuy it."), *turns]
    return {"messages": [{"role": role, "content": text} for role, text in said], "images": images}


def trl(screens: list[int], images: list[str]) -> dict[str, Any]:
    def parts(count: int) -> list[dict[str, str]]:
        return [{"type": "image"}] * count or [{"type": "text", "text": "Go on."}]

    turns = [part for count in screens for part in (("user", parts(count)), ("assistant", REPLY))]
    return {
        "messages": [{"role": role, "content": text} for role, text in [("user", "Buy it."), *turns]],
        "images": images,
    }


def verl(screens: list[int], images: list[str]) -> dict[str, Any]:
    row = ui_tars(screens, images)
    (*prompt, reply) = row["messages"]
    return {"prompt": prompt, "images": images, "reward_model": {"ground_truth": reply["content"]}}


CHATS = {"ui-tars": ui_tars, "trl": trl, "verl": verl}


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize(
    ("screens", "images", "said"),
    [
        ([2, 1], NAMES, "1.content: 2 screens in one turn"),
        ([1, 2], NAMES, "3.content: 2 screens in one turn"),
        ([2], NAMES[:1], "1.content: 2 screens in one turn"),
        ([1], NAMES[:2], "images.1: 2 images for 1 placeholder; '1.png' is left over"),
        ([1, 1], NAMES, "images.2: 3 images for 2 placeholders; '2.png' is left over"),
        ([1, 1], NAMES[:1], "3.content: a screen of which `images` names no image"),
        ([1, 1, 1], NAMES[:2], "5.content: a screen of which `images` names no image"),
    ],
)
def test_a_row_whose_pictures_are_not_its_placeholders_is_refused_by_turn_or_picture(
    tmp_path: Path, name: str, screens: list[int], images: list[str], said: str
) -> None:
    form = FORMATS.class_of(name)()
    assert said in refused(form, source(tmp_path, CHATS[name](screens, images)), unit="thousandths")


@pytest.mark.parametrize("name", CHATS)
def test_every_screen_is_the_one_of_its_own_turn(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    (record,) = taken(form, source(tmp_path, CHATS[name]([1, 1, 1], NAMES)), unit="thousandths")
    assert [step.screen for step in record.steps] == [picture(number) for number in range(3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"image": ["0.png", "1.png"]}, "image: 2 images, a step has one screen; '1.png' is left over"),
        ({"image": []}, "image: 0 images"),
        ({"asked": "<image><image>"}, "conversations.0.value: 2 placeholders for 1 image"),
        ({"again": True}, "conversations: 2 turns of `human`, a row is one step"),
    ],
)
def test_a_row_of_scalecua_has_one_picture_one_placeholder_and_one_question(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    asked = {"from": "human", "value": f"{change.pop('asked', '<image>')}\nTask: Do it.\nPrevious operations:\nNone"}
    answer = {"from": "gpt", "value": "<operation>\nx\n</operation>\n<action>\nclick(x=0.5, y=0.5)\n</action>"}
    turns = [asked, answer, *([asked, answer] if change.pop("again", False) else [])]
    row = {"image": "0.png", "conversations": turns, **change}
    assert said in refused(FORMATS.class_of("scalecua")(), source(tmp_path, row))


def test_a_part_that_holds_its_own_picture_takes_none_of_the_row_s(tmp_path: Path) -> None:
    """As `prepare_multimodal_messages` of trl 1.16.0 (trl/data_utils.py) has it."""
    row = trl([1, 1], ["2.png"])
    row["messages"][1]["content"] = [{"type": "image", "image": "1.png"}]
    form = FORMATS.class_of("trl")()
    (record,) = taken(form, source(tmp_path / "in", row), unit="thousandths")
    assert [step.screen for step in record.steps] == [picture(1), picture(2)]
    assert taken(form, written(form, [record], tmp_path / "out"))[0].steps == record.steps


@pytest.mark.parametrize("kind", ["image_url", "input_image"])
def test_a_picture_of_openai_s_chats_is_a_placeholder_and_a_video_is_refused(tmp_path: Path, kind: str) -> None:
    row = trl([1], ["1.png"])
    row["messages"][1]["content"] = [{"type": kind}, {"type": "text", "text": "Go."}]
    form = FORMATS.class_of("trl")()
    (record,) = taken(form, source(tmp_path, row), unit="thousandths")
    assert record.steps[0].screen == picture(1)
    row["messages"][1]["content"].append({"type": "video"})
    assert "messages.1.content.2.type: 'video'" in refused(form, source(tmp_path, row), unit="thousandths")


def test_a_text_around_a_screen_is_one_instruction(tmp_path: Path) -> None:
    row = verl([1], NAMES[:1])
    row["prompt"] = [{"role": "user", "content": "Look at <image> and click the cart."}]
    (record,) = taken(FORMATS.class_of("verl")(), source(tmp_path, row), unit="thousandths")
    assert record.instruction == "Look at\nand click the cart."


@pytest.mark.parametrize("name", CHATS)
def test_an_export_has_as_many_placeholders_as_pictures_also_where_a_screen_has_two_replies(
    tmp_path: Path, name: str
) -> None:
    form = FORMATS.class_of(name)()
    row = CHATS[name]([1, 0, 1], NAMES[:2])
    (record,) = taken(form, source(tmp_path / "in", row), unit="thousandths")
    assert [step.screen for step in record.steps] == [picture(0), picture(0), picture(1)]
    stored = replace(record, about=About(lake="l", trajectory_id="t"))
    folder = written(form, [stored], tmp_path / "out")
    for file in (one for one in folder.rglob("*") if one.suffix in (".jsonl", ".parquet")):
        assert_paired(file)
    assert [step.action for one in taken(form, folder) for step in one.steps] == [Click(x=0.5, y=0.25)] * 3


def assert_paired(file: Path) -> None:
    """Every row of an export has as many placeholders as pictures."""
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.suffix == ".jsonl" else None
    for row in lines if lines is not None else pq.read_table(file).to_pylist():
        turns = row.get("messages") or [*row["prompt"], *(row.get("completion") or [])]
        texts = [one["content"] for one in turns if one["role"] != "assistant"]
        slots = sum(len(re.findall(r"<image>|<\|vision_start\|>", one)) for one in texts if isinstance(one, str))
        slots += sum(part["type"] == "image" for one in texts if not isinstance(one, str) for part in one)
        assert slots == len(row["images"]), row


@pytest.mark.parametrize("name", CHATS)
def test_no_row_shifts_its_screens_whatever_its_counts_are(tmp_path: Path, name: str) -> None:
    """Of rows with any counts those are taken whose counts agree, each step with its own turn's picture."""
    form, chosen = FORMATS.class_of(name)(), random.Random(7)
    count = 2000 if NIGHTLY else 60
    rows = [
        ([chosen.choice([0, 1, 1, 1, 2]) for _ in range(chosen.randint(1, 4))], chosen.randint(0, 4))
        for _ in range(count)
    ]
    file = source(tmp_path, {})
    (tmp_path / "3.png").write_bytes(picture(3).png)
    images = [f"{at}.png" for at in range(4)]
    file.write_text("".join(json.dumps(CHATS[name](screens, images[:n])) + "\n" for screens, n in rows))
    found = {place.line: one for place, one in form.read(ImportSource(file, unit="thousandths"))}
    assert len(found) == count
    for line, (screens, n) in enumerate(rows, 1):
        one = found[line]
        fits = max(screens) < 2 and sum(screens) == n and sum(screens) > 0
        if name == "trl" and not sum(screens):  # TRL puts pictures without placeholders into the first turn
            fits = n == 1
            screens = [1, *screens[1:]] if fits else screens
        assert isinstance(one, Exchanged) == fits, (screens, n, one)
        if isinstance(one, Exchanged) and name != "trl":
            shown, at = [], -1
            for slots in screens:
                at += slots
                shown += [picture(at)] if at >= 0 else []
            assert [step.screen for step in one.steps] == shown


def test_a_lerobot_export_has_a_picture_for_each_frame(tmp_path: Path) -> None:
    form: Format = FORMATS.class_of("lerobot")()
    (record,) = taken(
        FORMATS.class_of("ui-tars")(), source(tmp_path / "in", ui_tars([1, 1], NAMES[:2])), unit="thousandths"
    )
    folder = written(form, [record], tmp_path / "out")
    (file,) = folder.glob("data/*/*.parquet")
    assert [row["observation.images.screen"]["bytes"] for row in pq.read_table(file).to_pylist()] == [
        picture(0).png,
        picture(1).png,
    ]


def test_pictures_in_parquet_are_named_by_their_path_where_they_are_left_over(
    tmp_path: Path, sentence: Sentences
) -> None:
    row = verl([1], [])
    cells = [{"bytes": picture(at).png, "path": f"screen-{at}.png"} for at in range(2)]
    pq.write_table(pa.Table.from_pylist([{**row, "images": cells}]), tmp_path / "theirs.parquet")
    said = refused(FORMATS.class_of("verl")(), tmp_path / "theirs.parquet", unit="thousandths")
    sentence.lines(said, "images.1", "'screen-1.png'")


def test_waiting_needs_no_picture_more(tmp_path: Path) -> None:
    row = ui_tars([1], NAMES[:1])
    row["messages"][-1]["content"] = "Action: wait()"
    (record,) = taken(FORMATS.class_of("ui-tars")(), source(tmp_path, row), unit="thousandths")
    assert record.steps[0].action == Wait()
