"""The chat of every published family, with its reply, as the chat template of its checkpoints writes it: a change of
prompts, roles, past turns or replies is a change of tests/golden/chats (FLYWHEEL_GOLDEN=write writes them anew)."""

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from models.families.processor import read_processor
from models.families.registry import FAMILIES
from models.families.screen import ImageLimits
from models.families.template import template as prompt
from models.policy import Context
from schemas.config.policy import PolicyConfig
from schemas.observation import PastStep
from tests.unit.models.families.published import (
    ASKED,
    LIMITS,
    MODELS,
    TRAINED_FROM,
    context,
    done,
    screen,
    write_directory,
)

GOLDEN = Path(__file__).parents[3] / "golden"


@pytest.fixture(scope="module")
def processor(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("published")
    return lru_cache(lambda kind: read_processor(write_directory(kind, folder / kind)))


@pytest.mark.parametrize(("name", "template"), ASKED)
def test_a_family_is_asked_and_answers_as_it_was_recorded(processor: Any, name: str, template: str) -> None:
    kind = TRAINED_FROM.get(name, "qwen2_5_vl")
    plain = FAMILIES.class_of(name)(PolicyConfig.model_validate({"family": name, "template": template}))
    images = 2 if plain.shows_past else 1
    family = FAMILIES.class_of(name)(
        PolicyConfig.model_validate({"family": name, "template": template, "history_images": images})
    )
    patch = MODELS[kind][3]
    family.fit(ImageLimits(2 * patch, *LIMITS[patch]))
    thought, action = done(family)[-1]
    reply = {"role": "assistant", "content": [{"type": "text", "text": family.reply(thought, [action], (320, 200))}]}
    written = processor(kind).apply_chat_template([*family.messages(context(family)), reply], tokenize=False)
    file = GOLDEN / "chats" / f"{name}-{template}.txt"
    if os.environ.get("FLYWHEEL_GOLDEN") == "write":
        file.parent.mkdir(exist_ok=True)
        file.write_text(written)
    assert file.read_text() == written


def test_ui_tars_is_shown_its_past_as_in_its_published_training_example(processor: Any) -> None:
    """`data/training_example.json` of github.com/bytedance/UI-TARS @582f3a7: its turns after the prompt."""
    example = json.loads((GOLDEN / "ui-tars-training-example.json").read_text())
    system, _, *turns = example["messages"]
    screens = sum(turn["role"] == "user" for turn in turns)
    family = FAMILIES.class_of("ui-tars-1.0")(PolicyConfig(family="ui-tars-1.0", history_images=screens))
    actions = [turn["content"] for turn in turns if turn["role"] == "assistant"]
    read = [text.removeprefix("Action: ").replace("<|box_start|>", "").replace("<|box_end|>", "") for text in actions]
    past = tuple(PastStep("", text, screen(0)) for text in read[:-1])
    asked = processor("qwen2_vl").apply_chat_template(
        family.messages(Context(example["instruction"], past, screen(0), 0)), tokenize=False, add_generation_prompt=True
    )
    shown = "<|vision_start|><|image_pad|><|vision_end|>"
    theirs = [f"<|im_start|>{turn['role']}\n{turn['content'] or shown}<|im_end|>\n" for turn in turns[:-1]]
    assert asked.startswith(f"<|im_start|>system\n{system['content']}<|im_end|>\n<|im_start|>user\nYou are a GUI")
    assert asked.endswith(f"{example['instruction']}<|im_end|>\n{''.join(theirs)}<|im_start|>assistant\n")
    assert turns[-1] == {"role": "assistant", "content": actions[-1], "loss_mask": 1}
    assert all(turn["loss_mask"] == 0 for turn in turns[:-1])


def test_qwen_is_told_its_tools_as_its_own_chat_template_writes_them(processor: Any) -> None:
    family = FAMILIES.class_of("qwen3-vl")(PolicyConfig(family="qwen3-vl", template="grounding"))
    _, *turns = family.messages(context(family))
    tool = json.loads(prompt("qwen-computer_use.json").replace("{width}", "1000").replace("{height}", "1000"))
    system = {"role": "system", "content": "You are a helpful assistant."}
    ours, theirs = (
        processor("qwen3_vl").apply_chat_template(chat, tokenize=False, tools=tools)
        for chat, tools in (
            (family.messages(context(family)), None),
            ([system, *turns], [{"type": "function", "function": tool}]),
        )
    )
    assert ours == theirs


def test_qwen3_5_is_told_the_form_of_a_call_as_its_own_chat_template_writes_it(processor: Any) -> None:
    family = FAMILIES.class_of("qwen3.5")(PolicyConfig(family="qwen3.5"))
    system, *turns = family.messages(context(family))
    written = system["content"][0]["text"]
    tool = json.loads(written.partition("<tools>\n")[2].partition("\n</tools>")[0])
    theirs = processor("thinking").apply_chat_template(turns, tokenize=False, tools=[tool])
    whole = theirs.partition("<|im_start|>system\n")[2].partition("\n</IMPORTANT>")[0]
    assert whole in written
