"""Iterations of `train.method=grpo` and `dpo` on the fake sandbox: groups are rolled out, compared and trained on."""

import json
from pathlib import Path
from typing import Any

import pytest

from apps.commands.lineage import lineage_of
from flows.flywheel import flywheel
from schemas.config import Config, config_of
from schemas.failure import FlywheelError, UsageError
from storage.lake import Lake
from tasks.collect.collect import plan, refills
from tasks.curriculum import choose_tasks
from tasks.running.run import run_of
from tasks.shared.policies import champion, policy_row
from tasks.shared.weights import checkpoint_folder
from tests.clicker import clicked
from tests.flows.conftest import Turned


def grouped(config: Config, tasks: tuple[str, ...] = ("click-target",), method: str = "grpo", **group: Any) -> Config:
    fields = config.model_dump()
    fields["train"] |= {"method": method, "group": {"groups": 3, "size": 4, "k": 2, "batch": 4, **group}}
    fields["suite"]["tasks"] = tasks
    return config_of(fields)


@pytest.fixture
def begun(turned: Turned) -> Lake:
    """A lake after one supervised iteration whose champion is known to succeed now and then."""
    lake = Lake.open(turned(1).lake)
    for task in ("click-target", "dies", "note"):
        sometimes(lake, f"fake/{task}", champion(lake).policy_version)
    return lake


def sometimes(lake: Lake, task: str, version: str) -> None:
    rows = [
        {
            "policy_version": version, "suite": "suite", "task_id": task, "seed": 1_000_100 + number, "iteration": 0,
            "success": number < 4, "reward": float(number < 4), "n_steps": 1, "failure_boundary": None,
        }
        for number in range(8)
    ]  # fmt: skip
    lake.append("evaluations", rows)


def result(lake: Lake, stage: str, iteration: int = 1) -> dict[str, Any]:
    (row,) = lake.read("stages", where={"iteration": iteration, "stage": stage}).to_pylist()
    return json.loads(row["result"])


@pytest.mark.slow
def test_groups_are_rolled_out_compared_and_trained_on(small: Config, begun: Lake) -> None:
    flywheel(clicked(grouped(small, groups=6), 0.2), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    assert len(trajectories) == 24 and {row["policy"] for row in trajectories} == {"policy"}
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in trajectories:
        groups.setdefault(row["group_id"], []).append(row)
    assert [len(group) for group in groups.values()] == [4] * 6
    for group in groups.values():
        assert len({(row["task_id"], row["seed"], row["policy_version"]) for row in group}) == 1
        assert sorted(row["attempt"] for row in group) == [0, 1, 2, 3]
    (choice,) = begun.read("curriculum", where={"iteration": 1}).to_pylist()
    assert choice["policy_trajectories"] == 24 and choice["reason"].endswith("6 groups of 4")
    row = policy_row(begun, "policy-0001")
    metrics = json.loads(row.metrics)
    assert (row.method, row.parent) == ("grpo", "policy-0000")
    assert metrics["groups"] == 6 and 1 <= metrics["informative"] <= 6
    assert metrics["tokens"] > 0 and metrics["mismatch"] > 0
    assert lineage_of(begun, "policy-0001").trajectories == sorted(row["trajectory_id"] for row in trajectories)
    weights = [(checkpoint_folder(begun, v) / "model.safetensors").read_bytes() for v in ("policy-0000", "policy-0001")]
    assert weights[0] != weights[1]
    assert begun.count("evaluations", {"policy_version": "policy-0001", "suite": "suite"}) == 3


@pytest.mark.slow
def test_groups_that_cannot_teach_are_refilled_and_a_collection_that_was_cut_short_goes_on_with_the_same(
    small: Config, begun: Lake
) -> None:
    config = clicked(grouped(small, groups=5, refill=3, ratio="sequence", kl=0.1, entropy_share=0.8), 0.2)
    flywheel(config, iterations=1)
    rounds = list(refills(run_of(config), 1, "policy-0000"))
    rows = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    assert 1 <= len(rounds) <= 3 and len(rows) == 4 * (5 + sum(rounds[-1].values()))
    metrics = json.loads(policy_row(begun, "policy-0001").metrics)
    assert metrics["groups"] == len(rows) / 4 and (metrics["informative"] >= 5 or len(rounds) == 3)
    again = {one.trajectory_id for one in plan(run_of(config), 1, "policy-0000", rounds[-1])}
    assert again == {row["trajectory_id"] for row in rows}


@pytest.mark.slow
def test_one_reward_for_all_is_said_and_the_champion_stays(small: Config, begun: Lake) -> None:
    flywheel(clicked(grouped(small), 0.0), iterations=1)
    trained = result(begun, "train")
    assert "all advantages are 0 in each of 3 groups" in trained["say"] and trained["samples"] == 0
    assert champion(begun).policy_version == "policy-0000"
    assert begun.read("policies").num_rows == 2


@pytest.mark.nightly  # tests/unit/curation has pairs by themselves
def test_where_trajectories_of_a_group_part_pairs_are_kept_and_trained_on(small: Config, begun: Lake) -> None:
    flywheel(clicked(grouped(small, method="dpo", groups=6), 0.2), iterations=1)
    pairs = begun.read("pairs").to_pylist()
    trajectories = {row["trajectory_id"]: row for row in begun.read("trajectories", where={"iteration": 1}).to_pylist()}
    assert pairs
    for pair in pairs:
        won, lost = trajectories[pair["trajectory_id"]], trajectories[pair["rejected_trajectory_id"]]
        assert won["success"] and not lost["success"]
        assert (won["task_id"], won["seed"]) == (lost["task_id"], lost["seed"]) == (pair["task_id"], pair["seed"])
        assert pair["chosen"] != pair["rejected"]
    row = policy_row(begun, "policy-0001")
    assert (row.method, row.parent) == ("dpo", "policy-0000")
    assert json.loads(row.metrics)["samples"] == len(pairs)
    assert "pairs" in json.loads(row.data_versions)
    sides = {pair[side] for pair in pairs for side in ("trajectory_id", "rejected_trajectory_id")}
    assert set(lineage_of(begun, "policy-0001").trajectories) == sides
    checked = begun.read("quality", where={"iteration": 1, "table": "pairs"}).to_pylist()
    assert checked and all(one["success"] for one in checked)


@pytest.mark.slow
def test_no_pair_is_said_and_the_champion_stays(small: Config, begun: Lake) -> None:
    flywheel(clicked(grouped(small, method="dpo"), 0.0), iterations=1)
    assert "no two trajectories of one task and seed part" in result(begun, "train")["say"]
    assert champion(begun).policy_version == "policy-0000"


@pytest.mark.nightly
def test_an_all_failed_group_learns_from_a_stored_success_where_that_is_configured(small: Config, begun: Lake) -> None:
    flywheel(clicked(grouped(small, inject=True), 0.0), iterations=1)
    metrics = json.loads(policy_row(begun, "policy-0001").metrics)
    assert (metrics["injected"], metrics["informative"]) == (3, 3)


@pytest.mark.nightly  # tests/flows/methods/test_ppo_flow.py has a dead sandbox too
def test_a_box_that_dies_is_rolled_out_again_one_group_further_on_and_enters_no_group(
    small: Config, begun: Lake
) -> None:
    flywheel(clicked(grouped(small, ("dies",), groups=16), 0.5), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    dead = [row for row in trajectories if row["success"] is None]
    assert dead and {row["seed"] % 3 for row in dead} == {0}
    for name in {row["group_id"] for row in dead}:
        assert sorted(row["attempt"] for row in trajectories if row["group_id"] == name) == list(range(12))
    alive = {row["group_id"] for row in trajectories} - {row["group_id"] for row in dead}
    trained = result(begun, "train")
    assert trained["environment_failures"] == len(dead)
    assert trained["informative"] <= len(alive)


def test_nothing_that_can_be_learnt_from_in_groups_is_an_error_before_anything_is_rolled_out(
    small: Config, begun: Lake, tmp_path: Path
) -> None:
    with pytest.raises(FlywheelError, match=r"Nothing to learn from in groups.*two-steps.*hopeless"):
        flywheel(grouped(small, ("two-steps",)), iterations=1)
    assert begun.count("trajectories", {"iteration": 1}) == 0


def test_an_unfinished_iteration_is_not_gone_on_with_by_a_method_that_collects_otherwise(
    small: Config, begun: Lake
) -> None:
    choose_tasks.fn(small, 1)
    with pytest.raises(UsageError, match=r"train\.method=grpo.*iteration 1 is not finished.*without groups"):
        flywheel(grouped(small), iterations=1)
    assert begun.count("trajectories", {"iteration": 1}) == 0


def test_from_nothing_the_error_names_supervised_training(small: Config) -> None:
    with pytest.raises(FlywheelError, match=r"train\.method=sft first"):
        flywheel(grouped(small), iterations=1)


def test_adapters_for_a_model_that_has_none_are_refused_before_anything_is_made(small: Config, tmp_path: Path) -> None:
    fields = grouped(small).model_dump()
    fields["train"]["lora"] |= {"rank": 4}
    with pytest.raises(UsageError, match=r"train\.lora\.rank"):
        flywheel(config_of(fields), iterations=1)
    assert not (tmp_path / "lake").exists()


@pytest.mark.nightly  # the two are tested by themselves
def test_judged_and_verified_trajectories_are_trained_on_together(small: Config, begun: Lake) -> None:
    fake = config_of(small.model_dump() | {"judge": {"kind": "fake", "threshold": 1.0, "evidence_min": 0, "audit": 0}})
    flywheel(clicked(grouped(fake, ("click-target", "note"), groups=8), 0.3), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    notes = [row for row in trajectories if row["task_id"] == "fake/note"]
    assert {row["reward"] for row in notes} == {0.0, 0.5, 1.0}
    assert all(row["success"] == (row["reward"] == 1.0) for row in notes)
    judged = {row["trajectory_id"]: row for row in begun.read("verdicts", where={"gate": "judge"}).to_pylist()}
    assert judged.keys() == {row["trajectory_id"] for row in notes}
    for row in notes:
        verdict = judged[row["trajectory_id"]]
        assert verdict["score"] == row["reward"] and verdict["reason"].startswith("fake-judge-1 gives ")
    decisions = {
        row["trajectory_id"]: (row["passed"], row["route"])
        for row in begun.read("verdicts", where={"iteration": 1, "gate": "route"}).to_pylist()
    }
    assert {decisions[row["trajectory_id"]] for row in notes} == {(True, "sft"), (False, "ct")}
    assert {judged[row["trajectory_id"]]["route"] for row in notes} == {"sft", "ct"}
    metrics = json.loads(policy_row(begun, "policy-0001").metrics)
    assert metrics["groups"] == 8 and metrics["informative"] >= 2


@pytest.mark.nightly
def test_what_succeeds_in_groups_is_imitated_with_everything_before(small: Config, begun: Lake) -> None:
    before = json.loads(policy_row(begun, "policy-0000").metrics)["samples"]
    flywheel(clicked(grouped(small, groups=6, method="rft"), 0.4), iterations=1)
    trajectories = begun.read("trajectories", where={"iteration": 1}).to_pylist()
    assert {row["policy"] for row in trajectories} == {"policy"} and all(row["group_id"] for row in trajectories)
    row = policy_row(begun, "policy-0001")
    assert (row.method, row.parent) == ("rft", "policy-0000")
    routes = begun.read("verdicts", where={"iteration": 1, "gate": "route", "route": "sft"}).to_pylist()
    accepted = {row["trajectory_id"] for row in routes}
    won = {row["trajectory_id"] for row in trajectories if row["success"]}
    assert accepted == won != set()
    clicks = {(trajectory["seed"], trajectory["group_id"]) for trajectory in trajectories if trajectory["success"]}
    assert json.loads(row.metrics)["samples"] == before + len(clicks)
