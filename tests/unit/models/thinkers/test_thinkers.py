"""Thinkers: rules by the page's elements, a policy that is not told the action, or served."""

import json
from collections.abc import Sequence

import httpx
import pytest

from models.completion import Completion
from models.families.family import ModelFamily, TinyFamily
from models.policy import Context
from models.serving.openai import OpenAIClient
from models.thinkers.asked import EndpointThinker, PolicyThinker, ThinkerPolicyOptions, thought_in
from models.thinkers.thinker import THINKERS, RuleThinker, TemplateThinker, ThinkerCase, ThinkerResources
from models.vlm import VlmPolicy
from schemas.action import Action, Click, Type
from schemas.config import config_of
from schemas.config.policy import PolicyConfig
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.observation import Element, Observation, PastStep

BUTTONS = tuple(
    Element(name, kind, (at, 0.4, at + 0.1, 0.5), True)
    for name, kind, at in (("red", "button", 0.1), ("blue", "button", 0.4), ("", "text field", 0.7))
)
TASK = 'Click the "red" button, then the "blue" button.'
RED, BLUE, FIELD = Click(x=0.15, y=0.45), Click(x=0.45, y=0.45), Click(x=0.75, y=0.45)


def seen(png: bytes = b"png") -> Observation:
    return Observation(png, 160, 210, TASK, BUTTONS)


def case(action: Action, *done: tuple[str, str], unchanged: bool = False, instruction: str = TASK) -> ThinkerCase:
    turns = tuple(PastStep(thought, text, seen(b"before")) for thought, text in done)
    return ThinkerCase(Context(instruction, turns, seen(), 7), action, unchanged)


def rules(one: ThinkerCase) -> tuple[str, tuple[str, ...]]:
    (thought,) = RuleThinker(Section(), none()).think([one], 0)
    return thought.text, thought.patterns


def none() -> ThinkerResources:
    raise_it = lambda: pytest.fail("no policy is needed")  # noqa: E731
    return ThinkerResources(raise_it)


def test_rules_split_the_task_first_and_recall_later_what_was_clicked_and_what_was_not_yet() -> None:
    assert rules(case(RED)) == ('First "red", then "blue". I click the button "red".', ("task_decomposition",))
    after = case(BLUE, ("", "click(start_box='(150,450)')"))
    text, patterns = rules(after)
    assert text == '"red" is clicked. Not yet: "blue". I click the button "blue".'
    assert patterns == ("milestone_recognition", "long_term_consistency")
    scrolled = case(BLUE, ("", "scroll(start_box='(150,450)', direction='down')"))
    assert rules(scrolled)[0] == 'Not yet: "red", then "blue". I click the button "blue".'


def test_rules_say_when_nothing_changed_and_when_something_is_only_tried() -> None:
    text, patterns = rules(case(BLUE, ("", "click(start_box='(900,900)')"), unchanged=True, instruction="Go on."))
    assert text == 'That changed nothing. I try the button "blue".' and patterns == ("reflection", "trial_and_error")
    assert rules(case(FIELD, instruction="Write."))[0] == "I write in the text field."
    assert rules(case(Type(content="ada"), instruction='Type "ada".'))[0] == 'I type "ada".'


def test_a_template_is_a_few_words_and_nothing_for_an_unknown_action() -> None:
    assert TemplateThinker(Section(), none()).think([case(RED)], 0)[0].text == "Click it."


class Drawn(VlmPolicy):
    """Red for even seeds, blue for odd ones; no checkpoint."""

    def __init__(self, family: ModelFamily) -> None:
        self.version, self.family, self.max_concurrency = "policy-0007", family, 0
        self.seeds: list[int] = []

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        self.seeds += [one.seed for one in contexts]
        return [
            Completion("", (1, 2), thought=f"seed {one.seed}", actions=(RED if one.seed % 2 == 0 else BLUE,))
            for one in contexts
        ]


def test_the_policy_is_not_told_the_action_and_draws_again_from_another_seed() -> None:
    policy = Drawn(TinyFamily(PolicyConfig()))
    thinker = PolicyThinker(ThinkerPolicyOptions(), ThinkerResources(lambda: policy))
    assert thinker.author == "bootstrap" and thinker.hidden and (thinker.version or "").startswith("policy-0007@")
    first, again = thinker.think([case(RED)], 0)[0], thinker.think([case(RED)], 1)[0]
    assert (first.action, again.action, first.tokens) == (BLUE, RED, 2) and len(set(policy.seeds)) == 2


def test_the_small_policy_cannot_be_told_the_action() -> None:
    policy = Drawn(TinyFamily(PolicyConfig()))
    with pytest.raises(UsageError, match=r"think\.options\.policy\.hidden"):
        PolicyThinker(ThinkerPolicyOptions(hidden=False), ThinkerResources(lambda: policy))


def endpoint(answers: list[str], **options: object) -> tuple[EndpointThinker, list[dict]]:
    given = {"url": "http://m.test/v1", "model": "big", "concurrency": 1, **options}
    thinker = EndpointThinker(THINKERS.options(["endpoint"], {"endpoint": given})["endpoint"], none())  # type: ignore[arg-type]
    asked: list[dict] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        choice = {"message": {"content": answers[len(asked) - 1]}}
        return httpx.Response(200, json={"choices": [choice], "usage": {"total_tokens": 9}})

    thinker._client = OpenAIClient(thinker._client.endpoint, httpx.MockTransport(answer))
    return thinker, asked


def test_a_served_model_is_told_the_action_and_the_thoughts_before_it_and_names_its_patterns() -> None:
    thinker, asked = endpoint(["Patterns: Milestone recognition, reflection\nThought: Red is done."], language="German")
    (thought,) = thinker.think([case(BLUE, ("I begin with red.", "click(start_box='(150,450)')"))], 0)
    assert (thinker.author, thought.text, thought.tokens) == ("actre", "Red is done.", 9)
    assert thought.patterns == ("milestone_recognition", "reflection")
    system, user = asked[0]["messages"]
    text = "".join(part.get("text", "") for part in user["content"])
    assert "German" in system["content"] and "trial and error" in system["content"]
    assert "I begin with red." in text and "click(start_box='(450,450)')" in text
    assert sum(part["type"] == "image_url" for part in user["content"]) == 2


def test_a_served_model_that_is_hidden_from_the_action_is_asked_as_it_would_act() -> None:
    thinker, asked = endpoint(["Thought: Blue is left.\nAction: click(start_box='(450,450)')"], hidden=True)
    (thought,) = thinker.think([case(BLUE)], 0)
    assert (thinker.author, thought.text, thought.action) == ("bootstrap", "Blue is left.", BLUE)
    assert "(450,450)" not in json.dumps(asked[0])


def test_an_answer_of_any_form_is_a_thought() -> None:
    assert thought_in("Because.").text == "Because." and thought_in("").text == ""
    assert thought_in("**Patterns**: none\n**Thought**: Go.").text.endswith("Go.")


@pytest.mark.parametrize(
    ("think", "named"),
    [
        ({"thinkers": ["nobody"]}, "think.thinkers"),
        ({"options": {"endpoint": {}}}, "think.options.endpoint"),
        ({"thinkers": ["endpoint"], "options": {"endpoint": {"url": "x"}}}, "think.options.endpoint.model"),
        ({"thinkers": ["policy"], "options": {"policy": {"heat": 2}}}, "think.options.policy.heat"),
    ],
)
def test_an_unknown_thinker_or_option_is_refused_by_name(think: dict[str, object], named: str) -> None:
    with pytest.raises(UsageError, match=named.replace(".", r"\.")):
        config_of({"suite": {"tasks": ["click-test"]}, "think": think})
