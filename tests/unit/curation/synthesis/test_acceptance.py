"""When a proposal is a task, and what is never made one."""

import json
import random
from dataclasses import replace
from typing import Any

import httpx
import pytest

from curation.synthesis import endpoint
from curation.synthesis.acceptance import decide, identity, left_out, solvable
from curation.synthesis.leaks import held_out, leak, nearest, plain
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, RewardMaker, maker_of, reward_maker_of
from curation.synthesis.making import makers_of
from models.serving.openai import OpenAIClient
from schemas.config.curating import SynthesisConfig
from schemas.config.section import Section
from schemas.failure import UsageError
from schemas.world import FieldCheck, World, score
from tests.fixtures.sentences import Sentences
from tests.parts import miniwob
from tests.unit.curation.synthesis.parts import MATERIAL, NAMES, NOTHING, TASKS, WORLD, decided, holding_out, proposed


class Told(RewardMaker[Section]):
    """Checks the fields it was made with, whatever the words."""

    def __init__(self, **wanted: Any) -> None:
        super().__init__("told", Section())
        self.wanted = tuple(FieldCheck(field=name, value=value) for name, value in wanted.items())

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        return self.wanted


def asking(words: str, wrong: list[dict[str, Any]], parents: tuple[str, ...], **golden: Any) -> ProposedTask:
    """A task in free words, from the state in which nothing was done."""
    start = dict(WORLD.start)
    near = tuple({**start, **golden, **each} for each in wrong)
    return ProposedTask("made-up", "1", "site", words, start, {**start, **golden}, near, parents, 9)


class Lenient(RewardMaker[Section]):
    """Rewards whatever was handed in."""

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        return (FieldCheck(field="submitted", value=True),)


def answering() -> Any:
    return next(one for one in proposed("obfuscate", 60) if one.goals[0].verb == "answer")


def test_a_reward_that_near_misses_have_as_well_is_turned_away_with_what_it_let_through() -> None:
    decision = decide(answering(), WORLD, Lenient("lenient", Section()), NOTHING, (), 3)
    assert decision.reason == "near miss" and "submitted" in decision.detail
    assert (decision.golden, decision.initial) == (1.0, 0.0) and any(decision.near_misses)


def test_a_task_that_begins_with_what_it_asks_for_is_turned_away() -> None:
    one = answering()
    for there in ({"submitted": True}, {"answer": one.golden["answer"]}):
        decision = decided(replace(one, initial={**one.initial, **there}))
        assert (decision.reason, *there) == ("initial", decision.detail.split()[1])


def test_the_case_of_what_is_given_literally_counts_and_that_of_what_is_found_does_not() -> None:
    (note,) = reward_maker_of("reader", {}).checks('Write "Hi" as the note.', WORLD)
    assert [note.holds({"note": text}) for text in ("Hi", " Hi ", "hI")] == [True, True, False]
    checks = decided(answering()).checks
    answer = next(one for one in checks if one.field == "answer")
    assert answer.holds({"answer": str(answer.value).upper()})


def test_a_golden_state_that_the_words_do_not_ask_for_is_turned_away() -> None:
    one = answering()
    assert decided(replace(one, golden={**one.golden, "answer": "other"})).reason == "golden"
    assert decided(replace(one, initial=one.golden)).reason == "initial"
    assert decided(replace(one, near_misses=one.near_misses[:1])).reason == "few near misses"
    assert decided(one, known=[identity("site", one.instruction.upper())]).reason == "known"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"page": "nowhere"}, 'field page cannot be "nowhere"'),
        ({"cart": {"city-0": 1}}, "field cart"),
        ({"cart": {"product-0": True}}, "field cart"),
        ({"submitted": 1}, "field submitted"),
        ({"more": 1}, "there is no field more"),
        ({"note": "x" * 201}, "field note"),
    ],
)
def test_a_state_that_the_world_cannot_be_in_is_turned_away_naming_the_field(change: Any, told: str) -> None:
    one = answering()
    decision = decided(replace(one, golden={**one.golden, **change}))
    assert decision.reason == "malformed" and told in decision.detail


def test_solved_never_or_always_is_turned_away_and_in_between_is_kept() -> None:
    good = decided(answering())
    found = [solvable(good, solved, 8, 0, 0.0, 1.0).reason for solved in (0, 1, 7, 8)]
    assert found == ["never solved", "", "", "always solved"]
    assert solvable(good, 0, 0, 8, 0.0, 1.0).reason == "environment"


@pytest.mark.parametrize("name", ["compose", "vary", "harden", "obfuscate", "chain"])
def test_nothing_that_descends_from_a_held_out_task_is_made(name: str) -> None:
    held = holding_out("find-value")
    for one in proposed(name, 60):
        asks = any(goal.verb == "answer" for goal in one.goals)
        assert (decided(one, held).reason == "held out") == asks, one.instruction


def test_the_ancestors_of_ancestors_count() -> None:
    held = holding_out("find-value", parents={"site/made-1": ["site/made-2"], "site/made-2": ["site/find-value"]})
    assert leak("Something else.", ["site/made-1"], held)[0] == "held out"
    assert leak("Something else.", ["site/open-page"], held) == ("", "")


def test_a_reward_for_what_a_held_out_task_is_about_is_refused_whatever_the_words_and_the_parents() -> None:
    words = "What does Nezan cost? Type the number into the box and submit."
    wrong = [{"answer": str(each)} for each in (8, 9, 10)]
    one = asking(words, wrong, ("site/open-page",), answer="7", submitted=True)
    reward, held = Told(answer="7", submitted=True), holding_out("find-value")
    assert leak(one.instruction, one.parents, held) == ("", "")
    refused = decide(one, WORLD, reward, held, (), 3)
    assert refused.reason == "held out" and "site/find-value" in refused.detail
    free = decide(one, WORLD, reward, NOTHING, (), 3)
    assert free.accepted and free.asked == ("site/find-value",)


def test_fields_that_a_reward_wants_left_alone_are_not_asked_for_but_a_page_to_come_back_to_is() -> None:
    one = asking("Leave a note: hi.", [{"note": each} for each in "abc"], (), note="hi")
    assert decide(one, WORLD, Told(note="hi", answer=""), holding_out("find-value"), (), 3).accepted
    assert decide(one, WORLD, Told(note="hi", page="home"), holding_out("open-page"), (), 3).reason == "held out"


GOODS = [one.key for one in WORLD.site.of_kind("product")] if WORLD.site else []


@pytest.mark.parametrize("field", ["page", "cart", "note", "answer", "submitted"])
def test_a_change_that_the_reward_does_not_read_is_found_though_its_maker_names_no_such_near_miss(field: str) -> None:
    golden: dict[str, Any] = {
        "page": GOODS[0], "cart": {GOODS[0]: 2}, "note": "gift", "answer": "7", "submitted": True
    }  # fmt: skip
    wrong = [{name: "a" for name in ("note", "answer") if name != field} | {"page": each} for each in GOODS[1:4]]
    one = asking("Do all of it.", wrong, (), **golden)
    assert decide(one, WORLD, Told(**golden), NOTHING, (), 3).accepted
    half = {name: value for name, value in golden.items() if name != field}
    decision = decide(one, WORLD, Told(**half), NOTHING, (), 3)
    assert decision.reason == "near miss" and any(decision.left_out)


def test_each_entry_of_what_is_counted_is_left_out_once() -> None:
    before, after = {GOODS[2]: 1, GOODS[3]: 1}, {GOODS[0]: 2, GOODS[1]: 1, GOODS[3]: 1}
    initial, golden = {**WORLD.start, "cart": before}, {**WORLD.start, "cart": after}
    carts = [one["cart"] for one in left_out(initial, golden, WORLD)]
    assert carts == [
        before,
        {GOODS[1]: 1, GOODS[3]: 1},
        {GOODS[0]: 2, GOODS[3]: 1},
        {**after, GOODS[2]: 1},
    ]


def test_what_is_done_beside_what_is_asked_for_is_not_rewarded_but_the_way_there_is() -> None:
    one = asking("Leave a note: hi.", [{"note": each} for each in "abc"], (), note="hi")
    decision = decide(one, WORLD, Told(note="hi"), NOTHING, (), 3)
    assert decision.accepted and len(decision.side_effects) == 4 and not any(decision.side_effects)
    for beside in ({"cart": {GOODS[0]: 1}}, {"answer": "x"}, {"submitted": True}, {"note": "hi you"}):
        assert score(decision.checks, {**one.golden, **beside}) == 0.0
    assert score(decision.checks, {**one.golden, "page": GOODS[0]}) == 1.0


def test_what_the_environment_leaves_free_may_come_to_anything() -> None:
    free = [field.model_copy(update={"free": field.name == "answer"}) for field in WORLD.fields]
    world = WORLD.model_copy(update={"fields": tuple(free)})
    one = asking("Leave a note: hi.", [{"note": each} for each in "abc"], (), note="hi")
    decision = decide(one, world, Told(note="hi"), NOTHING, (), 3)
    assert decision.accepted and score(decision.checks, {**one.golden, "answer": "x"}) == 1.0


@pytest.mark.parametrize("name", NAMES)
def test_what_our_makers_propose_is_rewarded_for_nothing_more_and_nothing_less(name: str) -> None:
    for one in proposed(name, 60):
        decision = decided(one)
        assert decision.left_out and decision.side_effects and not any((*decision.left_out, *decision.side_effects))


MINIWOB = miniwob(browsers=1, pages=1)


def composed(*names: str) -> list[ProposedTask]:
    tasks = [MINIWOB.task(name) for name in names]
    parents = [Parent(one.task_id, one.instruction, one.max_steps) for one in tasks]
    return list(maker_of("compose", {}).propose(MakerInputs("miniwob", MINIWOB.world, parents), random.Random(0)))


def read_from_words(one: ProposedTask) -> Any:
    return decide(one, MINIWOB.world, reward_maker_of("reader", {}), NOTHING, (), 3)


def test_tasks_one_after_the_other_are_rewarded_for_those_that_the_words_name_in_their_order_and_no_others() -> None:
    first, second = composed("click-test", "click-test-2")
    for one in (first, second):
        decision = read_from_words(one)
        assert decision.accepted and len(decision.near_misses) >= 7
        assert score(decision.checks, {**one.golden, "parts": "click-test click-link"}) == 0.0
    swapped = replace(first, initial=second.initial, golden=second.golden, near_misses=second.near_misses)
    assert read_from_words(swapped).reason == "golden"
    three = replace(first, instruction=first.instruction.replace("(2)", "(3)"))
    assert read_from_words(three).reason == "unreadable"


def test_words_that_several_tasks_have_are_not_composed_of_and_not_rewarded(sentence: Sentences) -> None:
    assert composed("click-test", "choose-date") == []
    (one, _) = composed("click-test", "click-test-2")
    date = MINIWOB.task("choose-date").instruction
    words = one.instruction.replace(MINIWOB.task("click-test").instruction, date)
    decision = read_from_words(replace(one, instruction=words))
    assert decision.reason == "unreadable"
    sentence(decision.detail)


@pytest.mark.parametrize(
    ("words", "leaks"),
    [
        ('Write "thanks" as the note.', True),
        ('Open the page of "Bo". Then write "thanks, Bo" as a note.', True),
        ('  WRITE "7"  as the note!', True),
        ('Open the page of "Bo".', False),
        ("Find the year of the lamp that is red and hand it in as the answer.", False),
    ],
)
def test_near_duplicates_of_held_out_words_leak_also_as_a_part(words: str, leaks: bool) -> None:
    assert (leak(words, (), holding_out("write-note"))[0] == "wording") == leaks


def test_words_that_a_task_of_the_suite_has_too_tell_nothing_apart() -> None:
    twin = TASKS[3].model_copy(update={"task_id": "other/write-note", "split": "held_out"})
    assert leak('Write "thanks" as the note.', (), held_out([*TASKS, twin], {})) == ("", "")
    assert nearest(plain('Write "{}" as the note.'), plain('Write "a b" as the note.')) == 1.0


def test_options_of_nobody_and_makers_that_do_not_exist_are_refused() -> None:
    for given, told in (
        ({"options": {"chains": {}}}, r"synthesis\.options\.chains"),
        ({"options": {"chain": {"hop": 1}}}, r"Unknown key `synthesis\.options\.chain\.hop`"),
        ({"makers": ("chain", "chain")}, "twice"),
        ({"makers": ("chian",)}, "chian"),
    ):
        with pytest.raises(UsageError, match=told):
            SynthesisConfig.model_validate(given)
    assert len(makers_of(SynthesisConfig())[0]) == 5


OPTIONS = {"url": "http://127.0.0.1:9/v1", "model": "m", "retries": 0}


def served(monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[dict[str, Any]]:
    """Answers requests in turn, then fails; returns what was asked."""
    asked, left = list[dict[str, Any]](), list(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        if not left:
            return httpx.Response(500, text="no more")
        return httpx.Response(200, json={"choices": [{"message": {"content": left.pop(0)}}]})

    monkeypatch.setattr(
        endpoint, "OpenAIClient", lambda where: OpenAIClient(where, transport=httpx.MockTransport(answer))
    )
    return asked


def test_a_served_model_proposes_under_the_same_acceptance_and_nonsense_is_kept_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = answering()
    good = {"instruction": one.instruction, "initial": one.initial, "golden": one.golden,
            "near_misses": list(one.near_misses), "parents": ["site/find-value"]}  # fmt: skip
    cheat = {**good, "golden": {**one.golden, "answer": "cheat"}}
    served(monkeypatch, json.dumps(good), json.dumps(cheat), "no json", json.dumps({**good, "reward": 1}),
           json.dumps({**good, "parents": ["site/<script>"]}))  # fmt: skip
    made = list(maker_of("endpoint", OPTIONS).propose(MATERIAL, random.Random(0)))
    decisions = [decided(each) for each in made]
    assert [each.reason for each in decisions] == ["", "golden", *["malformed"] * 4]
    assert "no answer" in decisions[-1].detail and "reward" in decisions[3].detail
    assert len({each.key for each in made[2:]}) == 4


def test_a_served_reward_maker_is_shown_the_words_and_never_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    one = answering()
    checks = [check.model_dump() for check in decided(one).checks]
    asked = served(monkeypatch, json.dumps({"checks": checks}), '{"checks": [{"field": "reward", "value": 1}]}')
    reward = reward_maker_of("endpoint", OPTIONS)
    assert decide(one, WORLD, reward, NOTHING, (), 3).accepted
    assert "near" not in (told := asked[0]["messages"][1]["content"]) and json.dumps(one.golden) not in told
    assert set(json.loads(told)) == {"instruction", "fields", "other_pages", "pages"}
    assert decide(one, WORLD, reward, NOTHING, (), 3).reason == "unreadable"
