"""Continual training in the wheel: what failed teaches what is true of it, before the supervised training."""

import json
from pathlib import Path

import pytest

from apps.commands.lineage import lineage_of
from flows.flywheel import flywheel
from flows.policies import retrain
from learning.algorithms.method import method_of
from learning.data.sample import read_samples
from schemas.config import Config, config_of
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.policies import measured_ancestor, policy_row
from tasks.shared.status import iterations
from tasks.shared.weights import checkpoint_folder
from tasks.train.supervised import continual_material, supervised
from tasks.train.train import pins_of
from tests.flows.conftest import Turned

pytestmark = pytest.mark.slow


def trained(config: Config, tasks: tuple[str, ...] = ("click-target", "enter-text"), **train: object) -> Config:
    fields = config.model_dump()
    fields["train"] |= {"ct": {"steps": 3}, **train}
    fields["suite"]["tasks"] = tasks
    return config_of(fields)


def weights(lake: Lake, version: str) -> bytes:
    return (checkpoint_folder(lake, version) / "model.safetensors").read_bytes()


@pytest.mark.nightly
def test_in_every_nth_iteration_continual_training_comes_before_the_supervised_one(turned: Turned) -> None:
    small = turned(1)
    config = trained(small, small.suite.tasks, ct_every=1)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    said = {
        row["iteration"]: json.loads(row["result"]) for row in lake.read("stages", where={"stage": "ct"}).to_pylist()
    }
    assert said[0]["say"] == "not in this iteration"
    between = policy_row(lake, "policy-0001-ct")
    assert (between.method, between.status) == ("ct", "intermediate")
    assert json.loads(between.config)["train"]["method"] == "ct"
    last = policy_row(lake, "policy-0001")
    assert (last.method, last.parent) == ("sft", "policy-0001-ct")
    assert measured_ancestor(lake, "policy-0001-ct").policy_version == between.parent != "policy-0001"
    assert lake.count("evaluations", {"policy_version": "policy-0001-ct"}) == 0
    assert len({weights(lake, version) for version in ("policy-0001", "policy-0001-ct", between.parent)}) == 3
    assert [one.policy for one in iterations(lake) if one.iteration >= 0][-1] == "policy-0001"
    kinds = json.loads(between.metrics)["kinds"]
    assert kinds["inverse_dynamics"] > 0 and kinds["transition"] > 0 and kinds["grounding"] == kinds["naming"] > 0
    checked = lake.read("quality", where={"table": "annotations"}).to_pylist()
    assert checked and all(one["success"] for one in checked)
    again = retrain(config, like="policy-0001")
    assert weights(lake, again) == weights(lake, "policy-0001")


def test_no_action_of_a_failed_play_is_ever_a_reply_to_its_instruction_and_environment_failures_teach_nothing(
    small: Config, tmp_path: Path
) -> None:
    config = trained(small, ("click-target", "enter-text", "dies"), method="ct")
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    routes = {row["trajectory_id"]: row["route"] for row in lake.read("verdicts", where={"gate": "route"}).to_pylist()}
    steps = lake.read("steps", ["trajectory_id", "screenshot", "next_screenshot", "actions"]).to_pylist()
    told = {row["trajectory_id"]: row["instruction"] for row in lake.read("trajectories").to_pylist()}
    good = {
        (told[row["trajectory_id"]], row["screenshot"], tuple(row["actions"]))
        for row in steps
        if routes[row["trajectory_id"]] == "sft"
    }
    between = {(row["screenshot"], row["next_screenshot"]) for row in steps if routes[row["trajectory_id"]] == "ct"}
    pins = pins_of(lake)
    recipe, method = PolicyRecipe("x", "policy-initial", 0, pins), method_of(config.train)
    found = supervised(config, lake, recipe)
    found.write(tmp_path / "samples", method.schedule(config.train, found.samples, "muon"))
    sft = read_samples(tmp_path / "samples")
    replies = [(one.instruction, one.screenshots[-1], one.actions) for one in sft if one.actions]
    assert replies and set(replies) <= good
    found = continual_material(config, lake, recipe)
    found.write(tmp_path / "samples", method.schedule(config.train, found.samples, "muon"))
    made = read_samples(tmp_path / "samples")
    assert {one.instruction for one in made} == {""}
    assert {one.screenshots for one in made if one.kind == "inverse_dynamics"} <= between
    candidate = policy_row(lake, "policy-0000")
    assert (candidate.method, candidate.parent) == ("ct", "policy-initial")
    read = lineage_of(lake, "policy-0000").trajectories
    assert read and {routes[name] for name in read} == {"ct"}
    dead = {name for name, route in routes.items() if route == "none"}
    annotated = set(lake.read("annotations", ["trajectory_id"])["trajectory_id"].to_pylist())
    assert dead and annotated and not dead & annotated


def test_continual_training_before_another_method_than_sft_is_refused(small: Config) -> None:
    with pytest.raises(UsageError, match="ct_every is 1"):
        trained(small, ct_every=1, method="grpo")


@pytest.mark.nightly
def test_failed_trajectories_themselves_are_trained_on_with_perception_data_and_supervised_training_reads_it_too(
    small: Config, tmp_path: Path
) -> None:
    config = trained(small, method="ct", ct={"steps": 3, "form": "trajectories", "perception": 0.5})
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    kinds = json.loads(policy_row(lake, "policy-0000").metrics)["kinds"]
    assert kinds["failed_steps"] > 0 and kinds["perception"] > 0
    routes = {row["trajectory_id"]: row["route"] for row in lake.read("verdicts", where={"gate": "route"}).to_pylist()}
    read = lineage_of(lake, "policy-0000").trajectories
    assert {routes[name] for name in read} == {"sft", "ct"}
    pins, recipe = pins_of(lake), PolicyRecipe("x", "policy-initial", 0, pins_of(lake))
    failed = continual_material(trained(small, method="ct", ct={"form": "trajectories"}), lake, recipe)
    schedule = method_of(config.train).schedule(config.train, failed.samples, "muon")
    failed.write(tmp_path / "samples", schedule)
    steps = lake.read("steps", ["trajectory_id", "screenshot", "actions"]).to_pylist()
    bad = {(row["screenshot"], tuple(row["actions"])) for row in steps if routes[row["trajectory_id"]] == "ct"}
    made = read_samples(tmp_path / "samples")
    assert made and {(one.screenshots[-1], one.actions) for one in made} <= bad
    assert all(one.instruction for one in made)
    mixed = supervised(trained(small, perception=0.5), lake, recipe)
    mixed.write(tmp_path / "samples", method_of(small.train).schedule(small.train, mixed.samples, "muon"))
    assert {one.kind for one in read_samples(tmp_path / "samples")} & {"perception", "transition"}
    plain = supervised(trained(small), lake, PolicyRecipe("x", "policy-initial", 0, pins))
    assert "perception" not in plain.numbers and mixed.numbers["perception"] == kinds["perception"]
