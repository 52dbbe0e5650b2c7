"""Chats that other trainers write are read as they mean them, or refused by the field that is at fault."""

import base64
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from curation.converters.exchanged import About, Exchanged
from curation.converters.files import ImportSource
from curation.converters.format import FORMATS
from schemas.action import Click
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, refused, taken, written

ACT = "Action: click(start_box='(500,250)')"
NAMES = ["0.png", "1.png"]
SCREENS = ["<image>", "<|vision_start|><|image_pad|><|vision_end|>"]
CHATS = ["ui-tars", "trl", "verl"]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def reply(content: Any = ACT, **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def row(name: str, *messages: dict[str, Any], images: list[Any] | None = None, **fields: Any) -> dict[str, Any]:
    given = NAMES[:1] if images is None else images
    if name != "verl":
        return {"messages": list(messages), "images": given, **fields}
    (*prompt, last) = messages
    return {"prompt": prompt, "images": given, "reward_model": {"ground_truth": last["content"]}, **fields}


def saved(folder: Path, of: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        (folder / f"{number}.png").write_bytes(picture(number).png)
    (folder / "theirs.jsonl").write_text(json.dumps(of) + "\n")
    return folder / "theirs.jsonl"


def read(name: str, folder: Path, of: dict[str, Any]) -> Exchanged:
    (record,) = taken(FORMATS.class_of(name)(), saved(folder, of), unit="thousandths")
    return record


def problem(name: str, folder: Path, of: dict[str, Any]) -> str:
    return refused(FORMATS.class_of(name)(), saved(folder, of), unit="thousandths").partition("line 1, ")[2]


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("screen", SCREENS)
def test_a_placeholder_in_a_text_is_a_screen_and_no_text(tmp_path: Path, name: str, screen: str) -> None:
    """As hiyouga/LLaMA-Factory (`src/llamafactory/extras/constants.py`, `IMAGE_PLACEHOLDER`) and ms-swift have it."""
    form = FORMATS.class_of(name)()
    record = read(name, tmp_path / "in", row(name, user(f"{screen}Open"), reply(), user(screen), reply(), images=NAMES))
    assert record.instruction == "Open"
    assert [one.screen for one in record.steps] == [picture(0), picture(1)]
    assert [one.action for one in record.steps] == [Click(x=0.5, y=0.25)] * 2
    (again,) = taken(form, written(form, [record], tmp_path / "out"))
    assert (again.instruction, again.steps) == (record.instruction, record.steps)


def test_an_exported_row_holds_placeholders_of_texts_as_parts(tmp_path: Path) -> None:
    folder = written(
        FORMATS.class_of("trl")(), [read("trl", tmp_path / "in", row("trl", user("<image>Open"), reply()))], tmp_path
    )
    (one,) = pq.read_table(folder / "trl.parquet").to_pylist()
    assert one["messages"][0]["content"] == [{"type": "image", "text": None}, {"type": "text", "text": "Open"}]


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize(
    ("asked", "fields", "said"),
    [
        ("<image><image>Open", {}, "0.content: 2 screens in one turn"),
        ("<image><video>Open", {"images": NAMES}, "0.content: a placeholder <video>"),
        ("<image><audio>Open", {"images": []}, "0.content: a placeholder <audio>"),
        ("<image>Open", {"videos": ["a.mp4"]}, "videos: a step shows images alone"),
        ("<image>Open", {"images": NAMES}, "images.1: 2 images for 1 placeholder; '1.png' is left over"),
    ],
)
def test_a_text_with_more_than_its_pictures_is_refused(
    tmp_path: Path, name: str, asked: str, fields: dict[str, Any], said: str
) -> None:
    assert said in problem(name, tmp_path, row(name, user(asked), reply(), **fields))


TAGGED = ["Click the <image> tag", "Insert a <video> element", "<|vision_start|>x<|vision_end|> <audio>"]


@pytest.mark.parametrize("text", TAGGED)
def test_a_tag_beside_parts_that_are_the_pictures_is_text(tmp_path: Path, text: str) -> None:
    form = FORMATS.class_of("trl")()
    shown = user([{"type": "image"}])
    chats = [
        [user([{"type": "image"}, {"type": "text", "text": text}]), reply(), shown, reply()],
        [user([{"type": "text", "text": text}]), shown, reply(), shown, reply()],
    ]
    for number, chat in enumerate(chats):
        record = read("trl", tmp_path / f"{number}", row("trl", *chat, images=NAMES))
        assert record.instruction == text
        assert [one.screen for one in record.steps] == [picture(0), picture(1)]
        (again,) = taken(form, written(form, [record], tmp_path / f"out{number}"))
        assert (again.instruction, again.steps) == (text, record.steps)


@pytest.mark.parametrize("name", CHATS)
def test_a_tag_of_a_video_is_text_where_pictures_and_placeholders_match(tmp_path: Path, name: str) -> None:
    record = read(name, tmp_path, row(name, user("<image>Insert a <video> element"), reply()))
    assert record.instruction == "Insert a <video> element"


def test_a_tag_of_a_video_without_a_placeholder_of_a_picture_is_refused(tmp_path: Path) -> None:
    assert "0.content: a placeholder <video>" in problem("trl", tmp_path, row("trl", user("<video>Open"), reply()))


def test_a_placeholder_beside_a_part_is_one_more_where_the_row_has_more_pictures(tmp_path: Path) -> None:
    asked = [{"type": "image"}, {"type": "text", "text": "<image>Open"}]
    said = problem("trl", tmp_path, row("trl", user(asked), reply(), images=NAMES))
    assert said.startswith("messages.0.content: 2 screens")


OFF: list[dict[str, Any]] = [
    {"loss_mask": 0},
    {"loss_mask": [0, 1]},
    {"loss": False},
    {"loss_scale": 0},  # ms-swift, pull request 9266
    {"loss_weight": 0.0},
    {"weight": "0"},
    {"train": "false"},
    {"training": "False"},
    {"loss": "0.0"},
    {"loss_mask": "[1, 0]"},
    # axolotl-ai-cloud/axolotl, `src/axolotl/prompt_strategies/chat_template.py`, `message_field_training_detail`
    {"train_detail": [{"begin_offset": 0, "end_offset": 9, "train": True}, {"begin_offset": 10, "train": False}]},
]
ON: list[dict[str, Any]] = [
    {},
    {"loss": None},
    {"training": None},
    {"weight": 1},
    {"train": "true"},
    {"loss_mask": [1]},
]
ON += [{"loss": ""}, {"weight": "0.5"}, {"loss": "none"}, {"train_detail": []}]
ON += [{"train_detail": [{"begin_offset": 0, "end_offset": 9, "train": True}]}]


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize(("mask", "target"), [*((one, False) for one in OFF), *((one, None) for one in ON)])
def test_a_message_that_takes_itself_or_a_part_out_of_training_is_context(
    tmp_path: Path, name: str, mask: dict[str, Any], target: bool | None
) -> None:
    chat = [user("<image>Open"), reply(**mask), user("<image>"), reply()]
    assert [one.about.target for one in read(name, tmp_path, row(name, *chat, images=NAMES)).steps] == [target, None]


@pytest.mark.parametrize("name", CHATS)
@pytest.mark.parametrize("mask", [{"loss_mask": 0}, {"weight": "0"}, {"train": "false"}])
def test_a_row_that_takes_itself_out_of_training_is_context(tmp_path: Path, name: str, mask: dict[str, Any]) -> None:
    (step,) = read(name, tmp_path, row(name, user("<image>Open"), reply(), **mask)).steps
    assert step.about.target is False


@pytest.mark.parametrize("name", CHATS)
def test_a_list_of_a_row_masks_its_messages_one_by_one(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    chat = [user("<image>Open"), reply(), user("<image>"), reply()]
    for number, mask in enumerate(([0, 0, 0, 1], "[0, 0, 0, 1]", [[0], [0, 0], [0], [1, 1]])):
        record = read(name, tmp_path / f"{number}", row(name, *chat, images=NAMES, loss_mask=mask))
        assert [one.about.target for one in record.steps] == [False, None]
        (again,) = taken(form, written(form, [replace(record, about=About(lake="l"))], tmp_path / f"out{number}"))
        assert [again.is_target(at) for at in range(2)] == [False, True]
    (*_, last) = read(name, tmp_path / "last", row(name, *chat, images=NAMES, loss_mask=[1, 1, 1, 0])).steps
    assert last.about.target is False
    said = problem(name, tmp_path / "short", row(name, *chat, images=NAMES, loss_mask=[0, 1]))
    assert said.startswith("loss_mask: 2 values for 4 messages")
    (*_, last) = read(name, tmp_path / "empty", row(name, *chat, images=NAMES, loss_mask=[])).steps
    assert last.about.target is None


def test_a_list_of_a_row_of_code_masks_its_steps_one_by_one(tmp_path: Path, sentence: Sentences) -> None:
    line, turns = array("agentnet")[0], array("scalecua")[0]
    line["traj"] *= 2
    (record,) = taken(FORMATS.class_of("agentnet")(), saved(tmp_path / "a", {**line, "loss_mask": [0, 1]}))
    assert [one.about.target for one in record.steps] == [False, None]
    for number, (mask, target) in enumerate([([0, 1], None), ([1, 0], False)]):
        file = saved(tmp_path / f"{number}", {**turns, "loss_mask": mask})
        (record,) = taken(FORMATS.class_of("scalecua")(), file)
        assert record.steps[0].about.target is target
    for name, of in (("agentnet", line), ("scalecua", turns)):
        file = saved(tmp_path / name, {**of, "loss_mask": [0, 1, 1]})
        sentence(refused(FORMATS.class_of(name)(), file), "loss_mask")


@pytest.mark.parametrize("mask", [{"loss_mask": 0}, {"weight": "0"}, {"train": "false"}])
def test_a_step_of_code_that_takes_itself_out_of_training_is_context(tmp_path: Path, mask: dict[str, Any]) -> None:
    for name, of in (("agentnet", array("agentnet")[0]), ("scalecua", array("scalecua")[0])):
        (record,) = taken(FORMATS.class_of(name)(), saved(tmp_path / name, {**of, **mask}))
        assert record.steps[0].about.target is False
    line = array("agentnet")[0]
    line["traj"][0]["value"] |= mask
    (record,) = taken(FORMATS.class_of("agentnet")(), saved(tmp_path / "step", line))
    assert record.steps[0].about.target is False


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_a_thought_beside_the_text_of_a_reply_is_the_thought(tmp_path: Path, name: str, field: str) -> None:
    form = FORMATS.class_of(name)()
    apart = reply(**{field: "Because <image> is there."})
    record = read(name, tmp_path / "in", row(name, user("<image>Open"), apart))
    assert record.steps[0].thought == "Because <image> is there."
    folder = written(form, [record], tmp_path / "out")
    (again,) = taken(form, folder)
    assert again.steps[0].thought == record.steps[0].thought
    inside = reply(f"Thought: Here.\n{ACT}", **{field: "Because."})
    assert read(name, tmp_path / "more", row(name, user("<image>Open"), inside)).steps[0].thought == "Here."


def test_a_call_in_an_earlier_reply_of_verl_stays_in_its_prompt(tmp_path: Path) -> None:
    call = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    chat = [user("<image>Open"), reply("", tool_calls=[call]), user("<image>"), reply()]
    record = read("verl", tmp_path / "in", row("verl", *chat, images=NAMES))
    stored = replace(record, about=About(lake="l", trajectory_id="t"))
    folder = written(FORMATS.class_of("verl")(), [stored], tmp_path / "out")
    rows = [one for file in folder.rglob("*.parquet") for one in pq.read_table(file).to_pylist()]
    assert any(turn["content"] == "find({})" for one in rows for turn in one["prompt"])


def test_a_thought_beside_an_earlier_reply_of_verl_is_kept(tmp_path: Path) -> None:
    form = FORMATS.class_of("verl")()
    chat = [user("<image>Open"), reply(reasoning_content="Because."), user("<image>"), reply()]
    record = read("verl", tmp_path / "in", row("verl", *chat, images=NAMES))
    assert [one.thought for one in record.steps] == ["Because.", ""]
    stored = replace(record, about=About(lake="l", trajectory_id="t"))
    (again,) = taken(form, written(form, [stored], tmp_path / "out"))
    assert [one.thought for one in again.steps] == ["Because.", ""]


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize("content", [{"content": ""}, {"content": None}, {}])
def test_a_reply_in_tool_calls_is_a_text_that_names_the_call(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    call = {"type": "function", "function": {"name": "click", "arguments": {"x": 1}}}
    held = {"role": "assistant", "tool_calls": [call], **content}
    record = read(name, tmp_path / "in", row(name, user("<image>Open"), held))
    (step,) = record.steps
    assert (step.action, step.text) == (None, 'click({"x": 1})')
    assert step.error is not None and "click" in step.error
    (again,) = taken(FORMATS.class_of(name)(), written(FORMATS.class_of(name)(), [record], tmp_path / "out"))
    assert again.steps == record.steps


@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_an_earlier_reply_of_verl_in_tool_calls_needs_no_content(tmp_path: Path, content: dict[str, Any]) -> None:
    call = {"type": "function", "function": {"name": "find", "arguments": "{}"}}
    held = {"role": "assistant", "tool_calls": [call], **content}
    chat = [user("<image>Open"), held, user("<image>"), reply()]
    record = read("verl", tmp_path / "in", row("verl", *chat, images=NAMES))
    stored = replace(record, about=About(lake="l", trajectory_id="t"))
    (again,) = taken(FORMATS.class_of("verl")(), written(FORMATS.class_of("verl")(), [stored], tmp_path / "out"))
    assert [[step.text for step in one.steps] for one in (record, again)] == [["find({})", ""]] * 2


@pytest.mark.parametrize("name", ["ui-tars", "verl"])
@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_a_message_without_content_and_calls_is_refused(tmp_path: Path, name: str, content: dict[str, Any]) -> None:
    chat = [user("<image>Open"), {"role": "assistant", **content}, user("<image>"), reply()]
    assert "1.content: it is missing" in problem(name, tmp_path, row(name, *chat, images=NAMES))


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize(
    "given",
    [
        {"function_call": {"name": "click", "arguments": '{"x":1}'}},
        {"tool_calls": json.dumps([{"type": "function", "function": {"name": "click", "arguments": '{"x":1}'}}])},
        {"tool_calls": [json.dumps({"name": "click", "arguments": {"x": 1}})]},
        {"tool_calls": [{"type": "function", "function": json.dumps({"name": "click", "arguments": {"x": 1}})}]},
        {"tool_calls": [{"type": "custom", "custom": {"name": "click", "input": '{"x":1}'}}]},
        {"tool_calls": [{"type": "custom", "custom": json.dumps({"name": "click", "input": '{"x":1}'})}]},
    ],
)
def test_a_call_in_any_form_of_the_protocol_answers_its_screen(
    tmp_path: Path, name: str, given: dict[str, Any]
) -> None:
    """OpenAI's `function_call` of older chats, custom tools, and calls that a data set holds as JSON."""
    chat = [user("<image>Open"), reply("", **given), {"role": "tool", "content": "ok"}, reply()]
    record = read(name, tmp_path, row(name, *chat))
    assert [step.text.replace(" ", "") for step in record.steps[:1]] == ['click({"x":1})']
    assert [record.is_target(at) for at in range(2)] == [True, False]


@pytest.mark.parametrize("name", ["ui-tars", "trl"])
@pytest.mark.parametrize("odd", ["[[", 3, "auto", [[]], [3, None], {"name": 3}])
def test_what_is_no_call_in_the_fields_of_calls_is_none(tmp_path: Path, name: str, odd: object) -> None:
    chat = [user("<image>Open"), reply(tool_calls=odd, function_call=odd if name == "trl" else None)]
    assert len(read(name, tmp_path, row(name, *chat)).steps) == 1


DATA = base64.b64encode(picture(1).png).decode()


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": "1.png"},
        {"type": "image", "path": "1.png"},
        {"type": "image", "url": f"data:image/png;base64,{DATA}"},
        {"type": "image", "base64": DATA},
        {"type": "image", "base64": f"data:image/png;base64,{DATA}"},
        {"type": "image", "base64": "\n".join(DATA[at : at + 76] for at in range(0, len(DATA), 76))},
        {"type": "image", "url": f"data:image/png;base64,{DATA[:40]}\r\n {DATA[40:]}\n"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "image_url", "image_url": {"url": "1.png"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
    ],
)
def test_a_part_holds_its_picture_as_a_name_or_a_data_url(tmp_path: Path, part: dict[str, Any]) -> None:
    """As transformers (`image`, `path`, `url`, `base64` of a part), OpenAI's chats and Anthropic's have it."""
    form = FORMATS.class_of("trl")()
    record = read(
        "trl", tmp_path / "in", row("trl", user([part, {"type": "text", "text": "Open"}]), reply(), images=[])
    )
    assert record.steps[0].screen == picture(1)
    folder = written(form, [record], tmp_path / "out")
    assert DATA not in str(pq.read_table(folder / "trl.parquet").to_pylist())
    assert taken(form, folder)[0].steps == record.steps


@pytest.mark.parametrize("url", ["https://a.test/1.png", "1.png", "file:///9.png", "gone.png"])
def test_a_row_s_pictures_are_those_of_its_parts_where_its_own_cannot_be_read(tmp_path: Path, url: str) -> None:
    form = FORMATS.class_of("trl")()
    part = {"type": "image_url", "image_url": {"url": url}}
    chat = [user([part, {"type": "text", "text": "Open"}]), reply(), user([{"type": "image"}]), reply()]
    record = read("trl", tmp_path / "in", row("trl", *chat, images=NAMES[::-1]))
    assert [one.screen for one in record.steps] == [picture(1), picture(0)]
    folder = written(form, [record], tmp_path / "out")
    assert taken(form, folder)[0].steps == record.steps


OWN = {"type": "image", "image": "2.png"}
BARE = {"type": "image"}
ORDERS = [
    ([user("Open"), reply(), user([OWN]), reply()], ["0.png"], "0.png 2.png"),
    ([user("<image>Open"), reply(), user([OWN]), reply()], ["0.png"], "0.png 2.png"),
    (
        [user("<image>Open"), reply(), user([BARE]), reply(), user([OWN]), reply()],
        ["0.png", "1.png"],
        "0.png 1.png 2.png",
    ),
    ([user([OWN, {"type": "text", "text": "Open"}]), reply(), user([BARE]), reply()], ["0.png"], "2.png 0.png"),
    ([user([OWN, {"type": "text", "text": "Open"}]), reply()], ["2.png"], "2.png"),
    ([user([{"type": "text", "text": "Open <image>"}, OWN]), reply()], [], "2.png"),
    ([user("Open the <image> tag"), user([OWN]), reply()], [], "2.png"),
]


@pytest.mark.parametrize(("chat", "named", "shown"), ORDERS)
def test_a_part_keeps_its_own_picture_and_the_rows_fill_the_other_placeholders(
    tmp_path: Path, chat: list[dict[str, Any]], named: list[str], shown: str
) -> None:
    asked = chat if "Open" in str(chat) else [user("Open"), *chat]
    record = read("trl", tmp_path / "in", row("trl", *asked, images=named))
    assert [one.screen for one in record.steps] == [picture(int(name[0])) for name in shown.split()]


UNCLEAR = [
    ([user([BARE, {"type": "text", "text": "Open"}]), reply(), user("<image>"), reply()], ["0.png"]),
    ([user([OWN, {"type": "text", "text": "Open"}]), reply()], ["0.png"]),
    ([user([OWN, {"type": "text", "text": "Open"}]), reply(), user([BARE]), reply()], ["0.png", "1.png"]),
]


@pytest.mark.parametrize(("chat", "named"), UNCLEAR)
def test_pictures_that_could_be_those_of_other_parts_are_refused(
    tmp_path: Path, chat: list[dict[str, Any]], named: list[str]
) -> None:
    assert "images" in problem("trl", tmp_path, row("trl", *chat, images=named))


def test_a_message_of_many_parts_is_read_in_linear_time(tmp_path: Path) -> None:
    took = list[float]()
    for number in (2_000, 16_000):
        text = {"type": "text", "text": "a"}
        asked = user([{"type": "image"}, *[text] * number])
        begun = time.process_time()
        read("trl", tmp_path / str(number), row("trl", asked, reply(), images=["0.png"]))
        took.append(time.process_time() - begun)
    assert took[1] < 30 * took[0] + 0.5


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://a.test/1.png"}},
            "messages.0.content.0.image_url: 'https://a.test/1.png' is not fetched; save the image below the folder",
        ),
        ({"type": "image", "path": "9.png"}, "messages.0.content.0.path: there is no image '9.png'"),
        ({"type": "image", "url": "data:image/png,x"}, "messages.0.content.0.url: no image in the data URL"),
        ({"type": "image", "base64": "eA=="}, "messages.0.content.0.base64: no image: it is none of PNG"),
    ],
)
def test_a_part_without_its_picture_is_refused_by_its_field(tmp_path: Path, part: dict[str, Any], said: str) -> None:
    asked = [part, {"type": "text", "text": "Open"}]
    assert said in problem("trl", tmp_path, row("trl", user(asked), reply(), images=[]))


@pytest.mark.parametrize(
    "of",
    [
        {"conversations": [{"from": "human", "value": "<image>Open"}, {"from": "gpt", "value": ACT}]},
        {"query": "<image>Open", "response": ACT},
        {"instruction": "<image>Open", "output": ACT},
        {"task_id": "t", "instruction": "Open", "traj": []},
    ],
)
@pytest.mark.parametrize("name", CHATS)
def test_a_row_without_a_chat_is_refused_by_the_field_that_is_missing(
    tmp_path: Path, name: str, of: dict[str, Any]
) -> None:
    field = "prompt" if name == "verl" else "messages"
    has = ", ".join(sorted([*of, "images"]))
    said = f"{field}: it is missing; the row has {has}. Write the chat as `{field}`"
    assert problem(name, tmp_path, {**of, "images": NAMES[:1]}).startswith(said)


@pytest.mark.parametrize("name", CHATS)
def test_every_role_of_a_chat_is_read(tmp_path: Path, name: str, sentence: Sentences) -> None:
    turns = [{"role": role, "content": f"I am {role}."} for role in ("system", "developer")]
    turns += [user("<image>Open"), {"role": "tool", "content": "done"}, reply()]
    assert read(name, tmp_path, row(name, *turns)).instruction == "Open"
    said = problem(name, tmp_path / "other", row(name, {"role": "observer", "content": "x"}, *turns))
    sentence.lines(said, "'observer'")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("thinking", "is a thought: write it as the message's `reasoning_content`"),
        ("tool_use", "is a tool's call: write it in the message's `tool_calls`"),
        ("tool_result", "is a call's result: write it as the text of a message of role `tool`"),
        ("video", "is no image: save a screen of it as an image"),
        ("document", "is no text and no image: leave the part out, or write it as a text"),
    ],
)
def test_a_part_that_is_no_text_and_no_picture_is_refused_with_its_place(tmp_path: Path, kind: str, said: str) -> None:
    of = row("trl", user("<image>Open"), reply([{"type": kind, kind: "x"}, {"type": "text", "text": ACT}]))
    assert problem("trl", tmp_path, of) == f"messages.1.content.0.type: '{kind}' {said}"


@pytest.mark.parametrize("name", CHATS)
def test_pictures_that_are_no_list_are_refused_with_an_example(tmp_path: Path, name: str, sentence: Sentences) -> None:
    said = problem(name, tmp_path, {**row(name, user("<image>Open"), reply()), "images": "0.png"})
    sentence(said)


@pytest.mark.parametrize("name", ["atif", "label-studio"])
def test_lines_given_to_a_format_of_one_value_are_named(tmp_path: Path, name: str, sentence: Sentences) -> None:
    file = saved(tmp_path, row("trl", user("<image>Open"), reply()))
    file.write_text(file.read_text() * 2)
    said = refused(FORMATS.class_of(name)(), file)
    sentence(said, "theirs.jsonl", "jq -s .")


@pytest.mark.parametrize("name", [*CHATS, "agentnet", "scalecua", "atif", "label-studio"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (picture(0).png, "it is an image; name the file of the records"),
        (b"SQLite format 3\0", "it is a database; name the file of the records"),
        (b"PAR1\0\n\xff", "it is Parquet; name it *.parquet"),
        (b"PK\x03\x04\n\n", "it is a ZIP archive; unpack it"),
        (b"\x1f\x8b\x08\n", "it is compressed; unpack it"),
        (b'{"a": "\xff"}', "it is not UTF-8 text. Name the file of the records, or convert it"),
    ],
)
def test_a_file_that_is_no_text_is_refused_once_with_its_kind(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / "theirs.json").write_bytes(content)
    found = refused(FORMATS.class_of(name)(), tmp_path / "theirs.json", unit="thousandths")
    assert found.partition("not JSON: ")[2] == said


@pytest.mark.parametrize("name", ["trl", "verl"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"messages": []}\n', "it is JSON; name it *.jsonl"),
        (b"\xef\xbb\xbf\n [1]", "it is JSON; name it *.jsonl"),
        (b"\x1f\x8b\x08\n", "it is compressed; unpack it"),
        (picture(0).png, "it is an image; name the file of the records"),
    ],
)
def test_a_file_that_is_no_parquet_is_refused_with_its_kind(
    tmp_path: Path, name: str, content: bytes, said: str, sentence: Sentences
) -> None:
    (tmp_path / "a.parquet").write_bytes(content)
    found = refused(FORMATS.class_of(name)(), tmp_path / "a.parquet", unit="thousandths")
    sentence(found, "a.parquet", said)
    for damaged in (b"", b"PAR1 cut", b"words alone"):
        (tmp_path / "a.parquet").write_bytes(damaged)
        found = refused(FORMATS.class_of(name)(), tmp_path / "a.parquet", unit="thousandths")
        assert found.endswith("; write the file again, or name the file of the records") and ".;" not in found


@pytest.mark.parametrize(
    ("name", "field"),
    [("trl", "messages"), ("trl", "prompt"), ("trl", "completion"), ("ui-tars", "messages"), ("verl", "prompt")],
)
def test_a_chat_without_messages_is_refused_by_its_field(
    tmp_path: Path, name: str, field: str, sentence: Sentences
) -> None:
    reward = {"reward_model": {"ground_truth": ACT}} if name == "verl" else {}
    for images in ([], ["0.png"]):
        said = problem(name, tmp_path, {field: [], "images": images, **reward})
        sentence(said, "`role`", "content", field)


def test_a_role_that_is_none_is_refused_with_its_name_here(tmp_path: Path) -> None:
    turns = [{"role": "human", "content": "<image>Open"}, {"role": "gpt", "content": ACT}]
    said = problem("trl", tmp_path, row("trl", *turns))
    assert said.startswith("messages.0.role: 'human' is none of") and said.endswith("write 'user'")


def test_a_refusal_of_a_prompt_or_a_completion_names_it(tmp_path: Path) -> None:
    of = {"prompt": [user("<image>Open")], "completion": [{"role": "gpt", "content": ACT}], "images": NAMES[:1]}
    assert problem("trl", tmp_path, of).startswith("completion.0.role: 'gpt'")
    outside = row("verl", user("<image>Open"), reply("Action: click(start_box='(5000,250)')"))
    assert problem("verl", tmp_path, outside).startswith("reward_model.ground_truth: ")


def array(name: str) -> list[dict[str, Any]]:
    """Two records of a format, of which the second names a picture that is not there."""
    if name == "agentnet":
        steps = [{"image": image, "value": {"code": "pyautogui.click(0.5, 0.25)"}} for image in ("0.png", "9.png")]
        return [{"task_id": at, "instruction": "Open", "traj": [step]} for at, step in enumerate(steps)]
    if name == "scalecua":
        asked = {"from": "human", "value": "<image>\nTask:\nOpen\n\nPrevious operations:\nNone"}
        answer = {"from": "gpt", "value": "<action>\nclick(x=0.5, y=0.25)\n</action>"}
        return [{"image": image, "conversations": [asked, answer]} for image in ("0.png", "9.png")]
    return [row(name, user("<image>Open"), reply(), images=[image]) for image in ("0.png", "9.png")]


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("suffix", ["json", "jsonl"])
@pytest.mark.parametrize("name", [*CHATS, "agentnet", "scalecua"])
def test_an_array_is_read_as_its_records(tmp_path: Path, name: str, suffix: str, indent: int | None) -> None:
    """As LLaMA-Factory and LLaVA write data sets."""
    form, unit = FORMATS.class_of(name)(), "thousandths" if name in CHATS else None
    saved(tmp_path, {})
    file = tmp_path / f"array.{suffix}"
    file.write_text(json.dumps(array(name)[:1], indent=indent))
    (record,) = taken(form, file, unit=unit)
    assert [(one.screen, one.action) for one in record.steps] == [(picture(0), Click(x=0.5, y=0.25))]
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(array(name), indent=indent).encode())
    assert refused(form, file, unit=unit).startswith(f"array.{suffix}, record 2, ")


def test_an_array_that_is_cut_is_refused_once_with_the_fix(tmp_path: Path) -> None:
    file = saved(tmp_path, {})
    file.write_text(json.dumps(array("trl"), indent=1)[:-3])
    said = refused(FORMATS.class_of("trl")(), file, unit="thousandths")
    assert said.startswith("theirs.jsonl, line 1: not JSON: ") and said.endswith("write one record a line")


def test_lines_that_are_arrays_are_lines(tmp_path: Path) -> None:
    file = saved(tmp_path, {})
    chat = json.dumps([user("Open"), reply()])
    file.write_text(f"{chat}\n{chat}\n")
    found = [str(one) for _, one in FORMATS.class_of("ui-tars")().read(ImportSource(file, unit="thousandths"))]
    assert len(found) == 2 and "line 2" in found[1]


def test_a_point_outside_of_fractions_is_refused_without_a_size(tmp_path: Path, sentence: Sentences) -> None:
    line = array("agentnet")[0]
    line["traj"][0]["value"]["code"] = "pyautogui.click(500, 300)"
    said = refused(FORMATS.class_of("agentnet")(), saved(tmp_path, line))
    sentence(said)
