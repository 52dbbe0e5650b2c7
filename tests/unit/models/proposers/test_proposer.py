"""Who proposes corrections does not repeat what failed, and an endpoint is told of it."""

import json
from collections.abc import Sequence
from dataclasses import replace

import httpx
import pytest

from models.completion import Completion
from models.explorer import PageExplorer
from models.families.dialects import parse_reply
from models.policy import Context, Policy
from models.proposers import (
    PROPOSERS,
    EndpointProposer,
    ExplorerProposer,
    PolicyProposer,
    Precedent,
    PrecedentProposer,
    ProposerPolicyOptions,
    ProposerResources,
    alike,
    text_of,
)
from models.serving.openai import OpenAIClient
from schemas.action import Click, Drag, Type
from schemas.config import config_of
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.observation import Element, Observation

BUTTONS = tuple(Element(name, "button", (at, 0.4, at + 0.1, 0.5), True) for name, at in (("a", 0.1), ("b", 0.6)))
SCREEN = Context("Click.", (), Observation(b"png", 160, 210, "Click.", BUTTONS), seed=3)


class Stubborn(Policy):
    """Clicks left, and a little to the right of it at higher temperatures."""

    version, dialect = "p", "box_v1"

    def __init__(self) -> None:
        self.temperatures: list[float] = []

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        self.temperatures.append(temperature)
        x = 150 if len(self.temperatures) < 3 else 650
        return [parse_reply(f"Action: click(start_box='({x},450)')") for _ in contexts]


def test_the_explorer_proposes_whatever_was_not_tried() -> None:
    explorer = ExplorerProposer(Section(), ProposerResources(Stubborn, PageExplorer))
    tried = (Click(x=0.15, y=0.45),)
    contexts = [replace(SCREEN, seed=seed, avoid=tried) for seed in range(40)]
    done = [one.first for one in explorer.act(contexts)]
    assert not any(action is None or alike(action, tried[0], BUTTONS) for action in done)
    assert any(alike(action, Click(x=0.65, y=0.45), BUTTONS) for action in done if action)


def test_the_policy_is_drawn_hotter_until_it_does_something_else_and_may_have_nothing_to_propose() -> None:
    policy = Stubborn()
    proposer = PolicyProposer(ProposerPolicyOptions(), ProposerResources(lambda: policy, PageExplorer))
    (found,) = proposer.act([replace(SCREEN, avoid=(Click(x=0.15, y=0.45),))])
    assert found.first == Click(x=0.65, y=0.45) and policy.temperatures == pytest.approx([1.0, 1.1, 1.2])
    (nothing,) = proposer.act([replace(SCREEN, avoid=(Click(x=0.15, y=0.45), Click(x=0.65, y=0.45)))])
    assert nothing.first is None and "tried" in (nothing.error or "")


def test_two_actions_are_alike_on_one_small_element_or_at_one_place() -> None:
    assert alike(Click(x=0.11, y=0.41), Click(x=0.19, y=0.49), BUTTONS)
    assert not alike(Click(x=0.11, y=0.41), Click(x=0.61, y=0.41), BUTTONS)
    assert alike(Click(x=0.3, y=0.3), Click(x=0.31, y=0.3), ())
    drag = Drag(x=0.1, y=0.1, to_x=0.5, to_y=0.5)
    assert alike(drag, drag, ()) and not alike(drag, drag.model_copy(update={"to_x": 0.9}), ())
    assert alike(Type(content="a"), Type(content="a"), ()) and not alike(Type(content="a"), Type(content="b"), ())


def test_an_endpoint_is_shown_the_screen_and_what_failed_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["messages"][1]["content"][0]["text"])
        content = "Thought: The other.\nAction: click(start_box='(650,450)')"
        return httpx.Response(200, json={"choices": [{"message": {"content": content}}]})

    options = PROPOSERS.options(["endpoint"], {"endpoint": {"url": "http://m.test/v1", "model": "big"}})["endpoint"]
    proposer = EndpointProposer(options, ProposerResources(Stubborn, PageExplorer))  # type: ignore[arg-type]
    proposer._client = OpenAIClient(proposer._client.endpoint, httpx.MockTransport(answer))
    (found,) = proposer.act([replace(SCREEN, avoid=(Click(x=0.15, y=0.45),))])
    assert (found.first, found.thought) == (Click(x=0.65, y=0.45), "The other.")
    assert "click(start_box='(150,450)')" in asked[0] and asked[0].startswith("Instruction: Click.")
    assert "tried" not in text_of(SCREEN)


def precedents(*known: Precedent) -> PrecedentProposer:
    return PrecedentProposer(Section(), ProposerResources(Stubborn, PageExplorer, {"t": known}))


def test_what_succeeded_on_another_seed_is_done_to_the_element_of_the_same_name_here() -> None:
    there = tuple(replace(one, box=(0.3, one.box[0], 0.5, one.box[0] + 0.2)) for one in BUTTONS)
    known = Precedent("Click.", 0, there, Click(x=0.35, y=0.65))  # a quarter into b, across
    (found,) = precedents(known).act([replace(SCREEN, task_id="t")])
    assert found.first == Click(x=0.625, y=0.425)


def test_an_element_that_the_instruction_names_is_the_one_that_this_instruction_names() -> None:
    known = Precedent('Click the "a" button.', 0, BUTTONS, Click(x=0.15, y=0.45))
    asked = replace(SCREEN, task_id="t", instruction='Click the "b" button.')
    (found,) = precedents(known).act([asked])
    assert found.first == Click(x=0.65, y=0.45)
    typed = Precedent('Type "ada" here.', 0, BUTTONS, Type(content="ada"))
    (found,) = precedents(typed).act([replace(asked, instruction='Type "joan" here.')])
    assert found.first == Type(content="joan")


def test_without_a_precedent_that_was_not_tried_the_explorer_is_asked() -> None:
    known = Precedent("Click.", 0, BUTTONS, Click(x=0.15, y=0.45))
    tried = replace(SCREEN, task_id="t", avoid=(Click(x=0.15, y=0.45),))
    (found,) = precedents(known).act([tried])
    assert found.first is not None and not alike(found.first, Click(x=0.15, y=0.45), BUTTONS)
    assert precedents().act([SCREEN])[0].first is not None


@pytest.mark.parametrize(
    ("reflect", "named"),
    [
        ({"proposers": ["nobody"]}, "reflect.proposers"),
        ({"options": {"endpoint": {}}}, "reflect.options.endpoint"),
        ({"proposers": ["endpoint"], "options": {"endpoint": {"url": "x"}}}, "reflect.options.endpoint.model"),
        ({"proposers": ["policy"], "options": {"policy": {"heat": 2}}}, "reflect.options.policy.heat"),
    ],
)
def test_an_unknown_proposer_or_option_is_refused_by_name(reflect: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named.replace(".", r"\.")):
        config_of({"suite": {"tasks": ["click-test"]}, "reflect": reflect})
