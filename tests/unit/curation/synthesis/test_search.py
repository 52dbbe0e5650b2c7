"""Limits of made tasks come from the cost of the search; words are played in the order in which they are written."""

import asyncio
import random
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from curation.synthesis.acceptance import AcceptanceDecision, decide
from curation.synthesis.maker import MakerInputs, Parent, ProposedTask, RewardMaker, maker_of, reward_maker_of
from curation.synthesis.player import Player, PlayerLost, searched, steps_of, vocabulary
from curation.synthesis.words import asks
from environments.pool import SandboxPool
from environments.site.environment import SiteConfig, SiteEnvironment
from schemas.config.section import Section
from schemas.world import FieldCheck, World, score
from tasks.synthesize import task_of
from tests.fixtures import made_tasks
from tests.fixtures.sentences import Sentences
from tests.unit.curation.synthesis.parts import MATERIAL, NAMES, NOTHING, SITE, WORLD, proposed
from tests.unit.curation.synthesis.searching import steps_in

assert WORLD.site is not None
PAGES, LAYOUT = WORLD.site, SITE.layout
FIRST, OTHER = PAGES.of_kind("product")[:2]


def measured(one: ProposedTask, max_steps: int = 100) -> AcceptanceDecision:
    return decide(one, WORLD, reward_maker_of("reader", {}), NOTHING, (), 3, LAYOUT, max_steps)


def asked(words: str, page: str = "home", **initial: Any) -> Any:
    """What a search of these words from a page comes to, with the reward that the reader gives them."""
    start = {**WORLD.start, "page": page, **initial}
    checks = reward_maker_of("reader", {}).checks(words, WORLD)
    return searched(PAGES, LAYOUT, words, start, (*checks, *WORLD.guards(checks, start)), 100)


def test_of_newly_made_tasks_the_player_solves_nearly_all_within_their_limits_whoever_made_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(made_tasks, "PROPOSALS", 4)
    monkeypatch.setattr(made_tasks, "TRAJECTORIES", range(50_000, 50_004))
    for seed in (311, 312):
        found = made_tasks.proposed(seed)
        assert {one.proposal.maker for one in found} == set(NAMES)
        for name in NAMES:
            row = made_tasks.row_of(seed, name, [one for one in found if one.proposal.maker == name])
            assert row["accepted"] >= 2 and row["solvable"] >= made_tasks.LEAST, row


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_what_a_maker_writes_is_rewarded_when_it_is_played_in_the_order_of_the_words(name: str) -> None:
    first = proposed(name, 12)
    parents = [Parent(one.task_id, one.instruction, 0, one.goals, one.initial) for one in first]
    material = MakerInputs("site", WORLD, [*MATERIAL.parents, *parents], LAYOUT)
    second = islice(maker_of(name, {}).propose(material, random.Random(name)), 12)
    for one in (*first, *second):
        decision = measured(one, 1000)
        assert decision.accepted, (one.instruction, decision.detail)


def test_a_page_that_is_to_be_open_comes_after_what_opens_another_one(sentence: Sentences) -> None:
    note, page = 'Write "thanks" as the note.', f'Open the page of "{FIRST.title}".'
    cart = f'Have 2 of "{OTHER.title}" in the cart and nothing else.'
    for last in (note, cart):
        sentence(asked(f"{page} {last}").problem)
        assert asked(f"{last} {page}").problem == ""
    joined = [one for one in proposed("compose", 60) if any(goal.verb == "open" for goal in one.goals)]
    assert joined and all(one.goals[-1].verb == "open" for one in joined)


def test_a_task_whose_search_is_longer_than_the_highest_limit_is_turned_away_and_names_the_steps(
    sentence: Sentences,
) -> None:
    long = next(one for one in proposed("obfuscate", 60) if measured(one, 1000).max_steps > 60)
    decision = measured(long, 40)
    assert decision.reason == "search"
    sentence(decision.detail)
    assert measured(long, 1000).accepted


def test_a_limit_grows_with_what_has_to_be_searched_and_no_task_is_without_room_for_a_mistake() -> None:
    near = asked(f'Open the page of "{FIRST.title}".', f"list-{FIRST.values['type']}")
    lists = asked(f'Open the page of "{FIRST.title}".')
    assert near.limit == 6 < lists.limit < asked(search_of("city")).limit


def search_of(kind: str) -> str:
    one = next(
        each for each in proposed("obfuscate", 120) if each.instruction.startswith(f"Open the page of the {kind} ")
    )
    return one.instruction


@pytest.mark.parametrize(
    ("words", "initial", "steps"),
    [
        ('Write "hello" as the note.', {}, 3),
        ('Write "hello" as the note.', {"note": "by post"}, 4),
        (f'Have 2 of "{FIRST.title}" in the cart and nothing else.', {"page": FIRST.key}, 2),
        (f'Have 1 of "{FIRST.title}" in the cart and nothing else.', {"page": FIRST.key, "cart": {OTHER.key: 2}}, 4),
        (f'Have 1 of "{FIRST.title}" in the cart and nothing else.', {"page": FIRST.key, "cart": {FIRST.key: 3}}, 5),
        (f'Find the price of "{FIRST.title}" and hand it in as the answer.', {"page": FIRST.key}, 2),
        (f'Open the page of the maker of "{FIRST.title}".', {"page": FIRST.key}, 1),
        (f'Open the page of the city of the maker of "{FIRST.title}".', {"page": FIRST.key}, 2),
    ],
)
def test_the_player_takes_the_steps_that_the_pages_ask_for(words: str, initial: dict[str, Any], steps: int) -> None:
    start = {**WORLD.start, **initial}
    checks = reward_maker_of("reader", {}).checks(words, WORLD)
    player = Player(vocabulary(PAGES), LAYOUT)
    assert (
        steps_of(player, LAYOUT.walk(start, 5), asks(PAGES, words), lambda now: score(checks, now) == 1.0, 50) == steps
    )


def test_where_to_look_does_not_follow_from_a_site_s_pages_but_from_what_the_screen_shows() -> None:
    with pytest.raises(PlayerLost, match="no page matches"):
        steps_of(
            Player(vocabulary(PAGES), LAYOUT),
            LAYOUT.walk(dict(WORLD.start), 0),
            asks(PAGES, 'Open the page of "Nowhere".'),
            lambda _: False,
            100,
        )
    other = SiteEnvironment("site", SiteConfig(kind="site", skin="drawn", browsers=1, pages=1, site_seed=9))
    assert other.world.site is not None
    there = other.world.site.of_kind("designer")[0]
    words, check = f'Open the page of "{there.title}".', FieldCheck(field="page", value=there.key)
    player = Player(PAGES, other.layout)  # it knows nothing of this site but its words
    walk = other.layout.walk(dict(WORLD.start), 3)
    assert steps_of(player, walk, asks(PAGES, words), lambda now: score([check], now) == 1.0, 50) is not None


class Noted(RewardMaker[Section]):
    """Wants the note to be `hi`, whatever the words."""

    def checks(self, instruction: str, world: World) -> tuple[FieldCheck, ...]:
        return (FieldCheck(field="note", value="hi"),)


def test_words_that_the_player_cannot_read_have_the_highest_limit() -> None:
    golden, wrong = {**WORLD.start, "note": "hi"}, tuple({**WORLD.start, "note": one} for one in "abc")
    free = ProposedTask("mine", "1", "site", "Leave a note: hi.", dict(WORLD.start), golden, wrong, ())
    decision = decide(free, WORLD, Noted("noted", Section()), NOTHING, (), 3, LAYOUT, 70)
    assert decision.accepted and decision.max_steps == 70
    written = replace(free, instruction='Write "hi" as the note.')
    assert decide(written, WORLD, Noted("noted", Section()), NOTHING, (), 3, LAYOUT, 70).max_steps == 9


def test_a_sandbox_takes_the_player_as_many_steps_as_the_pages_that_its_limit_was_measured_on() -> None:
    tasks = [(one, measured(one)) for name in NAMES for one in proposed(name, 3)]

    async def both() -> list[tuple[int, int | None]]:
        found: list[tuple[int, int | None]] = []
        async with SandboxPool([SITE]) as pool:
            for one, decision in tasks:
                if decision.accepted:
                    task, walk = task_of(one, decision), LAYOUT.walk(one.initial, 7)
                    sentences, checks = asks(PAGES, one.instruction), decision.checks
                    player = Player(vocabulary(PAGES), LAYOUT)
                    steps = steps_of(player, walk, sentences, lambda now, c=checks: score(c, now) == 1.0, 200)
                    found.append((await steps_in(pool, SITE, task, 7), steps))
        return found

    found = asyncio.run(both())
    assert len(found) >= 10 and all(drawn == walked for drawn, walked in found)
