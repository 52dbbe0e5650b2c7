"""What of a long trajectory a policy is shown: by rule, said with the instruction, and the same to train as to act."""

from dataclasses import replace
from typing import Literal

import pytest
from pydantic import ValidationError

from learning.data.documents import chat_of
from learning.data.sample import Past, TrainSample
from models.families.family import ModelFamily
from models.families.registry import FAMILIES
from models.policy import Context
from schemas.action import Click, Type, to_json
from schemas.config.policy import PolicyConfig
from schemas.observation import Observation, PastStep
from tests.unit.models.families.published import ASKED, context
from tests.unit.models.families.test_families import made

SCREEN = Observation(b"", 1000, 500, "")
ACTIONS = [Click(x=0.1 * at, y=0.5) if at % 3 else Type(content=f"text {at}") for at in range(7)]


def turns(family: ModelFamily) -> tuple[PastStep, ...]:
    return tuple(
        PastStep(f"Thought {at}.", family.write(action, (1000, 500)), SCREEN) for at, action in enumerate(ACTIONS)
    )


def text(messages: list[dict]) -> str:
    return "\n".join(part["text"] for one in messages for part in one["content"] if part["type"] == "text")


@pytest.mark.parametrize("name", ["ui-tars-1.5", "qwen3-vl", "opencua", "ui-tars-2"])
@pytest.mark.parametrize("older", ["dropped", "summarised"])
def test_only_the_last_turns_stay_and_the_instruction_says_what_went_before(
    name: str, older: Literal["dropped", "summarised"]
) -> None:
    config = PolicyConfig(family=name, history_images=2, history_turns=3, older=older)
    family = FAMILIES.class_of(name)(config)
    family.fit(type(family).published)
    message = text(family.chat(Context("Do it.", turns(family), SCREEN, 0)))
    answer = "4 earlier steps are not shown" + (": click 2, type 2" if older == "summarised" else "")
    assert f"Do it.\n({answer}.)" in message.replace("type 2, click 2", "click 2, type 2")
    if name == "opencua":  # whose history holds the sentences of steps, and no thoughts
        assert message.count("# Step ") == 3 and "Thought" not in message.partition("# Step ")[2]
    else:
        assert "Thought 3." not in message and all(f"Thought {at}." in message for at in (4, 5, 6))


def test_a_short_trajectory_is_shown_whole_and_nothing_is_said() -> None:
    family = ModelFamily(PolicyConfig(history_turns=7))
    context = Context("Do it.", turns(family), SCREEN, 0)
    assert family.chat(context) == family.messages(context) == ModelFamily(PolicyConfig()).chat(context)


def test_a_policy_is_trained_on_the_chat_that_it_acts_on() -> None:
    family = ModelFamily(PolicyConfig(history_turns=2, older="summarised"))
    past = tuple(Past(f"Thought {at}.", (to_json(action),)) for at, action in enumerate(ACTIONS))
    sample = TrainSample("t", ("sha",), "Do it.", past, "Now.", (to_json(Click(x=0.5, y=0.5)),))
    messages, _ = chat_of(sample, family, [(1000, 500)], 0)
    assert text(messages) == text(family.chat(Context("Do it.", turns(family), SCREEN, 0)))


@pytest.mark.parametrize(
    ("policy", "named"),
    [({"history_images": 5, "history_turns": 3}, "raise it to 4"), ({"older": "summarised"}, "history_turns")],
)
def test_what_cannot_be_shown_so_is_refused(policy: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        PolicyConfig.model_validate(policy)


REPORTS = {("openwebrl", "computer"), ("holo-3", "computer"), ("ui-venus-2", "browser")}
"""Families and templates whose prompts have a place for the result of a call."""


@pytest.mark.parametrize(("name", "template"), ASKED)
def test_only_a_prompt_with_a_place_for_results_has_the_reason_of_a_refused_action(name: str, template: str) -> None:
    family = made(name, template)
    met = context(family)
    last = replace(met.turns[-1], error="no field has the focus")
    refused = family.chat(replace(met, turns=(*met.turns[:-1], last)))
    reported = (name, template) in REPORTS
    assert ("no field has the focus" in text(refused)) is reported and (refused == family.chat(met)) is not reported
