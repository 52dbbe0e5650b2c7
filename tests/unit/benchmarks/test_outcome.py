"""What the chaos benchmark compares: it sees a row that is lost, doubled or other, and not the time."""

import json
import math
from datetime import timedelta
from pathlib import Path
from typing import Any

from benchmarks.chaos.outcome import accepted, differences, half_written, most_apart, outcome
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tests.unit.storage.conftest import DEFAULTS, NOON

TABLES = ("trajectories", "steps", "screenshots", "verdicts", "policies", "stages")


def filled(folder: Path, **changes: dict[str, Any]) -> Lake:
    """A lake of a row each, with some columns changed."""
    lake = Lake.open(LakeConfig(uri=str(folder)))
    lake.blobs.store.put("x/manifest.json", json.dumps({"files": {"model.safetensors": "0" * 64}}).encode())
    for name in TABLES:
        lake.append(name, [DEFAULTS[name] | changes.get(name, {})])
    return lake


def test_two_lakes_that_differ_in_times_and_runs_alone_agree(tmp_path: Path) -> None:
    later = NOON + timedelta(hours=1)
    other = filled(
        tmp_path / "other",
        trajectories={"run_id": "another", "wall_s": 9.0, "started_at": later},
        steps={"think_ms": 7.0},
        verdicts={"created_at": later},
        policies={"data_versions": '{"steps": 7}', "metrics": '{"seconds": 3.0}', "config": '{"lake": {"uri": "b"}}'},
        stages={"wall_s": 4.0, "result": '{"say": "1 s", "loading_s": 2}'},
    )
    assert differences(outcome(filled(tmp_path / "one")), outcome(other)) == {}


def test_a_lost_a_doubled_and_another_row_are_named_with_their_table(tmp_path: Path) -> None:
    one = filled(tmp_path / "one")
    other = filled(tmp_path / "other", stages={"result": '{"trajectories": 2}'})
    other.append("steps", [DEFAULTS["steps"] | {"step": 1}])
    other.delete("verdicts", "true")
    found = differences(outcome(one), outcome(other))
    assert sorted(found) == ["stages", "steps", "verdicts"]
    assert found["steps"].startswith("0 missing, 1 too many") and found["verdicts"].startswith("1 missing, 0 too many")
    assert accepted(one) == {"t0": 1} and not accepted(other)


def test_log_probabilities_are_compared_by_themselves(tmp_path: Path) -> None:
    one = filled(tmp_path / "one", steps={"logprobs": [-1.0, -8.25]})
    rounded = filled(tmp_path / "rounded", steps={"logprobs": [-1.0, -8.5]})
    longer = filled(tmp_path / "longer", steps={"logprobs": [-1.0, -8.25, -2.0]})
    assert differences(outcome(one), outcome(rounded)) == {}
    assert [most_apart(one, other) for other in (one, rounded, longer)] == [0.0, 0.25, math.inf]


def test_other_weights_are_seen(tmp_path: Path) -> None:
    one, other = filled(tmp_path / "one"), filled(tmp_path / "other")
    other.blobs.store.put("x/manifest.json", json.dumps({"files": {"model.safetensors": "1" * 64}}).encode())
    assert list(differences(outcome(one), outcome(other))) == ["weights"]


def test_a_policy_of_a_version_without_all_steps_is_counted(tmp_path: Path) -> None:
    lake = filled(tmp_path / "lake")
    lake.append(
        "policies", [DEFAULTS["policies"] | {"policy_version": "p2", "data_versions": json.dumps(lake.versions())}]
    )
    assert half_written(lake) == 0
    lake.delete("steps", "true")
    lake.append(
        "policies", [DEFAULTS["policies"] | {"policy_version": "p3", "data_versions": json.dumps(lake.versions())}]
    )
    assert half_written(lake) == 1
