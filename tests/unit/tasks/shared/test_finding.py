"""Finding trajectories by their outcome, the decision about them and any of their texts."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from flywheel.lake import OpenLake
from schemas.action import Type, UseTool, to_json
from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from schemas.tables.evaluation_trajectory import EvaluationTrajectory
from schemas.tables.trajectory import Trajectory
from storage.lake import Lake
from tasks.shared.finding import Wanted, find, found_of
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS, NOON


def row(table: str, **changes: Any) -> dict[str, Any]:
    return {**DEFAULTS[table], **changes}


@pytest.fixture
def filled(tmp_path: Path) -> Lake:
    """Trajectories: a success, a failure that a gate rejected, a dead sandbox, and an import without an outcome."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    failed = {"success": False, "reward": -1.0, "policy": "explorer", "policy_version": "explorer-1"}
    dead = {"success": None, "reward": None, "failure_boundary": "sandbox", "failure_reason": "Chromium died"}
    kinds: dict[str, dict[str, Any]] = {
        "won": {"instruction": "Click 100% of the boxes."},
        "lost": {**failed, "n_steps": 3, "task_id": "fake/b"},
        "dead": {**dead, "iteration": 2},
        "told": {"success": None, "reward": None, "policy": "import", "iteration": -2},
    }
    for number, (name, changes) in enumerate(kinds.items()):
        at = {"trajectory_id": name, "iteration": changes.get("iteration", 1)}
        lake.append("trajectories", [row("trajectories", **{"started_at": NOON + timedelta(number), **changes, **at})])
        actions = [f'{{"content":"Ada {name}","type":"type"}}']
        lake.append(
            "steps", [row("steps", **at, thought=f"I see a_b {name}.", actions=actions, next_screenshot="b" * 64)]
        )
    lake.append("verdicts", [row("verdicts", trajectory_id="won", reason="verifier: reward is 1")])
    verdict = {"trajectory_id": "lost", "passed": False, "route": "ct", "reason": "repeats: the same click five times"}
    lake.append("verdicts", [row("verdicts", **verdict), row("verdicts", **verdict, gate="repeats")])
    return lake


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (Wanted(), ["told", "dead", "lost", "won"]),
        (Wanted(task="b"), ["lost"]),
        (Wanted(task="miniwob/a"), ["told", "dead", "won"]),
        (Wanted(outcome="success"), ["won"]),
        (Wanted(outcome="failure"), ["lost"]),
        (Wanted(outcome="environment"), ["dead"]),
        (Wanted(outcome="unknown"), ["told"]),
        (Wanted(policy="explorer"), ["lost"]),
        (Wanted(policy="p1"), ["told", "dead", "won"]),
        (Wanted(iteration=-2), ["told"]),
        (Wanted(route="ct"), ["lost"]),
        (Wanted(route="ct", iteration=2), []),
        (Wanted(gate="repeats"), ["lost"]),
        (Wanted(text="100% OF"), ["won"]),
        (Wanted(text="0% of the %"), []),
        (Wanted(text="a_b won"), ["won"]),
        (Wanted(text="aXb"), []),
        (Wanted(text="ada lost"), ["lost"]),
        (Wanted(text="five times"), ["lost"]),
        (Wanted(text="chromium"), ["dead"]),
        (Wanted(outcome="success", text="five times"), []),
    ],
)
def test_every_condition_has_to_hold(filled: Lake, wanted: Wanted, names: list[str]) -> None:
    found = find(filled, wanted)
    assert [one.row.trajectory_id for one in found] == names and found.total == len(names)


@pytest.mark.parametrize(
    ("order", "first"), [("newest", "told"), ("oldest", "won"), ("reward", "won"), ("steps", "lost")]
)
def test_trajectories_are_sorted(filled: Lake, order: str, first: str) -> None:
    assert find(filled, Wanted(), order=order).rows[0].row.trajectory_id == first


def test_a_page_states_the_number_of_all_that_match(filled: Lake) -> None:
    second = find(filled, Wanted(), limit=2, offset=2)
    assert [one.row.trajectory_id for one in second] == ["lost", "won"] and second.total == 4
    behind = find(filled, Wanted(), limit=2, offset=10)
    assert (behind.rows, behind.total) == ([], 4)


@pytest.mark.parametrize("evaluations", [False, True])
def test_champion_is_the_name_of_the_current_champion(tmp_path: Path, evaluations: bool) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    lake.append("policies", [row("policies", policy_version="p1", status="champion")])
    table = "evaluation_trajectories" if evaluations else "trajectories"
    for name, version in (("own", "p1"), ("other", "p2")):
        given = row("trajectories", trajectory_id=name, policy_version=version, policy="policy", suite="s")
        known = (EvaluationTrajectory if evaluations else Trajectory).model_fields
        lake.append(table, [{column: value for column, value in given.items() if column in known}])
    found = OpenLake(lake).find(policy="champion", evaluations=evaluations)
    assert [one.trajectory_id for one in found] == ["own"]
    assert OpenLake(lake).find(policy="champion", text="nothing", evaluations=evaluations) == []


def test_the_limits_of_numbers_are_found(filled: Lake) -> None:
    for number in (-(2**63), 2**63 - 1):
        assert find(filled, Wanted(seed=number), limit=2**63 - 1).rows == []
    for number in (-(2**31), 2**31 - 1):
        assert find(filled, Wanted(iteration=number)).rows == []


def test_a_found_trajectory_has_its_decision_and_its_last_screen(filled: Lake) -> None:
    lost = found_of(filled, "lost")
    assert (lost.outcome, lost.route, lost.reason) == ("failure", "ct", "repeats: the same click five times")
    assert lost.screenshot == "b" * 64
    assert found_of(filled, "dead").route is None


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda lake: find(lake, Wanted(outcome="won")), "outcome"),
        (lambda lake: find(lake, Wanted(route="nowhere")), "route"),
        (lambda lake: find(lake, Wanted(), order="colour"), "sort"),
        (lambda lake: found_of(lake, "nobody"), "trajectory_id"),
        (lambda lake: find(lake, Wanted(text="\udcff")), "text"),
        (lambda lake: find(lake, Wanted(task="\udcff")), "task"),
        (lambda lake: find(lake, Wanted(seed=2**70)), "seed"),
        (lambda lake: find(lake, Wanted(iteration=2**40)), "iteration"),
        (lambda lake: find(lake, Wanted(), limit=-1), "limit"),
        (lambda lake: OpenLake(lake).find(limit=2**70), "limit"),
        (lambda lake: OpenLake(lake).find(policy="nobody"), "policy"),
    ],
)
def test_what_does_not_exist_is_refused_by_name(
    filled: Lake, make: Callable[[Lake], object], named: str, sentence: Sentences
) -> None:
    with sentence.raises(UsageError, f"`{named}`"):
        make(filled)


TYPED = 'J\u00fcrgen M\u00fcller says "hi" in C:\\tmp\nand a (b)* c'


@pytest.mark.parametrize(
    "text",
    [
        "M\u00fcller", "m\u00dcller says", '"HI"', "C:\\tmp", "tmp\nand", "(b)*", TYPED,
        "log_in", "\u0416\u0443\u043a", "deep",
    ],
)  # fmt: skip
def test_a_text_in_an_action_is_found_as_it_was_typed(filled: Lake, text: str) -> None:
    call = UseTool(name="log_in", arguments={"of": ["\u0436\u0443\u043a", {"at": "deep"}]})
    actions = [to_json(Type(content=TYPED)), to_json(call)]
    filled.append("steps", [row("steps", trajectory_id="won", iteration=1, step=1, thought="", actions=actions)])
    assert [one.row.trajectory_id for one in find(filled, Wanted(text=text)).rows] == ["won"]
    assert find(filled, Wanted(text=text, iteration=2)).total == 0


@pytest.mark.parametrize("text", ["content", "u00fc", "\\n", "arguments", "M.ller", "(b|c)"])
def test_notation_of_actions_is_no_text_of_them(filled: Lake, text: str) -> None:
    filled.append(
        "steps", [row("steps", trajectory_id="won", iteration=1, step=1, actions=[to_json(Type(content=TYPED))])]
    )
    assert find(filled, Wanted(text=text)).total == 0


def test_python_finds_nothing_where_a_lake_keeps_no_evaluation(filled: Lake) -> None:
    assert OpenLake(filled).find(policy="champion", evaluations=True) == []
