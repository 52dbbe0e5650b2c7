"""Two iterations from nothing to a candidate on the fake sandbox, and what a restart finds."""

import json
from pathlib import Path
from threading import Event, Thread
from uuid import UUID

import pytest
from prefect import get_client

from apps.commands.plan import plan_of
from apps.commands.run import collect as collect_next
from apps.commands.run import show_collected
from flows.flywheel import collect, flywheel
from flows.policies import evaluate, retrain
from schemas.config import Config
from schemas.failure import FlywheelError, UsageError
from schemas.tables import TABLES
from schemas.tables.stage import STAGES
from storage.lake import Lake
from tasks.preflight.preflight import require
from tasks.running import run_status
from tasks.running.iterations import finished_iterations
from tasks.running.run_status import RunStatus, run_statuses
from tasks.shared.policies import champion, policy_row
from tasks.shared.status import iterations
from tasks.shared.weights import checkpoint_folder
from tests.flows.conftest import Turned


def keys_are_unique(lake: Lake) -> bool:
    for table in TABLES.values():
        rows = lake.read(table.name, list(table.key)).to_pylist()
        if len({tuple(row.values()) for row in rows}) != len(rows):
            return False
    return True


def stages(lake: Lake, iteration: int) -> set[str]:
    return set(lake.read("stages", ["stage"], {"iteration": iteration})["stage"].to_pylist())


def test_two_iterations_turn_from_nothing_and_every_stage_is_recorded_once(small: Config, turned: Turned):
    plan = plan_of(small, 2)
    small = turned(2)
    lake = Lake.open(small.lake)
    assert finished_iterations(lake) == [0, 1]
    assert stages(lake, 0) == stages(lake, 1) == set(STAGES)
    assert keys_are_unique(lake)
    kinds = set(lake.read("trajectories", ["policy"], {"iteration": 1})["policy"].to_pylist())
    assert kinds == {"explorer", "policy", "relay"}
    assert (plan.trajectories, plan.seconds) == (lake.count("trajectories"), None)
    assert plan.start < lake.count("evaluations") <= plan.start + 2 * plan.evaluation_each
    again = plan_of(small, 1)
    assert (again.start, again.finished, again.trajectories) == (0, 2, 16)
    took = sum(row.wall_s + (row.orchestration_s or 0) for row in iterations(lake)[1:])
    assert again.seconds == pytest.approx(took / 2, rel=0.05)


@pytest.mark.nightly
def test_what_lies_between_the_stages_is_measured_and_adds_up_with_their_work_to_the_wall_time(turned: Turned):
    small = turned(2)
    lake = Lake.open(small.lake)
    rows = lake.read("stages", ["iteration", "stage", "wall_s", "result", "started_at"]).to_pylist()
    between = {row["stage"]: json.loads(row["result"])["orchestration_s"] for row in rows if row["iteration"] == 1}
    assert set(between) == set(STAGES) and all(0 < seconds < 60 for seconds in between.values())
    second = iterations(lake)[-1]
    assert second.orchestration_s == pytest.approx(sum(between.values()), abs=0.01)
    rows = [row for row in rows if row["iteration"] == 1]
    first, last = min(row["started_at"] for row in rows), max(row["started_at"] for row in rows)
    before = [row for row in rows if row["started_at"] < last]
    said = sum(row["wall_s"] + json.loads(row["result"])["orchestration_s"] for row in before)
    said += between["promote"] - json.loads(min(before, key=lambda row: row["started_at"])["result"])["orchestration_s"]
    assert said == pytest.approx((last - first).total_seconds(), abs=0.5)


def test_every_run_has_an_identity_of_its_own_which_is_that_of_its_flow_run(turned: Turned):
    small = turned(1)
    collect(small)
    lake = Lake.open(small.lake)
    by_iteration = {row["iteration"]: set[str]() for row in lake.read("stages", ["iteration"]).to_pylist()}
    for row in lake.read("stages", ["iteration", "run_id"]).to_pylist():
        by_iteration[row["iteration"]].add(row["run_id"])
    assert [len(ids) for ids in by_iteration.values()] == [1, 1, 1] and len(set.union(*by_iteration.values())) == 3
    for row in lake.read("trajectories", ["iteration", "run_id"]).to_pylist():
        assert {row["run_id"]} == by_iteration[row["iteration"]]
    (first,) = by_iteration[0]
    with get_client(sync_client=True) as client:
        assert client.read_flow_run(UUID(first)).name == "flywheel small"
    assert lake.lake_id not in (first, *by_iteration[1])


def test_an_evaluation_is_of_the_checkpoint_that_this_iteration_trained_not_of_the_one_before(turned: Turned):
    small = turned(2)
    lake = Lake.open(small.lake)
    for iteration in (0, 1):
        rows = lake.read("evaluations", ["policy_version"], {"iteration": iteration})["policy_version"].to_pylist()
        assert set(rows) == {f"policy-{iteration:04d}"}
        row = policy_row(lake, f"policy-{iteration:04d}")
        weights = (checkpoint_folder(lake, row.policy_version) / "model.safetensors").read_bytes()
        parent = (checkpoint_folder(lake, row.parent) / "model.safetensors").read_bytes()
        assert weights != parent


@pytest.mark.slow
def test_an_iteration_that_yields_no_data_keeps_the_champion_and_the_next_one_turns(small: Config):
    suite = small.suite.model_copy(update={"tasks": ("two-steps",), "max_steps": {"two-steps": 1}})
    barren = small.model_copy(update={"suite": suite})
    flywheel(barren, iterations=2)
    lake = Lake.open(barren.lake)
    assert finished_iterations(lake) == [0, 1]
    assert champion(lake).policy_version == "policy-initial"
    assert lake.read("policies").num_rows == 1
    train = lake.read("stages", where={"iteration": 0, "stage": "train"}).to_pylist()[0]
    assert "no accepted trajectory" in json.loads(train["result"])["say"]


def test_what_was_turned_is_not_turned_again(turned: Turned):
    small = turned(1)
    lake = Lake.open(small.lake)
    before = lake.read("stages").to_pylist()
    flywheel(small, iterations=0)
    assert lake.read("stages").to_pylist() == before


def test_a_stage_that_was_cut_short_is_finished_first(turned: Turned):
    small = turned(1)
    lake = Lake.open(small.lake)
    lake.delete("stages", "iteration = 0 AND stage IN ('evaluate', 'promote')")
    lake.delete("evaluations", "iteration = 0 AND seed > 1000000")
    policies = lake.read("policies", ["policy_version", "status"]).to_pylist()
    flywheel(small, iterations=1)
    assert finished_iterations(lake) == [0]
    assert keys_are_unique(lake)
    assert lake.read("evaluations", where={"iteration": 0}).num_rows == 6
    assert lake.read("policies", ["policy_version", "status"]).to_pylist() == policies


@pytest.mark.slow
def test_steps_of_an_unfinished_trajectory_are_dropped_before_collecting_goes_on(small: Config):
    collect(small)
    lake = Lake.open(small.lake)
    lost = lake.read("trajectories", ["trajectory_id"], {"iteration": 0})["trajectory_id"].to_pylist()[0]
    lake.delete("trajectories", f"trajectory_id = '{lost}'")
    lake.delete("stages", "iteration = 0 AND stage = 'collect'")
    collect(small)
    trajectories = lake.read("trajectories", where={"iteration": 0}).to_pylist()
    assert lost in {row["trajectory_id"] for row in trajectories}
    assert lake.read("steps", where={"iteration": 0}).num_rows == sum(row["n_steps"] for row in trajectories)


@pytest.mark.nightly
def test_collecting_alone_leaves_what_a_run_goes_on_from(small: Config, capsys: pytest.CaptureFixture[str]):
    first, again = collect_next(small), collect_next(small)
    assert first == again and first.iteration == 0 and first.pause is None
    lake = Lake.open(small.lake)
    assert first.stages["collect"]["trajectories"] == lake.count("trajectories", {"iteration": 0}) > 0
    assert not {"train", "promote"} & stages(lake, 0)
    capsys.readouterr()
    show_collected(first, as_json=False)
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("iteration 0: collect: 16 trajectories") and "filter: sft" in shown


def test_environment_failures_enter_no_success_rate_and_are_rolled_out_again(small: Config):
    config = small.model_copy(update={"suite": small.suite.model_copy(update={"tasks": ("click-target", "dies")})})
    collect(config)
    lake = Lake.open(config.lake)
    rows = lake.read("trajectories", where={"task_id": "fake/dies"}).to_pylist()
    dead = [row for row in rows if row["failure_boundary"] == "sandbox"]
    assert dead
    assert all(row["success"] is None and row["reward"] is None for row in dead)
    assert {row["attempt"] for row in dead} == {0, 1, 2}
    routes = lake.read("verdicts", where={"gate": "route"}).to_pylist()
    assert {row["route"] for row in routes if row["trajectory_id"] in {d["trajectory_id"] for d in dead}} == {"none"}


def test_retraining_from_the_same_pins_makes_the_same_weights(turned: Turned):
    small = turned(1)
    version = retrain(small, like="policy-0000")
    lake = Lake.open(small.lake)
    original, again = policy_row(lake, "policy-0000"), policy_row(lake, version)
    assert again.data_versions == original.data_versions
    assert again.parent == original.parent
    assert again.status == "held" and champion(lake).policy_version == "policy-0000"  # it reproduced, it did not win
    assert again.training_set == original.training_set is not None and again.repeats == "policy-0000"
    same = [(checkpoint_folder(lake, v) / "model.safetensors").read_bytes() for v in ("policy-0000", version)]
    assert same[0] == same[1]
    other = json.loads(original.training_set) | {"pictures": "0"}
    lake.upsert("policies", [original.model_copy(update={"training_set": json.dumps(other)})])
    with pytest.raises(FlywheelError, match="training set of policy-0000 cannot be made again: its pictures"):
        retrain(small, like="policy-0000")
    assert lake.read("policies").num_rows == 3


@pytest.mark.slow
def test_a_retraining_is_seen_from_elsewhere_while_it_works_and_says_what_it_is_at(
    turned: Turned, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    small = turned(1)
    lake, seen, over = Lake.open(small.lake), list[RunStatus](), Event()
    monkeypatch.setattr(run_status, "EVERY_S", 0.02)

    def look() -> None:
        while not over.wait(0.02):
            seen.extend(run_statuses(lake))

    looking = Thread(target=look)
    looking.start()
    retrain(small)
    measured = len(seen)
    evaluate(small, "champion", ["click-target"], (2_000_000, 2_000_003))
    over.set()
    looking.join()
    assert {("retrain", "train"), ("retrain", "evaluate")} <= {(one.flow, one.stage) for one in seen[:measured]}
    assert any(one.curve and one.done for one in seen[:measured] if one.stage == "train")
    assert ("evaluate", "measure") in {(one.flow, one.stage) for one in seen[measured:]}
    assert run_statuses(lake) == []
    said = [line.split() for line in capfd.readouterr().err.splitlines()]
    assert [words[1:] for words in said if words[-1] == "begins"][:5] == [
        [part, "begins"] for part in ("verify", "pin", "train", "evaluate", "challenge")
    ]
    assert any(words[:2] == ["retrain", "train"] and words[-1] == "s" for words in said)


def test_evaluating_leaves_the_champion_and_the_lake_as_they_are(turned: Turned):
    small = turned(1)
    lake = Lake.open(small.lake)
    before = lake.versions()
    measured = evaluate(small, "champion", ["click-target"], (2_000_000, 2_000_003))
    assert measured.rates.tasks["fake/click-target"].n == 3
    assert lake.versions() == before


@pytest.mark.nightly
def test_several_attempts_at_a_seed_are_drawn_and_told_apart(turned: Turned):
    small = turned(0)
    measured = evaluate(small, "champion", ["click-target"], (2_000_000, 2_000_002), attempts=3)
    assert measured.rates.tasks["fake/click-target"].n == 6
    told = sorted((one.seed, one.attempt) for one in measured.trajectories)
    assert told == [(seed, attempt) for seed in (2_000_000, 2_000_001) for attempt in range(3)]
    assert all(one.n_steps >= 1 for one in measured.trajectories)


def test_training_seeds_are_refused_for_evaluation(turned: Turned):
    small = turned(0)
    with pytest.raises(UsageError, match="start at 1,000,000"):
        evaluate(small, "champion", None, (0, 5))


def test_what_is_gone_of_a_lake_is_named_before_anything_is_spent(turned: Turned):
    small = turned(1)
    folder = Path(small.lake.uri)
    require(small)
    name = champion(Lake.open(small.lake)).policy_version
    weights = next(folder.rglob(f"{name}/model.safetensors"))
    steps = next((folder / "tables" / "steps").rglob("*.parquet"))
    wrong = {weights: r"champion policy-\S+: .*model\.safetensors is missing.*rollback", steps: "steps .*are missing"}
    for file, said in wrong.items():
        kept = file.rename(file.with_suffix(".kept"))
        before = Lake.open(small.lake).count("stages")
        with pytest.raises(FlywheelError, match=said):
            flywheel(small, iterations=1)
        assert Lake.open(small.lake).count("stages") == before
        kept.rename(file)
    require(small)


def test_an_unknown_policy_is_named_with_those_there_are(turned: Turned):
    small = turned(0)
    with pytest.raises(UsageError, match="policy-initial"):
        evaluate(small, "policy-9999", None, None)


def test_an_unknown_task_is_refused_before_anything_is_made(small: Config, tmp_path: Path):
    wrong = small.model_copy(update={"suite": small.suite.model_copy(update={"tasks": ("click-tarjet",)})})
    with pytest.raises(UsageError, match="click-target"):
        flywheel(wrong)
    assert not (tmp_path / "lake").exists()
