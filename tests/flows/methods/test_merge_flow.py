"""Policies of one trained start become one; policies of different starts do not."""

import json

import pytest

from flows.merge import merge
from flows.policies import retrain
from schemas.config import Config
from schemas.failure import CheckpointError, UsageError
from storage.lake import Lake
from tasks.shared.policies import policy_row
from tasks.shared.status import iterations
from tests.flows.conftest import Turned


def with_seed(config: Config, seed: int) -> Config:
    return config.model_copy(update={"seed": seed})


@pytest.mark.slow
def test_specialists_of_one_champion_are_merged_by_searched_weights_and_evaluated(turned: Turned) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    before = [row.policy for row in iterations(lake)]
    specialists = [retrain(with_seed(small, seed), None) for seed in (1, 2)]
    lake.upsert(
        "policies", [policy_row(lake, name).model_copy(update={"parent": "policy-0000"}) for name in specialists]
    )
    version = merge(small, specialists, None, 2)
    row = policy_row(lake, version)
    found = json.loads(row.metrics)
    assert (row.method, row.parent) == ("merge", "policy-0000")
    assert set(found["merged"]) == set(specialists)
    assert [one["weights"] for one in found["search"]] == [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    best = max(one["success"] for one in found["search"])
    assert found["merged"] in [
        dict(zip(specialists, one["weights"], strict=True)) for one in found["search"] if one["success"] == best
    ]
    assert row.status in ("champion", "held", "rejected")
    assert lake.count("evaluations", {"policy_version": version, "suite": "suite"}) == 6
    assert [row.policy for row in iterations(lake)] == before
    with pytest.raises(UsageError, match="not trained from data"):
        retrain(small, version)


@pytest.mark.slow
def test_policies_of_different_starts_are_refused_and_nothing_is_registered(turned: Turned) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    with pytest.raises(CheckpointError, match="one trained start"):
        merge(small, ["policy-0000", "policy-initial"])
    with pytest.raises(UsageError, match="two different"):
        merge(small, ["policy-0000", "champion"])
    assert lake.read("policies").num_rows == 2
