"""What makers propose: questions that one page answers, and states that are told apart."""

import random
from itertools import islice

import pytest

from curation.synthesis.goal import MakerGoal, from_data, sentence, to_data
from curation.synthesis.maker import MakerInputs, Parent, Unreadable, maker_of
from curation.synthesis.obfuscate import ObfuscateOptions, described, distinctiveness
from curation.synthesis.reader import SentenceReader
from curation.synthesis.reference import Ref, meant
from schemas.config.section import Section
from schemas.world import canonical, score
from tests.unit.curation.synthesis.parts import MATERIAL, NAMES, SITE, WORLD, decided, proposed

assert WORLD.site is not None
PAGES = WORLD.site


@pytest.mark.parametrize("name", NAMES)
def test_the_same_chance_proposes_the_same_tasks_and_their_goals_survive_the_lake(name: str) -> None:
    first, again = proposed(name, 10), proposed(name, 10)
    assert [one.key for one in first] == [one.key for one in again]
    assert all(from_data(to_data(one.goals)) == one.goals for one in first)
    assert [one.key for one in first] != [one.key for one in proposed(name, 10, seed=2)]


@pytest.mark.parametrize("name", NAMES)
def test_a_reward_read_from_the_words_alone_knows_the_golden_state_and_no_near_miss(name: str) -> None:
    for one in proposed(name, 120):
        decision = decided(one)
        assert (decision.golden, decision.initial, sum(decision.near_misses)) == (1.0, 0.0, 0.0), one.instruction
        assert len(decision.near_misses) >= 2


def test_every_description_fits_exactly_one_page_of_the_whole_site_and_names_none() -> None:
    for one in [*proposed("obfuscate", 80), *proposed("chain", 80)]:
        (goal,) = one.goals
        assert goal.ref is not None
        assert [entity.key for entity in meant(PAGES, goal.ref)] == [goal.entity]
        assert not any(entity.title in one.instruction for entity in PAGES.entities)


def test_what_reveals_too_much_is_not_said_and_no_condition_is_idle() -> None:
    options, chance = ObfuscateOptions(), random.Random(3)
    found = [(entity, described(PAGES, entity, options, chance)) for entity in PAGES.entities]
    assert sum(ref is not None for _, ref in found) > len(found) / 3
    for entity, ref in found:
        for at, condition in enumerate(ref.conditions if ref else ()):
            assert distinctiveness(PAGES, entity, condition.attribute) < options.revealing
            assert ref is not None
            less = Ref(kind=ref.kind, conditions=(*ref.conditions[:at], *ref.conditions[at + 1 :]))
            assert not less.conditions or len(meant(PAGES, less)) > 1


def test_a_chain_follows_links_and_its_last_answer_is_on_no_page_that_is_named() -> None:
    chains = proposed("chain", 60, options={"hops": 3})
    spoken = [one.instruction for one in chains]
    assert any(" whose " in one for one in spoken) and any("the city of the maker of" in one for one in spoken)


def test_two_goals_of_one_task_are_both_needed() -> None:
    for one in proposed("compose", 60):
        assert len(one.goals) == 2
        checks = decided(one).checks
        for goal in one.goals:
            half = SentenceReader("reader", Section()).checks(sentence(PAGES, goal), WORLD)
            assert {check.field for check in half} < {check.field for check in checks}


def test_hardened_tasks_are_asked_for_by_description_or_begin_with_something_else_in_the_cart() -> None:
    hard = proposed("harden", 80)
    assert any(one.initial["cart"] and one.golden["cart"] != one.initial["cart"] for one in hard)
    assert any(goal.ref and goal.ref.conditions for one in hard for goal in one.goals)


def test_tasks_that_fail_are_made_from_more_often() -> None:
    fill, note = SITE.task("fill-cart"), SITE.task("write-note")
    parents = [Parent(fill.task_id, fill.instruction, failures=9), Parent(note.task_id, note.instruction, successes=9)]
    made = list(islice(maker_of("vary", {}).propose(MakerInputs("site", WORLD, parents), random.Random(0)), 200))
    assert sum(one.parents[0] == fill.task_id for one in made) > 140


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("Open the page of the product that is a lamp.", r"fits \d+ pages, not one"),
        ('Open the page of "Nowhere".', "fits 0 pages"),
        ("Please open something.", "no sentence that is known"),
        ("Open the page of the product that weighs much.", "not a condition on a product"),
        ('Write "a" as the note. Write "b" as the note.', "two values of note"),
    ],
)
def test_words_that_do_not_mean_one_thing_have_no_reward(words: str, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        SentenceReader("reader", Section()).checks(words, WORLD)


def test_a_state_maker_that_means_another_page_than_it_says_is_found_out() -> None:
    (one,) = proposed("obfuscate", 1)
    (goal,) = one.goals
    other = next(entity for entity in PAGES.of_kind("city") if entity.key != goal.entity)
    wrong = MakerGoal("open", other.key, Ref(title=PAGES.entities[0].title))
    words = sentence(PAGES, wrong)
    assert score(SentenceReader("reader", Section()).checks(words, WORLD), {**one.initial, "page": other.key}) == 0.0
    assert canonical(MATERIAL.world.start) == canonical({**one.initial, "page": "home"})
