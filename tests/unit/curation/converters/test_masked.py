"""What a record of others says must not be trained on is context here: read, kept, and no target."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curation.converters.exchanged import About, Exchanged
from curation.converters.format import FORMATS
from tests.fixtures.sentences import Sentences
from tests.unit.curation.converters.records import picture, refused, taken, written

REPLY = "Action: wait()"
ASKED = {"role": "user", "content": "Buy it."}


def source(folder: Path, *rows: dict[str, Any], name: str = "theirs.jsonl") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        (folder / f"{number}.png").write_bytes(picture(number).png)
    text = json.dumps(rows) if name.endswith(".json") else "".join(json.dumps(row) + "\n" for row in rows)
    (folder / name).write_text(text)
    return folder / name


def turns(*replies: dict[str, Any]) -> list[dict[str, Any]]:
    shown = {"role": "user", "content": [{"type": "image"}]}
    return [ASKED, *(part for reply in replies for part in (shown, {"role": "assistant", "content": REPLY, **reply}))]


def targets(record: Exchanged) -> list[bool]:
    return [record.is_target(step) for step in range(len(record.steps))]


@pytest.mark.parametrize(
    ("masked", "plain"),
    [
        ({"loss_mask": 0}, {"loss_mask": 1}),  # bytedance/UI-TARS, data/training_example.json
        ({"loss": False}, {"loss": True}),  # ms-swift's messages
        ({"train": False}, {"train": True}),  # axolotl, `message_field_training: train`
        ({"training": False}, {"training": True}),  # axolotl, `message_field_training: training`
        ({"weight": 0}, {"weight": 1}),  # OpenAI's supervised fine-tuning, multi-turn chats
        ({"weight": 0.0}, {"weight": None}),
    ],
)
@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_a_reply_without_loss_is_context(
    tmp_path: Path, name: str, masked: dict[str, Any], plain: dict[str, Any]
) -> None:
    messages = turns(masked, plain, masked)
    if name == "ui-tars":
        messages = [
            {**one, "content": "<image>" if isinstance(one["content"], list) else one["content"]} for one in messages
        ]
    form = FORMATS.class_of(name)()
    file = source(tmp_path / "in", {"messages": messages, "images": ["0.png", "1.png", "2.png"]})
    (record,) = taken(form, file, unit="thousandths")
    assert targets(record) == [False, True, False]
    (again,) = taken(form, written(form, [record], tmp_path / "out"))
    assert targets(again) == [False, True, False]


def test_what_is_replied_in_a_prompt_is_context_and_so_is_an_undesirable_completion(tmp_path: Path) -> None:
    """Rows of `prompt` with `completion`, `chosen` or `label`: trl 1.16.0, its page on dataset formats; `label`
    beside `messages`: modelscope/ms-swift@025fc6b8, its page on custom datasets, where other values are a class."""
    form = FORMATS.class_of("trl")()
    whole, images = turns({}, {}), ["0.png", "1.png"]
    rows: list[dict[str, Any]]
    prompt, last = whole[:-1], whole[-1:]
    rows = [
        {"prompt": prompt, "completion": last, "images": images},
        {"prompt": prompt, "chosen": last, "rejected": last, "images": images},
        {"chosen": whole, "rejected": whole, "images": images},
        {"prompt": prompt, "completion": last, "label": True, "images": images},
        {"prompt": prompt, "completion": last, "label": False, "images": images},
        {"messages": whole, "images": images},
        {"messages": whole, "images": images, "label": False},
        {"messages": whole, "images": images, "label": True},
        {"messages": whole, "images": images, "label": 3},
    ]
    found = taken(form, source(tmp_path, *rows), unit="thousandths")
    assert [targets(one) for one in found] == [
        *[[False, True]] * 4,
        [False, False],
        [True, True],
        [False, False],
        [False, True],
        [True, True],
    ]


def test_of_a_row_of_verl_the_ground_truth_alone_is_a_target(tmp_path: Path) -> None:
    """verl 0.9.1, its page on data preparation: `prompt` is the input, `reward_model.ground_truth` the answer."""
    prompt = [ASKED, {"role": "user", "content": "<image>"}, {"role": "assistant", "content": REPLY}]
    prompt.append({"role": "user", "content": "<image>"})
    row = {"prompt": prompt, "images": ["0.png", "1.png"], "reward_model": {"ground_truth": REPLY}}
    (record,) = taken(FORMATS.class_of("verl")(), source(tmp_path, row), unit="thousandths")
    assert targets(record) == [False, True]


UNDESIRABLE: list[dict[str, Any]] = [{"label": one} for one in (False, 0, 0.0, "False", "0", " no ")]
UNDESIRABLE.append({"kto_tag": False})  # LLaMA-Factory
CLASSES: list[dict[str, Any]] = [{"label": one} for one in (None, "cat", 3, -1, 0.8, [0], [1, 3], "", "none")]


def chat(name: str, pictures: int = 2, **fields: Any) -> dict[str, Any]:
    """A row of a format with a step for each picture."""
    screen = {"role": "user", "content": "<image>"}
    messages = [ASKED, *([screen, {"role": "assistant", "content": REPLY}] * pictures)]
    images = [f"{number}.png" for number in range(pictures)]
    if name == "verl":
        return {"prompt": messages[:-1], "images": images, "reward_model": {"ground_truth": REPLY}, **fields}
    if name == "prompt":
        return {"prompt": messages[:-1], "completion": messages[-1:], "images": images, **fields}
    return {"messages": messages, "images": images, **fields}


@pytest.mark.parametrize("name", ["trl", "prompt", "ui-tars", "verl"])
def test_an_undesirable_reply_is_context_in_every_chat_format_and_a_class_says_nothing(
    tmp_path: Path, name: str
) -> None:
    form = FORMATS.class_of("trl" if name == "prompt" else name)()

    def found(fields: dict[str, Any]) -> list[bool]:
        (record,) = taken(form, source(tmp_path, chat(name, **fields)), unit="thousandths")
        return targets(record)

    assert {str(found(one)) for one in UNDESIRABLE} == {"[False, False]"}
    assert {str(found({"label": one})) for one in (True, 1, "true", "1")} == {"[False, True]"}
    assert {str(found(one)) for one in CLASSES} == {str(found({}))}
    assert found({})[-1]


@pytest.mark.parametrize(
    "part",
    [{"weight": 0}, {"loss": False}, {"loss_mask": [1, 0]}, {"train": "no"}, {"train_detail": [{"train": False}]}],
)
def test_a_part_of_a_reply_without_loss_makes_the_reply_context(tmp_path: Path, part: dict[str, Any]) -> None:
    """`weight` of a part, as `messages` of OpenAI have it."""
    messages = turns({}, {})
    text = {"type": "text", "text": "Action: "}
    messages[2]["content"] = [text, {"type": "text", "text": "wait()", **part}]
    file = source(tmp_path / "in", {"messages": messages, "images": ["0.png", "1.png"]})
    form = FORMATS.class_of("trl")()
    (record,) = taken(form, file, unit="thousandths")
    assert targets(record) == [False, True]
    (again,) = taken(form, written(form, [record], tmp_path / "out"))
    assert targets(again) == [False, True]


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_a_call_of_a_reply_without_loss_makes_the_reply_context(tmp_path: Path, name: str) -> None:
    row = chat(name)
    row["messages"][2] = {**row["messages"][2], "tool_calls": [{"function": {"name": "f"}, "weight": 0}]}
    (record,) = taken(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
    assert targets(record) == [False, True]


@pytest.mark.parametrize("known", [{"unit": "thousandths"}, {"trajectory": {"task_id": "a"}}])
@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        *((name, {"loss_mask": 0}, [False, False]) for name in ("trl", "ui-tars")),
        *((name, {"label": False}, [False, False]) for name in ("trl", "ui-tars")),
        *((name, {"loss_scale": "last_round"}, [False, True]) for name in ("trl", "ui-tars")),
        ("verl", {"loss_mask": 0}, [False, False]),
        ("agentnet", {"step_loss_mask": [0, 1]}, [False, True]),
        ("agentnet", {"train": False}, [False, False]),
    ],
)
def test_what_a_record_holds_of_ours_changes_no_mask(
    tmp_path: Path, name: str, given: dict[str, Any], wanted: list[bool], known: dict[str, Any]
) -> None:
    if name == "agentnet":
        traj = [{"image": f"{at}.png", "value": {"code": "pyautogui.click(x=0.5, y=0.5)"}} for at in range(2)]
        row: dict[str, Any] = {"task_id": "a", "instruction": "Buy it.", "traj": traj}
    else:
        row = chat(name)
    row |= {**given, "flywheel": json.dumps(known) if name == "verl" else known}
    (record,) = taken(
        FORMATS.class_of(name)(), source(tmp_path, row), unit="fraction" if name == "agentnet" else "thousandths"
    )
    assert targets(record) == wanted


NO_MASKS: list[Any] = [
    "banana",
    -1,
    "-0.5",
    float("-inf"),
    float("inf"),
    "inf",
    "0 or 1",
    {"begin_offset": 0},
    {"a": 0},
]
NO_MASKS += [["a"], [[1], ["b"]], "[1, 0", "default"]


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
@pytest.mark.parametrize("value", NO_MASKS)
def test_a_mask_of_a_message_that_means_nothing_is_refused_by_its_field(
    tmp_path: Path, name: str, value: Any, sentence: Sentences
) -> None:
    row = chat(name)
    row["messages"][2] = {**row["messages"][2], "loss": value}
    said = refused(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
    assert said.startswith("theirs.jsonl, line 1, messages.2.loss")
    sentence(said)


@pytest.mark.parametrize("name", ["trl", "ui-tars", "verl"])
def test_a_mask_of_a_row_that_means_nothing_is_refused_by_its_field(tmp_path: Path, name: str) -> None:
    form = FORMATS.class_of(name)()
    for value, field in ((["a", *"1111"], "loss_mask.0"), ("banana", "loss_mask"), (-1, "loss_mask")):
        said = refused(form, source(tmp_path, chat(name, loss_mask=value)), unit="thousandths")
        assert said.startswith(f"theirs.jsonl, line 1, {field}: ")
    row = chat(name)
    (row.get("messages") or row["prompt"])[0] = {**ASKED, "content": "Buy it."}
    assert taken(form, source(tmp_path, row), unit="thousandths")


def test_a_mask_of_a_part_or_a_step_that_means_nothing_is_refused_by_its_field(
    tmp_path: Path, sentence: Sentences
) -> None:
    messages = turns({"content": [{"type": "text", "text": REPLY, "weight": "banana"}]})
    file = source(tmp_path, {"messages": messages, "images": ["0.png"]})
    said = refused(FORMATS.class_of("trl")(), file, unit="thousandths")
    sentence.lines(said, "messages.2.content.0.weight", "'banana'")
    value = {"code": "pyautogui.click(x=0.5, y=0.5)", "loss": "banana"}
    line = {"task_id": "a", "instruction": "Buy it.", "traj": [{"image": "0.png", "value": value}]}
    assert "traj.0.value.loss: 'banana'" in refused(FORMATS.class_of("agentnet")(), source(tmp_path, line))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("default", [True, True]), ("all", [True, True]), ("last_round", [False, True])],
)
@pytest.mark.parametrize("more", ["", "+ignore_empty_think"])
@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_a_strategy_that_a_row_names_is_read(
    tmp_path: Path, name: str, value: str, more: str, wanted: list[bool]
) -> None:
    """modelscope/ms-swift, pull request 8430: a row's `loss_scale` names the strategy of its loss."""
    file = source(tmp_path, chat(name, loss_scale=value + more))
    (record,) = taken(FORMATS.class_of(name)(), file, unit="thousandths")
    assert targets(record) == wanted


@pytest.mark.parametrize("between", [[], [{"role": "user", "content": "Go on."}], [{"role": "tool", "content": "ok"}]])
@pytest.mark.parametrize("name", ["trl", "ui-tars", "verl"])
def test_a_further_reply_to_a_screen_is_context(tmp_path: Path, name: str, between: list[dict[str, Any]]) -> None:
    """A policy sees a new screen after each action; the screen of such a reply is not shown."""
    form, row = FORMATS.class_of(name)(), chat(name)
    messages = row["prompt" if name == "verl" else "messages"]
    late = [*between, {"role": "assistant", "content": REPLY}]
    messages[3:3] = late
    (record,) = taken(form, source(tmp_path / "in", row), unit="thousandths")
    assert targets(record) == [name != "verl", False, True]
    stored = replace(record, about=About(lake="l", trajectory_id="t"))
    (again,) = taken(form, written(form, [stored], tmp_path / "out"))
    assert targets(again) == [name != "verl", False, True]
    row = chat(name)
    row["prompt" if name == "verl" else "messages"] += late if name != "verl" else late[-1:] + between
    (record,) = taken(form, source(tmp_path / "last", row), unit="thousandths")
    assert targets(record)[-1] is False


AFTER: list[list[dict[str, Any]]] = [
    [{"role": "tool", "content": "ok"}],
    [{"role": "user", "content": "thanks"}],
    [{"role": "tool", "content": "ok"}, {"role": "user", "content": "thanks"}, {"role": "system", "content": "End."}],
]


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, [True, True]),
        ({"label": True}, [False, True]),
        ({"kto_tag": "1"}, [False, True]),
        ({"label": False}, [False, False]),
        ({"loss_scale": "last_round"}, [False, True]),
        ({"loss_scale": "last_round+ignore_empty_think", "label": 1}, [False, True]),
    ],
)
@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_a_turn_after_the_last_reply_leaves_that_a_target(
    tmp_path: Path, name: str, given: dict[str, Any], wanted: list[bool], after: list[dict[str, Any]]
) -> None:
    row = chat(name, **given)
    row["messages"] += after
    (record,) = taken(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
    assert targets(record) == wanted


@pytest.mark.parametrize("after", AFTER)
def test_a_turn_after_a_completion_or_a_chosen_chat_leaves_its_reply_a_target(
    tmp_path: Path, after: list[dict[str, Any]]
) -> None:
    form, whole = FORMATS.class_of("trl")(), turns({}, {})
    for row in (
        {"prompt": whole[:-1], "completion": whole[-1:] + after},
        {"prompt": whole[:-1], "completion": whole[-1:] + after, "label": True},
        {"chosen": whole + after, "rejected": whole},
        {"prompt": whole[:1], "completion": whole[1:] + after, "loss_scale": "last_round", "label": None},
    ):
        file = source(tmp_path, {**row, "images": ["0.png", "1.png"]})
        (record,) = taken(form, file, unit="thousandths")
        assert targets(record) == [False, True]


@pytest.mark.parametrize("name", ["trl", "verl"])
def test_nan_in_parquet_is_a_mask_that_is_not_given(tmp_path: Path, name: str) -> None:
    row, nan = chat(name), float("nan")
    for message in row.get("messages", []):
        message["weight"] = nan
    if name == "trl":
        row["messages"][4]["weight"] = 1.0
    row |= {"loss_weight": [nan] * (4 + (name == "trl")) + ([1.0] if name == "verl" else []), "train": nan}
    source(tmp_path, {})
    (tmp_path / "theirs.jsonl").unlink()
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "theirs.parquet")
    (record,) = taken(FORMATS.class_of(name)(), tmp_path / "theirs.parquet", unit="thousandths")
    assert targets(record) == [name == "trl", True]


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
@pytest.mark.parametrize("value", [float("nan"), "nan", "NaN", [float("nan"), 1]])
def test_nan_in_json_is_a_mask_that_is_not_given(tmp_path: Path, name: str, value: object) -> None:
    row = chat(name)
    row["messages"][2] = {**row["messages"][2], "loss": value}
    (record,) = taken(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
    assert targets(record) == [True, True]


def replied(*replies: dict[str, Any] | str) -> dict[str, Any]:
    """A row of one screen with several replies, and of a second one with one."""
    screen = {"role": "user", "content": "<image>"}
    every = [{"role": "assistant", **({"content": one} if isinstance(one, str) else one)} for one in replies]
    messages = [ASKED, screen, *every, screen, {"role": "assistant", "content": REPLY}]
    return {"messages": messages, "images": ["0.png", "1.png"]}


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        (replied({"content": REPLY, "weight": 0}, REPLY), [False, True, True]),
        (replied({"content": REPLY, "loss": False}, "No.", REPLY, REPLY), [False, False, True, False, True]),
        (replied("I open the menu first.", REPLY), [False, True, True]),
        (replied("Thought: Look (well).", "And again.", REPLY), [False, False, True, True]),
        (replied("Action: fly()", REPLY), [True, False, True]),
        (replied(f"{REPLY}\n{REPLY.partition(': ')[2]}", REPLY), [True, False, True]),
        (
            replied({"content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}, REPLY),
            [True, False, True],
        ),
        (
            replied({"content": "So.", "tool_calls": [{"function": {"name": "a b", "arguments": "x\ny"}}]}, REPLY),
            [True, False, True],
        ),
        (replied("Only words."), [True, True]),
        (replied({"content": "Words.", "tool_calls": [None, {}]}, REPLY), [False, True, True]),
        *(
            (replied(words, REPLY), [False, True, True])
            for words in (
                "I will close the window(s) first.",
                "My next action: open the menu.",
                'Click "action" button',
                "f(x) is shown",
                "use the <tool_call> tag",
                "<think>press f(x)\nf(x)</think> Well.",
                "1. Click [Settings]\n2. search('shoes')",
                "1,234",
                "[fly(x=1)]",  # in a notation that no reader here reads
            )
        ),
        *(
            (replied(acts, REPLY), [True, False, True])
            for acts in (
                "pyautogui.fly(1, 2)",
                'So.\n<tool_call>\n{"name": "fly"}</tool_call>',
                '{"action": "fly"}',
                "**Action:** fly(1)",
                "<action>fly(1)</action>",
                '{"action_type": "fly", "index": 5}',
                '{"thought": "a", "action": "fly"}',
                "<tool_call>fly\n<arg_key>x</arg_key>",
                '<function name="fly">',
            )
        ),
        (replied({"content": REPLY, "weight": 0}, "You are welcome."), [False, False, True]),
    ],
)
def test_a_screen_is_answered_by_a_reply_that_acts_and_is_no_context(
    tmp_path: Path, name: str, row: dict[str, Any], wanted: list[bool]
) -> None:
    (record,) = taken(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
    assert targets(record) == wanted


@pytest.mark.parametrize("name", ["trl", "ui-tars"])
def test_the_result_of_a_tool_answers_no_screen_if_no_reply_acted(tmp_path: Path, name: str) -> None:
    screen = {"role": "user", "content": "<image>"}
    result = {"role": "tool", "content": "price: 5"}

    def read(*replies: dict[str, Any]) -> list[bool]:
        row = {"messages": [ASKED, screen, *replies], "images": ["0.png"]}
        (record,) = taken(FORMATS.class_of(name)(), source(tmp_path, row), unit="thousandths")
        return targets(record)

    words, acts = {"role": "assistant", "content": "I look it up."}, {"role": "assistant", "content": REPLY}
    assert read(words, result, acts) == [False, True]
    assert read({**words, "weight": 0}, result, acts) == [False, True]
    assert read({**acts, "weight": 0}, result, acts) == [False, False]


def test_the_last_round_of_agentnet_is_the_last_by_its_index(tmp_path: Path) -> None:
    traj = [{"index": 1 - at, "image": f"{at}.png", "value": {"code": f"write(message='{at}')"}} for at in range(2)]
    row = {"task_id": "a", "instruction": "Open it.", "traj": traj, "loss_scale": "last_round"}
    (record,) = taken(FORMATS.class_of("agentnet")(), source(tmp_path, row), unit="fraction")
    assert targets(record) == [False, True] and record.steps[1].screen == picture(0)


@pytest.mark.parametrize(
    "piece", ["Action", ":", "Action:", "f(", ")", ");", "]", "```", "<tool_call>", '{"', " ", "\n"]
)
def test_replies_without_a_call_are_read_in_linear_time(tmp_path: Path, piece: str) -> None:
    began = time.process_time()
    for text in (
        piece * (40_000 // len(piece)),
        "Action" + piece * (40_000 // len(piece)),
        "f()" + piece * 9_000 + "x",
    ):
        taken(FORMATS.class_of("trl")(), source(tmp_path, replied(text, REPLY)), unit="thousandths")
    assert time.process_time() - began < 4
