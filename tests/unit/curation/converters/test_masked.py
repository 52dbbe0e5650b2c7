"""What a record of others says must not be trained on is context here: read, kept, and no target."""

import json
from pathlib import Path
from typing import Any

import pytest

from curation.converters.exchanged import Exchanged
from curation.converters.format import FORMATS
from tests.unit.curation.converters.records import picture, taken, written

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
    beside `messages`: modelscope/ms-swift@025fc6b8, its page on custom datasets, where a number is a
    class."""
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
        {"messages": whole, "images": images, "label": 0},
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
