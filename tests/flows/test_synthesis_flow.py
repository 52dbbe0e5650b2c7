"""Tasks are made, tried, rolled out, and taken out; a stage that is cut short goes on to what it would have made."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from curation.synthesis.maker import MakerInputs, ProposedTask
from curation.synthesis.vary import Compose, Vary
from flows.data import synthesize
from schemas.config import Config, config_of
from schemas.failure import UsageError
from schemas.tables import proposal
from schemas.tables.curriculum import CurriculumChoice
from schemas.tables.evaluation import Evaluation
from schemas.tables.task import GuiTask
from schemas.world import Setup
from storage.lake import Lake
from tasks.collect.collect import plan
from tasks.curriculum import choose_tasks
from tasks.evaluate import explorer_policy, measure_suites
from tasks.measure import measured
from tasks.running.run import open_run
from tasks.shared.suite import made_tasks, require_makers, tasks_of
from tasks.synthesize import listed, retire, synthesize_tasks
from tests.flows.conftest import wheel

HERE = "tests.flows.test_synthesis_flow"


class Fragile(Vary):
    """Varies; breaks after so many proposals."""

    breaks_after: ClassVar[int | None] = None

    def propose(self, material: MakerInputs, chance: Random) -> Iterator[ProposedTask]:
        for number, one in enumerate(super().propose(material, chance)):
            assert number != self.breaks_after
            yield one


class Forgetful(Compose):
    """Composes, and does not say of what."""

    def propose(self, material: MakerInputs, chance: Random) -> Iterator[ProposedTask]:
        return (replace(one, parents=()) for one in super().propose(material, chance))


@pytest.fixture
def making(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    return made_with(wheel(tmp_path, monkeypatch))


def made_with(config: Config, held_out: tuple[str, ...] = (), lake: str = "lake", **changes: Any) -> Config:
    own = [name for name in ("open-page", "find-value", "fill-cart", "write-note") if name not in held_out]
    fields = config.model_dump() | {
        "environments": {"site": {"skin": "drawn", "browsers": 1, "pages": 4}},
        "suite": {"tasks": own, "held_out": held_out},
        "synthesis": {"makers": ["vary", "chain"], "proposals": 8, "tries": 3, "solved_below": 1.0, **changes},
    }
    fields["lake"] = {**fields["lake"], "uri": fields["lake"]["uri"].removesuffix("lake") + lake}
    return config_of(fields)


def rows_of(config: Config) -> dict[str, tuple[str, str, int]]:
    rows = Lake.open(config.lake).rows(proposal.Proposal)
    return {one.proposal_id: (one.status, one.reason, one.solved) for one in rows}


@pytest.mark.slow
def test_accepted_tasks_join_the_catalog_with_their_lineage_and_are_rolled_out_and_taken_out(making: Config) -> None:
    _, found = synthesize(making)
    assert found.proposed == 16 == found.accepted + sum(found.rejected.values())
    assert found.accepted >= 1 and set(found.rejected) <= {"search", "never solved", "always solved", "known"}
    assert found.tasks == [one.task.task_id for one in listed(making, Lake.open(making.lake)) if one.status == "made"]
    with open_run(making) as run:
        made = made_tasks(making, run.lake)
        assert [one.task_id for one in made] == found.tasks
        assert all(one.setup and Setup.model_validate_json(one.setup).checks for one in made)
        assert all("of site/" in (one.lineage or "") and one.split == "train" for one in made)
        choose_tasks(making, 0)
        chosen = {one.task_id: one.weight for one in run.lake.rows(CurriculumChoice, {"iteration": 0})}
        assert set(found.tasks) < set(chosen) and all(chosen[name] > 0 for name in found.tasks)
        assert set(found.tasks) <= {one.task.task_id for one in plan(run, 0, "policy-initial")}
        made_rates = measure_suites(making, run.lake, explorer_policy(making), 0).synthesized
        assert made_rates and set(made_rates.tasks) == set(found.tasks)
        some = measured(
            making, explorer_policy(making), ["open-page", found.tasks[0]], (2_000_000, 2_000_003), 1, run.lake
        )
        assert set(some.rates.tasks) == {"site/open-page", found.tasks[0]}
        name = retire(run.lake, found.tasks[0].rpartition("/")[2], "dull")
        assert name not in {one.task_id for one in tasks_of(making, run.lake)}
        assert name not in synthesize(made_with(making, proposals=9))[1].tasks
        with pytest.raises(UsageError, match="No made task"):
            retire(run.lake, "open-page", "")
    status = {one.task.task_id: one.status for one in listed(making, Lake.open(making.lake))}
    assert (status[name], status["site/open-page"]) == ("retired", "catalog")


@pytest.mark.slow
def test_a_stage_that_is_cut_short_goes_on_and_makes_what_it_would_have_made(making: Config) -> None:
    makers = ["chain", f"{HERE}:Fragile"]
    whole = made_with(making, lake="whole", makers=makers, proposals=6)
    Fragile.breaks_after = None
    synthesize(whole)
    cut = made_with(making, makers=makers, proposals=6)
    Fragile.breaks_after = 3
    with pytest.raises(AssertionError):
        synthesize(cut)
    assert 0 < len(rows_of(cut)) < len(rows_of(whole))
    Fragile.breaks_after = None
    tried = Lake.open(cut.lake).count("evaluations")
    synthesize(cut)
    assert rows_of(cut) == rows_of(whole) and Lake.open(cut.lake).count("evaluations") >= tried
    once = rows_of(cut)
    with open_run(cut):
        synthesize_tasks(cut, 0)
    assert rows_of(cut) == once
    tries = Lake.open(cut.lake).rows(Evaluation)
    assert {one.suite for one in tries} == {"synthesis"} and len({(one.task_id, one.seed) for one in tries}) == len(
        tries
    )


def test_what_descends_from_a_held_out_task_is_neither_made_nor_rolled_out(making: Config) -> None:
    config = made_with(making, held_out=("open-page",), tries=0, makers=["compose", "vary", "harden", "chain"])
    _, found = synthesize(config)
    assert found.rejected["held out"] > 0 and found.tried == 0
    tasks = {one.task_id: one for one in Lake.open(config.lake).rows(GuiTask)}
    assert found.tasks and not any("Open the page" in tasks[name].instruction for name in found.tasks)
    free = made_with(making, lake="free", tries=0, makers=[f"{HERE}:Forgetful"])
    made = synthesize(free)[1].tasks
    later = made_with(making, held_out=("write-note",), lake="free", tries=0)
    with open_run(later) as run:
        left = {one.task_id: one.instruction for one in made_tasks(later, run.lake)}
    assert set(left) < set(made) and not any("as the note" in words for words in left.values())


def test_where_no_task_can_be_made_of_anything_it_is_said(small: Config) -> None:
    with pytest.raises(UsageError, match="fake no task can be made"):
        require_makers(small)
