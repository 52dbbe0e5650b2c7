"""What is trained on while it is rolled out has passed the gates first."""

import random
from pathlib import Path

from schemas.config import config_of
from storage.catalog import ask
from storage.lake import Lake
from tasks.collect.collect import gated
from tasks.running.run import Run
from tests.fixtures.planted.faults import Script, form, hack_nothing


def grouped(script: Script, name: str) -> Script:
    row = script.trajectory.model_copy(update={"trajectory_id": name, "group_id": "g", "policy": "policy"})
    return Script(row, script.shots, script.end)


def test_what_the_gates_hold_back_is_in_no_batch_of_a_trainer_that_does_not_wait(tmp_path: Path) -> None:
    suite = {"tasks": ["click-target"], "held_out": []}
    config = config_of({"lake": {"uri": str(tmp_path / "lake")}, "environments": {"fake": {}}, "suite": suite})
    lake = Lake.open(config.lake)
    hack = grouped(hack_nothing(form(1, 0), random.Random(0)), "hack")
    gated(Run(config, lake, "run"), 0)([one.record() for one in (grouped(form(0, 0), "clean"), hack)])
    routes = {row["trajectory_id"]: row["route"] for row in ask(lake, "decisions", iteration=0).to_pylist()}
    assert routes == {"clean": "sft", "hack": "quarantine"}
    asked = ask(lake, "training_groups", iteration=0, groups=["g"])
    assert set(asked["trajectory_id"].to_pylist()) == {"clean"} and lake.count("trajectories") == 2
