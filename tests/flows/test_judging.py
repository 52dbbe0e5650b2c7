"""Tasks without a verifier: judged, or an environment failure, or refused before anything is spent."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from apps.commands.curation import show_judging
from curation.agreement import Confusion, agreement_of
from environments.pool import SandboxPool
from flows.flywheel import collect
from models.completion import Completion
from models.families.dialects import parse_reply
from models.judges.judge import FakeJudge, Judge, JudgeCase, JudgeFailure, Judgement
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.runner import with_judgement
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.config import Config, config_of
from schemas.config.section import Section
from schemas.context import ContextRule
from schemas.failure import FlywheelError
from schemas.table import utc_now
from schemas.tables.pair import Pair
from storage.catalog import ask
from storage.lake import Lake
from tasks.filter import decide_routes
from tasks.judge import judge_again
from tasks.running.run import run_of
from tasks.train.preferences import compared
from tests.parts import FAKE

ALONE = {"gates": ("environment", "verifier", "judge")}
"""No gate before the judge's that might turn away what it accepts."""


class Silent(Judge[Section]):
    name = "silent"

    def _score(self, case: JudgeCase) -> Judgement:
        raise JudgeFailure("nobody answers")


class Severe(Judge[Section]):
    """Gives everything the same score, and half a character as its reason."""

    name = "severe"

    def _score(self, case: JudgeCase) -> Judgement:
        assert all(png.startswith(b"\x89PNG") for png in case.screens) and case.screens
        return Judgement(0.0, "no \ud83d")


class Scripted(Policy):
    """Gives one completion after the other."""

    version, dialect = "p", "box_v1"

    def __init__(self, *completions: Completion) -> None:
        self.completions = completions

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        return [self.completions[len(context.turns)] for context in contexts]


CLICK = parse_reply("Action: click(start_box='(500,330)')")


def noted(config: Config, *completions: Completion, judge: Judge[Section]) -> FinishedTrajectory:
    one = PlannedTrajectory("lake", "run", 0, FAKE.task("note"), 5, "policy", "p")

    async def run() -> FinishedTrajectory:
        with Actor(Scripted(*completions)) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, one, [actor], record_elements=True, rule=ContextRule(1))

    return with_judgement(config, judge, one, asyncio.run(run()))


def judged(config: Config, **judge: object) -> Config:
    fields = config.model_dump()
    fields["suite"]["tasks"] = ("note",)
    return config_of(fields | {"filter": ALONE, "judge": {"evidence_min": 0} | judge})


def test_the_judge_sees_all_replies_and_the_last_screens_with_the_final_one(small: Config) -> None:
    seen: list[JudgeCase] = []

    class Watching(FakeJudge):
        def _score(self, case: JudgeCase) -> Judgement:
            seen.append(case)
            return super()._score(case)

    typed = parse_reply("Action: type(content='ada')")
    record = noted(judged(small, kind="fake", screens=2), CLICK, typed, CLICK, judge=Watching(Section()))
    (case,) = seen
    assert case.replies == (CLICK.text, typed.text, CLICK.text)
    final = record.steps[-1].next_screenshot
    assert final is not None
    assert case.screens == tuple(record.screenshots[name].png for name in (record.steps[-1].screenshot, final))
    assert record.trajectory.reward in (0.0, 0.5) and record.verdict is not None
    assert record.verdict.reason.startswith("fake-judge-1 gives")


def test_a_reply_without_an_action_is_worth_nothing_and_is_not_judged(small: Config) -> None:
    record = noted(judged(small, kind="fake"), CLICK, parse_reply("Action: mumble"), judge=Silent(Section()))
    assert (record.trajectory.reward, record.trajectory.success) == (0.0, False)
    assert record.trajectory.failure_boundary == "action" and record.verdict is None


def test_a_judge_that_fails_makes_an_environment_failure_that_is_rolled_out_again_and_goes_nowhere(
    small: Config,
) -> None:
    config = judged(small, kind=f"{__name__}:Silent")
    collect(config)
    lake = Lake.open(config.lake)
    rows = {row["trajectory_id"]: row for row in lake.read("trajectories").to_pylist()}
    asked = {name: row for name, row in rows.items() if row["failure_boundary"] != "action"}  # these are never judged
    assert {row["failure_boundary"] for row in asked.values()} == {"judge"}
    assert {row["attempt"] for row in asked.values()} == {0, 1, 2}
    assert {(row["reward"], row["success"]) for row in asked.values()} == {(None, None)}
    assert {row["failure_reason"] for row in asked.values()} == {"silent: nobody answers"}
    routes = lake.read("verdicts", where={"gate": "route"}).to_pylist()
    assert {row["route"] for row in routes if row["trajectory_id"] in asked} == {"none"}
    assert lake.count("verdicts", {"gate": "judge"}) == 0


def test_another_judges_opinion_is_a_second_verdict_and_the_newest_decision_holds(small: Config) -> None:
    config = judged(small, kind="fake")
    collect(config)
    lake = Lake.open(config.lake)
    (before,) = ask(lake, "funnel").to_pylist()
    first = lake.read("verdicts", where={"gate": "judge"}).to_pylist()
    assert len(first) == before["sft"] + before["rl"] > before["rl"]  # of two that did the same one is imitated
    other = judged(small, kind=f"{__name__}:Severe")
    routes = decide_routes(run_of(other), 0).routes
    (after,) = ask(lake, "funnel").to_pylist()
    assert after["collected"] == before["collected"] == sum(routes.values())
    assert (after["sft"], after["ct"], after["none"]) == tuple(routes.get(one, 0) for one in ("sft", "ct", "none"))
    assert after["sft"] == 0 and "judge" in {one["gate"] for one in after["rejections"]}
    assert sum(one["n"] for one in after["rejections"]) <= after["ct"] + after["none"]
    rows = lake.read("verdicts", where={"gate": "judge"}).to_pylist()
    assert len(rows) == 2 * len(first)
    assert {row["reason"] for row in rows if not row["passed"]} == {"severe gives 0.00: no \\ud83d"}
    decide_routes(run_of(other), 0)
    assert lake.count("verdicts", {"gate": "judge"}) == len(rows)
    decide_routes(run_of(config), 0)  # the first judge again: nobody is asked, and its decisions are the newest
    assert ask(lake, "funnel").to_pylist()[0]["sft"] == before["sft"]
    assert lake.count("verdicts", {"gate": "judge"}) == len(rows)


def routes_of(lake: Lake) -> dict[str, str]:
    return {row["trajectory_id"]: row["route"] for row in ask(lake, "decisions", iteration=None).to_pylist()}


@pytest.mark.nightly
def test_what_a_judge_on_probation_accepts_is_held_back_until_it_has_agreed_often_enough(small: Config) -> None:
    config = judged(small, kind="fake", evidence_min=3)
    collect(config)
    lake = Lake.open(config.lake)
    given = lake.read("verdicts", where={"gate": "judge"}).to_pylist()
    accepted = {row["trajectory_id"] for row in given if row["passed"]}
    routes = routes_of(lake)
    assert accepted and {routes[name] for name in accepted} == {"quarantine"}
    assert {route for name, route in routes.items() if name not in accepted} == {"ct"}
    reasons = {row["reason"] for row in ask(lake, "decisions", iteration=0).to_pylist() if row["route"] == "quarantine"}
    assert all(one.startswith("judge: on probation, compared 0 times, of 3; fake-judge-1 gives ") for one in reasons)
    people = agreement_of(given[0]["gate_version"], "people", 1, Confusion(2, 0, 0, 2), utc_now())
    lake.append("agreements", [people])
    decide_routes(run_of(config), 0)
    assert {routes_of(lake)[name] for name in accepted} == {"sft"}


@pytest.mark.slow
def test_a_judge_is_asked_where_a_verifier_knows_but_never_changes_a_route_there(
    small: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    def by(kind: str) -> Config:
        return two_tasks(small, "click-target", kind=kind, audit=0, evidence_min=0)

    collect(by("fake"))
    lake = Lake.open(small.lake)
    before, where = routes_of(lake), {"task_id": "fake/click-target"}
    known = set(lake.read("trajectories", where=where | {"failure_boundary": None})["trajectory_id"].to_pylist())
    assert not known & {row["trajectory_id"] for row in lake.read("verdicts", where={"gate": "judge"}).to_pylist()}
    severe = by(f"{__name__}:Severe")
    report = judge_again(severe, lake, (0, 1))
    assert report.judged > len(known) and report.failed == 0 and report.earlier.to_reject > 0
    counts = report.against["verifier"]
    assert counts.n == counts.false_negatives + counts.true_negatives == len(known)
    assert counts.false_negatives > 0 and report.probation.startswith("kappa against verifier is")
    assert routes_of(lake) == before
    decide_routes(run_of(severe), 0)
    after = routes_of(lake)
    assert {name: after[name] for name in known} == {name: before[name] for name in known}
    again = judge_again(severe, lake, None)
    assert (again.judged, again.skipped, again.against) == (0, report.trajectories, report.against)
    assert again.skipped_why["judged by it already"] == report.judged
    assert sum(again.skipped_why.values()) == again.skipped
    with pytest.raises(FlywheelError, match=r"answered on none of .*nobody answers"):
        judge_again(by(f"{__name__}:Silent"), lake, (0, 1))
    show_judging(again)
    assert f"{report.judged} judged by it already" in " ".join(capsys.readouterr().out.split())


@pytest.mark.nightly
def test_each_iteration_some_verified_trajectories_are_judged_as_evidence(small: Config) -> None:
    config = two_tasks(small, "enter-text", kind="fake", audit=3)
    collect(config)
    lake = Lake.open(config.lake)
    (row,) = lake.read("agreements").to_pylist()
    assert (row["against"], row["iteration"], row["n"]) == ("verifier", 0, 3)
    decide_routes(run_of(config), 0)
    assert lake.read("agreements")["n"].to_pylist() == [3]


class Contrary(Judge[Section]):
    """Likes whatever has the fewest replies of a certain length."""

    name = "contrary"

    def _score(self, case: JudgeCase) -> Judgement:
        return Judgement(1 / (1 + sum(map(len, case.replies))), "the shorter the better")


class Failing(Contrary):
    """Gives no answer for a while."""

    left = 0

    def _score(self, case: JudgeCase) -> Judgement:
        Failing.left -= 1
        if Failing.left >= 0:
            raise JudgeFailure("the server answered 500")
        return super()._score(case)


def test_a_preference_that_no_verifier_knows_needs_the_judges_in_both_orders(small: Config) -> None:
    config = judged(small, kind="fake")
    collect(config)
    lake = Lake.open(config.lake)
    texts: dict[str, int] = {}
    for row in lake.read("steps").to_pylist():
        texts[row["trajectory_id"]] = texts.get(row["trajectory_id"], 0) + len(row["raw_text"])
    short, *_, long = sorted(texts, key=lambda name: texts[name])

    def pair(chosen: str, rejected: str, verified: bool = False) -> Pair:
        sides = {
            "trajectory_id": chosen,
            "rejected_trajectory_id": rejected,
            "pair_id": f"{chosen}|{rejected}|{verified}",
        }
        rest = {"step": 0, "iteration": 0, "task_id": "fake/note", "seed": 1, "kind": "parting"}
        return Pair.model_validate(sides | rest | {"chosen": "a", "rejected": "b", "verified": verified})

    pairs = [pair(short, long), pair(long, short), pair(short, short), pair(long, short, verified=True)]
    contrary = judged(small, kind=f"{__name__}:Contrary", pairwise=True)
    found = compared(contrary.judge, lake, pairs)
    assert found.pairs == [pairs[0], pairs[3]] and (found.tied, found.contrary, found.unanswered) == (1, 1, {})
    assert found.text == "the judge found 1 tie, and the other side better in 1"
    lake.append("pairs", [pairs[1]])
    assert compared(contrary.judge, lake, pairs).pairs == [pairs[0], pairs[1], pairs[3]]

    Failing.left = 2  # of the second pair one order fails, however often it is tried; it answers when asked once more
    failing = judged(small, kind=f"{__name__}:Failing", pairwise=True, tries=1)
    lake.delete("pairs", "NOT verified")
    found = compared(failing.judge, lake, pairs)
    assert found.pairs == [pairs[0], pairs[3]] and not found.unanswered
    Failing.left = 10**6
    found = compared(failing.judge, lake, pairs)
    assert found.pairs == [pairs[3]] and (found.tied, found.contrary) == (0, 0)
    assert found.text == "the judge gave no answer on 3 pairs: contrary: the server answered 500"


def two_tasks(config: Config, verified: str, **judge: object) -> Config:
    """One with a verifier, one without."""
    fields = config.model_dump()
    fields["suite"]["tasks"] = (verified, "note")
    return config_of(fields | {"filter": ALONE, "judge": judge})


@pytest.mark.parametrize(
    ("judge", "field"),
    [
        ({}, "judge.kind"),
        ({"kind": "endpoint", "options": {"model": "orm"}}, "judge.options.url"),
        ({"kind": "endpoint", "options": {"url": "http://127.0.0.1:9/v1", "model": "orm"}}, "judge.options.url"),
        ({"kind": "oracle"}, "judge.kind"),
    ],
)
def test_a_task_without_a_verifier_and_no_judge_is_refused_before_anything_is_made(
    small: Config, tmp_path: Path, judge: dict[str, Any], field: str
) -> None:
    with pytest.raises(FlywheelError, match=field.replace(".", r"\.")):
        collect(judged(small, **judge))
    assert not (tmp_path / "lake").exists()
