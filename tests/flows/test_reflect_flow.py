"""Going back to failures in the wheel: what is verified is in the next training, what is not is nowhere."""

import json
from pathlib import Path

import pytest

from flows.flywheel import collect, flywheel
from learning.algorithms.method import method_of
from learning.data.sample import read_samples
from schemas.config import Config, config_of
from schemas.failure import UsageError
from storage.catalog import ask
from storage.lake import Lake
from tasks.reflect import attempts
from tasks.reflect.reflect import reflect_on_failures
from tasks.shared.material import PolicyRecipe
from tasks.train.supervised import supervised
from tasks.train.train import pins_of
from tests.flows.test_flywheel_flow import keys_are_unique


def reflecting(config: Config, **reflect: object) -> Config:
    fields = config.model_dump()
    fields["suite"]["tasks"] = ("click-of-three", "enter-text")
    fields["collect"]["trajectories_per_task"] = 12
    return config_of(fields | {"reflect": {"on": True, "trajectories": 12, **reflect}})


def numbers(lake: Lake) -> dict[str, int]:
    return json.loads(lake.read("stages", where={"stage": "reflect", "iteration": 0}).to_pylist()[0]["result"])


@pytest.mark.slow
def test_a_failure_gets_a_verified_correction_which_the_next_training_has_with_loss_on_nothing_that_was_replayed(
    small: Config, tmp_path: Path
) -> None:
    config = reflecting(small)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    done = numbers(lake)
    assert done["corrected"] > 0 and done["steps"] <= config.reflect.steps and keys_are_unique(lake)
    trajectories = {one["trajectory_id"]: one for one in lake.read("trajectories").to_pylist()}
    steps = {(one["trajectory_id"], one["step"]): one for one in lake.read("steps").to_pylist()}
    tries = [one for one in trajectories.values() if one["continues"]]
    assert {one["policy"] for one in tries} == {"correction"} and not all(one["success"] for one in tries)
    assert all(one["seed"] < 1_000_000 and one["split"] == "train" for one in tries)
    recipe, method = PolicyRecipe("x", "policy-initial", 0, pins_of(lake)), method_of(config.train)
    weights = ask(lake, "training_weights", recipe.pins, **asked(config)).to_pylist()
    taught = [(one["trajectory_id"], one["step"]) for one in weights if one["weight"] and not one["grounding"]]
    ours = [(name, step) for name, step in taught if trajectories[name]["continues"]]
    assert ours and all(trajectories[name]["success"] and step >= trajectories[name]["replayed"] for name, step in ours)
    found = supervised(config, lake, recipe)
    found.write(tmp_path / "samples", method.schedule(config.train, 10_000, "muon"))
    targets = {(one.screenshots[-1], one.actions) for one in read_samples(tmp_path / "samples") if one.actions}
    for note in lake.read("annotations", where={"kind": "correction"}).to_pylist():
        failed = steps[note["trajectory_id"], note["step"]]
        assert (failed["screenshot"], tuple(failed["actions"])) not in targets
    pairs = [one for one in lake.read("pairs").to_pylist() if one["kind"] == "correction"]
    assert pairs and all(one["verified"] and trajectories[one["trajectory_id"]]["success"] for one in pairs)
    listed = {one["pair_id"] for one in ask(lake, "training_pairs", recipe.pins, corrections="all").to_pylist()}
    assert {one["pair_id"] for one in pairs} <= listed
    for pair in pairs:
        sides = (steps[pair[key], pair["step"]] for key in ("trajectory_id", "rejected_trajectory_id"))
        chosen, rejected = sides
        assert chosen["screenshot"] == rejected["screenshot"] and chosen["actions"] != rejected["actions"]


def asked(config: Config) -> dict[str, object]:
    fields = {
        "balance": 1.0,
        "floor": 0.15,
        "grounding_share": 0.15,
        "practice_share": 0.1,
        "measured": "p",
        "prefixes": "people",
        "corrections": "all",
    }
    return {**fields, "history_images": config.policy.history_images, "practice": []}


@pytest.mark.slow
def test_a_stage_that_was_cut_short_goes_on_and_doubles_nothing(
    small: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reflecting(small, proposers=["explorer"], trajectories=6)
    collect(config)
    reflect_on_failures(config, 0)
    lake = Lake.open(config.lake)
    tables = ("trajectories", "steps", "annotations", "pairs", "reflections")
    whole = {table: lake.count(table) for table in tables}
    before = numbers(lake)
    lake.delete("stages", "iteration = 0 AND stage = 'reflect'")
    for table in ("annotations", "pairs"):
        lake.delete(table, "kind IN ('correction', 'reflection', 'post_reflection')")
    names = sorted(lake.read("trajectories", ["trajectory_id"], {"policy": "correction"})["trajectory_id"].to_pylist())
    lost = names[::2]
    listed = ", ".join(f"'{name}'" for name in lost)
    lake.delete("trajectories", f"trajectory_id IN ({listed})")
    rounds = attempts.roll_out_all
    again: list[str] = []

    def noted(config: Config, planned, *rest, **more):  # type: ignore[no-untyped-def]
        again.extend(one.trajectory_id for one in planned)
        return rounds(config, planned, *rest, **more)

    monkeypatch.setattr(attempts, "roll_out_all", noted)
    reflect_on_failures(config, 0)
    assert {table: lake.count(table) for table in tables} == whole and keys_are_unique(lake)
    assert {**numbers(lake), "orchestration_s": 0} == {**before, "orchestration_s": 0}
    assert sorted(again) == lost


@pytest.mark.slow
def test_a_sandbox_that_does_not_repeat_itself_is_given_up_with_the_reason(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = reflecting(small)
    monkeypatch.setattr(attempts, "screens_of", lambda steps, state: ("f" * 64,) * (state + 1))
    collect(config)
    reflect_on_failures(config, 0)
    lake = Lake.open(config.lake)
    done = numbers(lake)
    assert done["corrected"] == 0 and done["gave_up"] == {"the sandbox did not repeat it": done["failed"]}
    assert lake.count("annotations", {"kind": "correction"}) == 0
    routes = lake.read("verdicts", where={"gate": "route"}).to_pylist()
    tries = set(lake.read("trajectories", where={"policy": "correction"})["trajectory_id"].to_pylist())
    assert tries and {one["route"] for one in routes if one["trajectory_id"] in tries} == {"none"}


def test_it_is_refused_for_a_method_that_learns_from_no_correction(small: Config) -> None:
    fields = small.model_dump()
    fields["train"] |= {"method": "grpo"}
    with pytest.raises(UsageError, match=r"reflect\.on"):
        config_of(fields | {"reflect": {"on": True}})
