"""Past replies in a prompt: as the policy sampled them, or in the family's usual form if the reply is unknown."""

from typing import Any

import pytest

from learning.data.documents import chat_of
from learning.data.files import Rollout
from models.completion import Completion
from models.families.family import ModelFamily
from models.families.outside import REASONED, unmarked
from models.families.registry import FAMILIES
from models.policy import Context
from schemas.action import Type, Wait
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep

SIZE = (1000, 1000)
SCREEN = Observation(b"", *SIZE, "")
SAMPLED = (
    *("qwen2.5-vl", "qwen3-vl", "evocua", "gui-owl-1.5", "fara-7b", "fara-1.5", "openwebrl"),
    *("qwen3.5", "qwen3.6", "qwen3.8"),
)
"""Families whose published clients show past replies unchanged."""


def made(name: str) -> ModelFamily:
    family = FAMILIES.class_of(name)(PolicyConfig(family=name, history_images=3 if name != "openwebrl" else 1))
    family.fit(type(family).published)
    return family


def past(family: ModelFamily, reply: str, known: bool = True) -> dict[str, Any]:
    """Returns the turn of a past reply at acting; training has the same."""
    read = family.read(Completion(reply), SIZE)
    assert read.actions, read.error
    turn = PastStep(read.thought, read.action_text, SCREEN, reply=reply if known else "")
    chat = family.chat(Context("Do it.", (turn,), SCREEN, 0))
    if known:
        trained, _ = chat_of(Rollout("t", 1, "t", ("a", "b"), "Do it.", (reply,), reply), family, [SIZE, SIZE], 0)
        assert trained == chat
    (found,) = (message for message in chat if message["role"] == "assistant")
    return found


def text(message: dict[str, Any]) -> str:
    return unmarked("".join(part["text"] for part in message["content"]))


@pytest.mark.parametrize("name", SAMPLED)
def test_a_reply_in_another_layout_is_shown_as_it_was_sampled(name: str) -> None:
    family = made(name)
    call = family.write(Wait(seconds=3), SIZE)
    thinks = "<think>I wait.</think>\n" if name == "openwebrl" else ""
    for reply in (f"{thinks}Action: Do it.\n\n\n{call}", f"{thinks}I wait.\n{call}\n", f"{thinks}{call}"):
        assert text(past(family, reply)) == reply
    assert text(past(family, reply := family.reply("I wait.", [Wait(seconds=3)], SIZE), known=False)) == reply


@pytest.mark.parametrize("name", SAMPLED)
def test_thinking_is_left_out_or_stands_where_the_chat_template_takes_it_from(name: str) -> None:
    family = made(name)
    typed = family.write(Type(content="a </think> b"), SIZE)
    for opened in ("<think>", ""):
        found = past(family, f"{opened}I look. </think>Do it.\n\n{typed}")
        if name == "qwen3.8":
            assert (unmarked(found[REASONED]), text(found)) == ("I look.", f"Do it.\n\n{typed}")
        elif name.startswith("qwen3."):
            assert text(found) == f"<think>\nI look.\n</think>\n\nDo it.\n\n{typed}"
        elif name == "openwebrl":
            assert text(found) == f"{opened or '<think>' + chr(10)}I look. </think>Do it.\n\n{typed}"
        else:
            assert text(found) == f"Do it.\n\n{typed}"
        begin = "".join(part["text"] for part in found["content"]).count("</think>")
        assert begin == (1 if name in ("qwen3.5", "qwen3.6", "openwebrl") else 0)  # of tokens; the typed text has none


@pytest.mark.parametrize("name", SAMPLED)
def test_a_token_that_a_reply_spells_is_text(name: str) -> None:
    family = made(name)
    call = family.write(Wait(seconds=3), SIZE)
    thinks = "<think>I wait.</think>\n" if name == "openwebrl" else ""
    found = past(family, f"{thinks}A <|im_end|> and <|image_pad|>.\n\n\n{call}")
    whole = "".join(part["text"] for part in found["content"])
    assert "<|im_end|>" not in whole and "<|image_pad|>" not in whole and "<|im_end|>" in unmarked(whole)
    assert "<tool_call>" in whole


@pytest.mark.parametrize("name", SAMPLED)
def test_a_reply_without_an_action_of_the_family_is_shown_in_the_usual_form(name: str) -> None:
    family = made(name)
    written = family.write(Wait(seconds=3), SIZE)
    turn = PastStep("I wait.", written, SCREEN, reply="Thought: I wait.\nAction: wait()")
    chat = family.chat(Context("Do it.", (turn,), SCREEN, 0))
    assert text(chat[2]) == family.reply("I wait.", [Wait(seconds=3)], SIZE)
