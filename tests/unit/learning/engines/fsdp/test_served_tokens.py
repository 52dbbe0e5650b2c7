"""The tokens that are trained on are those that a server makes of what it is sent, for every family, behind the chat
templates of the published checkpoints."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch

from learning.data.files import Rollout
from learning.data.sample import Past, Screenshots, TrainSample, write_screenshots
from learning.engines.fsdp.chats import Chat, Chats
from models.completion import Completion
from models.families.family import ModelFamily
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.registry import family_of
from models.policy import Context
from models.serving.server import wire_message
from schemas.action import to_json
from schemas.config.policy import PolicyConfig
from schemas.observation import PastStep
from tests.unit.models.families.published import (
    ASKED,
    INSTRUCTION,
    TRAINED_FROM,
    context,
    done,
    screen,
    write_directory,
)

DIGESTS = tuple(f"screen-{number}" for number in range(4))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    write_screenshots(folder / "screenshots.parquet", {name: screen(at).png for at, name in enumerate(DIGESTS)})
    return folder


@pytest.fixture(scope="module")
def directory(folder: Path) -> Any:
    return lru_cache(lambda kind: write_directory(kind, folder / kind))


def policy_of(name: str, template: str, directory: Path) -> tuple[PolicyConfig, ModelFamily]:
    """With the last two screens, where the family is shown past ones."""
    for images in (2, 1):
        policy = PolicyConfig.model_validate(
            {"base": str(directory), "family": name, "template": template, "history_images": images}
        )
        try:
            return policy, family_of(policy)
        except Exception:
            if images == 1:
                raise
    raise AssertionError


def served(directory: Path, messages: Sequence[Message]) -> Any:
    """What `transformers serve` makes of a request."""
    from transformers.cli.serving.utils import BaseHandler, Modality

    body = json.loads(json.dumps([wire_message(message) for message in messages]))
    inputs = BaseHandler.get_processor_inputs_from_messages(body, Modality.VLM)
    return read_processor(directory).apply_chat_template(
        inputs, add_generation_prompt=True, tools=None, return_tensors="pt", return_dict=True, tokenize=True
    )


def documents(family: ModelFamily) -> tuple[Rollout, Rollout, TrainSample, Context]:
    """The same step as a reply that a model gave, as one that the family wrote (a preference, a demonstration), as a
    sample to imitate, and as it is met."""
    steps = done(family)
    replies = [family.reply(thought, [one], (320, 200)) for thought, one in steps]
    shown = DIGESTS[family.rule.folded(len(DIGESTS)) :]
    # a decoder drops special tokens
    past = tuple(reply.replace("<|box_start|>", "").replace("<|box_end|>", "") for reply in replies[:-1])
    errors = ("", "", "no field has the focus")
    rollout = Rollout("one", 3, "task", shown, INSTRUCTION, past, replies[-1], past_errors=errors)
    history = tuple(Past(thought, (to_json(one),), why) for (thought, one), why in zip(steps, errors, strict=False))
    sample = TrainSample("task", shown, INSTRUCTION, history, steps[-1][0], (to_json(steps[-1][1]),))
    read = [family.read(Completion(text), (320, 200)) for text in past]
    turns = tuple(PastStep(one.thought, one.action_text, screen(at), errors[at]) for at, one in enumerate(read))
    written = replace(rollout, past_replies=tuple(replies[:-1]))
    return rollout, written, sample, replace(context(family), turns=turns, thinks=family.thinks)


def prompt_of(chat: Chat) -> torch.Tensor:
    return chat.ids[: int((chat.targets < 0).sum()) + 1]


KINDS = [(name, template, TRAINED_FROM.get(name, "qwen2_5_vl")) for name, template in ASKED if name != "qwen3.8"]
"""Without the family whose past thinking is in `reasoning_content`, which `transformers serve` drops."""


@pytest.mark.parametrize(("name", "template", "kind"), [*KINDS, ("qwen3-vl", "computer", "thinking")])
def test_the_prompt_of_training_is_token_by_token_the_prompt_of_the_server(
    directory: Any, folder: Path, name: str, template: str, kind: str
) -> None:
    policy, family = policy_of(name, template, directory(kind))
    chats = Chats(directory(kind), policy, Screenshots(folder / "screenshots.parquet"), 0)
    rollout, written, sample, met = documents(family)
    asked = served(directory(kind), family.messages(met))
    for document in (rollout, written, sample):
        chat = chats.encode(document)
        assert torch.equal(asked["input_ids"][0], prompt_of(chat)), chats.processor.decode(prompt_of(chat))
        assert torch.equal(asked["image_grid_thw"], chat.grids)
        assert torch.equal(asked["mm_token_type_ids"][0], chat.kinds[: len(prompt_of(chat))])
    shown = torch.cat([chats.pixels(digest)[0] for digest in rollout.screenshots])
    assert torch.equal(asked["pixel_values"], shown)


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen3.5", "holo-3", "fara-7b"])
def test_the_folded_prompt_of_training_is_token_by_token_the_prompt_of_the_server(
    directory: Any, folder: Path, name: str
) -> None:
    place = directory(TRAINED_FROM.get(name, "qwen2_5_vl"))
    policy = PolicyConfig(base=str(place), family=name, context="fold", live_images=3, fold_images=2)
    family, chats = family_of(policy), Chats(place, policy, Screenshots(folder / "screenshots.parquet"), 0)
    rollout, written, sample, met = documents(family)
    assert rollout.screenshots == DIGESTS[2:]
    asked = served(place, family.messages(met))
    for document in (rollout, written, sample):
        chat = chats.encode(document)
        assert torch.equal(asked["input_ids"][0], prompt_of(chat)), chats.processor.decode(prompt_of(chat))
        assert torch.equal(asked["image_grid_thw"], chat.grids)


@pytest.mark.parametrize(("name", "template", "kind"), [*KINDS, ("qwen3-vl", "computer", "thinking")])
def test_the_reply_that_is_learnt_is_what_the_template_writes_for_it(
    directory: Any, folder: Path, name: str, template: str, kind: str
) -> None:
    policy, family = policy_of(name, template, directory(kind))
    chats = Chats(directory(kind), policy, Screenshots(folder / "screenshots.parquet"), 0)
    rollout, _, sample, met = documents(family)
    reply = {"role": "assistant", "content": [{"type": "text", "text": rollout.reply}]}
    template_of = chats.processor.apply_chat_template
    asked = template_of(family.messages(met), tokenize=False, add_generation_prompt=True)
    written = template_of([*family.messages(met), reply], tokenize=False)
    assert written.startswith(asked)
    tokenizer = chats.processor.tokenizer
    for document in (rollout, sample):
        targets = [token for token in chats.encode(document).targets.tolist() if token >= 0]
        assert asked + tokenizer.decode(targets) + "\n" == written
        assert targets == tokenizer.encode(written.removeprefix(asked).removesuffix("\n"), add_special_tokens=False)
        whole = tokenizer.encode(written.removesuffix("\n"), add_special_tokens=False)
        assert whole[-len(targets) :] == targets or kind == "thinking"  # where a new line would merge with the prompt's
        read = family.read(Completion(tokenizer.decode(targets, skip_special_tokens=True)), (320, 200)).first
        assert read == done(family)[-1][1] or name in ROUNDED


ROUNDED = {
    *("pixels", "ui-tars-1.5", "qwen2.5-vl", "opencua", "holo-1.5", "scalecua", "fara-7b", "qwen3.5", "qwen3.6"),
    *("ui-venus-2", "evocua", "mai-ui"),
}
"""Families whose pixels or 999ths are whole ones."""


def test_a_reply_that_a_thinking_model_gave_is_not_begun_twice(directory: Any, folder: Path) -> None:
    policy, family = policy_of("qwen3-vl", "computer", directory("thinking"))
    chats = Chats(directory("thinking"), policy, Screenshots(folder / "screenshots.parquet"), 0)
    rollout = documents(family)[0]
    given = replace(rollout, reply=f"The button is right there.\n</think>\n\n{rollout.reply}")
    targets = [token for token in chats.encode(given).targets.tolist() if token >= 0]
    assert chats.processor.decode(targets) == f"{given.reply}<|im_end|>"
