"""The site: the same for the same seed, a state that can be set, and a reward that is read from it alone."""

import asyncio

import pytest

from curation.synthesis.acceptance import side_effects
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.site.app import START, changed, site_of, visible_rows, world_of
from environments.site.environment import SiteConfig, SiteEnvironment, SiteSandbox, instance
from schemas import action as act
from schemas.failure import UsageError
from schemas.observation import Observation, Outcome
from schemas.registry import options_of
from schemas.tables.task import GuiTask
from schemas.world import FieldCheck, Setup, score

DRAWN = SiteEnvironment("site", SiteConfig(kind="site", skin="drawn", browsers=1, pages=2))


def made(task: GuiTask, setup: Setup) -> GuiTask:
    return task.model_copy(update={"setup": setup.text()})


def test_a_site_is_the_same_for_a_seed_and_another_for_another_and_every_link_leads_somewhere() -> None:
    assert site_of(0, 96) == site_of(0, 96) != site_of(1, 96)
    for size in (60, 96, 200):
        site = site_of(3, size)
        keys, titles = ([getattr(one, name) for one in site.entities] for name in ("key", "title"))
        assert len(keys) == size == len(set(keys)) == len(set(titles))
        assert all(key in set(keys) for one in site.entities for key in one.links.values())


@pytest.mark.parametrize("template", list(DRAWN.entries))
def test_an_own_task_is_another_one_for_another_seed_and_is_never_done_at_its_start(template: str) -> None:
    site = site_of(0, 96)
    found = [instance(template, site, seed) for seed in range(40)]
    assert len({words for words, _ in found}) > 5
    assert found == [instance(template, site, seed) for seed in range(40)]
    assert all(score(setup.checks, setup.initial) == 0.0 for _, setup in found)
    assert all(world_of(site).problem(setup.initial) == "" for _, setup in found)


def test_every_page_shows_on_one_screen_and_all_pages_can_be_reached() -> None:
    site, seen, left = site_of(0, 200), set[str](), ["home"]
    while left:
        page = left.pop()
        if page in seen:
            continue
        seen.add(page)
        rows = visible_rows(site, {**START, "page": page, "cart": {"product-0": 2}}, 7)
        assert len(rows) <= 21
        left += [one.do[1] for row in rows for one in row if one.do[:1] == ("go",)]
    assert {one.key for one in site.entities} < seen


def test_what_is_done_changes_the_state_until_the_answer_is_handed_in() -> None:
    state = dict(START)
    for do in (("add", "product-1"), ("add", "product-1"), ("less", "product-1"), ("use", "red"), ("go", "cart")):
        state = changed(state, do)
    assert state == {**START, "cart": {"product-1": 1}, "answer": "red", "page": "cart"}
    over = changed(state, ("hand in",))
    assert changed(over, ("go", "home")) == over and over["submitted"]


@pytest.mark.parametrize("template", list(DRAWN.entries))
def test_an_own_task_that_is_done_with_something_else_changed_beside_it_is_not_rewarded(template: str) -> None:
    site = site_of(0, 96)
    for seed in range(20):
        _, setup = instance(template, site, seed)
        golden = {**setup.initial, **{check.field: check.value for check in setup.checks}}
        beside = side_effects(golden, world_of(site))
        assert score(setup.checks, golden) == 1.0 and len(beside) >= 4
        assert [one for one in beside if score(setup.checks, one)] == []


def test_whoever_fills_the_cart_where_a_note_was_asked_for_has_no_reward_until_it_is_undone() -> None:
    verifier = verifier_of("state")
    assert verifier is not None

    async def rolled() -> list[Outcome]:
        async with SandboxPool([DRAWN]) as pool, pool.lease(DRAWN.task("write-note"), 5) as sandbox:
            assert isinstance(sandbox, SiteSandbox)
            product, text = sandbox.site.of_kind("product")[0], sandbox.setup and sandbox.setup.checks[0].value
            steps = (
                "Home",
                f"{product.values['type']}s",
                product.title,
                "Add to cart",
                "Cart (1)",
                "Note",
                None,
                "Less",
            )
            found: list[Outcome] = []
            for name in steps:
                shown = (await sandbox.observe(elements=True)).elements
                x, y = next((one for one in shown if one.interactive and one.name == name), shown[0]).centre
                await sandbox.perform(act.Click(x=x, y=y) if name else act.Type(content=str(text)))
                found.append(await sandbox.verify(verifier))
            return found

    *_, written, undone = asyncio.run(rolled())
    assert (written, undone) == (Outcome(False, 0.0), Outcome(True, 1.0))


def test_a_made_task_starts_in_its_state_and_its_reward_is_what_its_checks_say() -> None:
    setup = Setup(initial={**START, "page": "cart"}, checks=(FieldCheck(field="note", value="Thank  you"),))
    verifier = verifier_of("state")
    assert verifier is not None

    async def write(text: str) -> tuple[Observation, Outcome]:
        async with SandboxPool([DRAWN]) as pool, pool.lease(made(DRAWN.task("write-note"), setup), 5) as sandbox:
            assert isinstance(sandbox, SiteSandbox)
            seen = await sandbox.observe(elements=True)
            x, y = next(one for one in seen.elements if one.name == "Note" and one.interactive).centre
            await sandbox.perform(act.Click(x=x, y=y))
            await sandbox.perform(act.Type(content=text))
            return seen, await sandbox.verify(verifier)

    seen, right = asyncio.run(write("thank you"))
    _, wrong = asyncio.run(write("thanks"))
    assert (right, wrong) == (Outcome(True, 1.0), Outcome(False, 0.0))
    assert seen.instruction == 'Write "{}" as the note.' and len(seen.png) > 500


def test_a_site_of_too_few_pages_is_refused_with_its_key() -> None:
    with pytest.raises(UsageError, match=r"environments\.site\.entities"):
        options_of(SiteConfig, {"kind": "site", "entities": 10}, "environments.site")
