"""With `policy.context=fold`, a prompt begins with the tokens of the prompt before it until the next fold, in every
family that folds; all other families are refused by name."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from models.completion import Completion
from models.families.outside import as_sent
from models.families.processor import PromptTokens, read_processor
from models.families.prompt import COLLAPSED
from models.families.registry import FAMILIES, family_of
from models.policy import Context
from schemas.action import Click, Move, Wait
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from schemas.observation import Observation, PastStep
from tests.taps import Taps
from tests.tiers import NIGHTLY
from tests.tiny_qwen import build_tiny_qwen
from tests.unit.models.families.published import ASKED, TRAINED_FROM, write_directory

SCREEN = Observation(b"", 320, 200, "")
FOLD: dict[str, Any] = {"context": "fold", "live_images": 3, "fold_images": 2}
SIZE = (320, 200)
STEPS = 5
THOUGHT = "It waits.\n\nAction: Wait."
"""Of Qwen3.5: thinking, and a sentence."""
ONE_SCREEN = ("glm", "holo-1.5", "internvl", "scalecua", "scalecua-internvl", "step-gui")
CHANGING = ("opencua", "opencua-qwen2", "ui-venus-2")
OPENED = ("fara-1.5", "holo-3")
"""Families whose prompt opens a `<think>` that the chat template drops from a past reply: two tokens."""


def folds(name: str, template: str) -> bool:
    return name not in (*ONE_SCREEN, *CHANGING) and (name, template) not in (
        ("mai-ui", "grounding"),
        ("holo-2", "grounding"),
    )


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("published")
    return lru_cache(lambda kind: write_directory(kind, folder / kind))


BY_DAY = ("qwen3-vl", "qwen3.5", "ui-tars-1.5", "fara-7b", "holo-3", "mai-ui", "thousandths")


@pytest.mark.parametrize(
    ("name", "template"),
    [(name, template) for name, template in ASKED if folds(name, template) and (NIGHTLY or name in BY_DAY)],
)
def test_a_prompt_begins_with_the_tokens_of_the_one_before_until_the_next_fold(
    directory: Any, name: str, template: str
) -> None:
    place: Path = directory(TRAINED_FROM.get(name, "qwen2_5_vl"))
    fields = {"base": str(place), "family": name, "template": template, **FOLD}
    policy = PolicyConfig.model_validate(fields)
    family = family_of(policy)
    encode = PromptTokens(read_processor(place), family.limits)
    before: list[int] = []
    for past in range(STEPS):
        turns = (PastStep(THOUGHT, family.write(Wait(), (320, 200)), SCREEN),) * past
        chat = family.chat(Context("Do it.", turns, SCREEN, 0, thinks=family.thinks))
        pictures = [part for turn in chat for part in turn["content"] if part["type"] == "image"]
        assert len(pictures) == policy.context_rule.shown(past + 1) <= 3
        tokens = encode(as_sent(chat, place, policy))
        again = policy.context_rule.folded(past + 1) == policy.context_rule.folded(past)
        assert (tokens[: len(before)] == before) == (again or not past), past
        before = tokens[:-2] if name in OPENED else tokens


def test_sampled_replies_with_two_actions_keep_their_tokens_with_the_vocabulary_of_a_random_model(
    tmp_path: Path,
) -> None:
    build_tiny_qwen("qwen3_5", tmp_path, pointing=True)
    fields = {"base": str(tmp_path), "family": "qwen3.5", **FOLD}
    family = family_of(PolicyConfig.model_validate(fields), tmp_path)
    processor = read_processor(tmp_path)
    encode = PromptTokens(processor, family.limits)
    same, other = [Move(x=0.5, y=0.5), Click(x=0.5, y=0.5)], [Move(x=0.2, y=0.5), Click(x=0.5, y=0.5)]
    turns, before = list[PastStep](), list[int]()
    for actions in (same, other, same):
        prompt = encode(family.chat(Context("Do it.", tuple(turns), SCREEN, 0)))
        assert prompt[: len(before)] == before
        reply = family.reply("Point at it.", actions, SIZE)
        read = family.read(Completion(reply), SIZE)
        assert [one.type for one in read.actions] == ["move", "click"]
        sampled = processor.tokenizer(f"{reply}<|im_end|>", add_special_tokens=False)["input_ids"]
        before = [*prompt, *sampled]
        turns.append(PastStep(read.thought, read.action_text, SCREEN, reply=reply))


@pytest.mark.parametrize(("name", "template"), [one for one in ASKED if not folds(*one)])
def test_a_family_that_cannot_fold_is_refused_by_name(name: str, template: str) -> None:
    why = "changes the beginning of its prompt" if name in CHANGING else "shows one screen only"
    with pytest.raises(UsageError, match=rf"`policy\.context` is fold, and {name} {why}.*\n?.*") as refused:
        FAMILIES.class_of(name)(PolicyConfig.model_validate({"family": name, "template": template, **FOLD}))
    assert refused.value.hint == "Set it to slide."


def test_a_family_with_prompts_of_its_own_folds_only_if_it_states_so() -> None:
    with pytest.raises(UsageError, match=r"tests\.taps:Taps has prompts of its own without a value of `folds`"):
        Taps(PolicyConfig.model_validate({"family": "tests.taps:Taps", **FOLD}))

    class Folding(Taps):
        folds = True

    assert Folding(PolicyConfig.model_validate({"family": "x:Folding", **FOLD})).rule.folds


def test_a_folded_screen_is_a_text_and_the_first_one_is_the_task_alone() -> None:
    family = FAMILIES.class_of("qwen3.5")(PolicyConfig.model_validate({"family": "qwen3.5", **FOLD}))
    turns = tuple(PastStep(f"Step {at}.", family.write(Wait(), (320, 200)), SCREEN) for at in range(4))
    chat = family.chat(Context("Do it.", turns, SCREEN, 0, thinks=family.thinks))
    users = [turn["content"] for turn in chat if turn["role"] == "user"]
    assert [sum(part["type"] == "image" for part in parts) for parts in users] == [0, 0, 1, 1, 1]
    texts = ["".join(part.get("text", "") for part in parts) for parts in users]
    assert "Do it." in texts[0] and COLLAPSED not in texts[0]
    assert [COLLAPSED in text for text in texts] == [False, True, False, False, False]
    assert sum(turn["role"] == "assistant" for turn in chat) == 4


def test_the_small_policy_leaves_out_folded_screens_without_a_text() -> None:
    family = FAMILIES.class_of("tiny")(PolicyConfig.model_validate(FOLD))
    turns = tuple(PastStep("", "wait()", SCREEN) for _ in range(4))
    chat = family.chat(Context("Do it.", turns, SCREEN, 0, thinks=family.thinks))
    parts = [part for turn in chat for part in turn["content"]]
    assert sum(part["type"] == "image" for part in parts) == 3
    assert not any(COLLAPSED in part.get("text", "") for part in parts)
