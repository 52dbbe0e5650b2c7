"""A training as a Ray job on a real cluster of two nodes of this machine: the template of the documents, submitted."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.failure import UsageError
from tasks.launching.node import free_port
from tasks.launching.on_ray import machines_of
from tests.system.parts.trainings import on, same, template, trained
from tests.unit.learning.samples import job, parent

NODE = {"num_cpus": 2, "object_store_memory": 100 << 20}


def node(name: str, gpus: int, alive: bool = True) -> dict[str, object]:
    return {"NodeID": name, "Alive": alive, "Resources": {"CPU": 4.0, **({"GPU": float(gpus)} if gpus else {})}}


def test_the_machines_with_the_most_gpus_are_taken_and_dead_ones_are_not() -> None:
    nodes = [node("head", 0), node("a", 8), node("dead", 8, alive=False), node("b", 4)]
    assert [one["NodeID"] for one in machines_of(nodes, 1, 2)] == ["a", "b"]
    assert [one["NodeID"] for one in machines_of(nodes, 1, 9)] == ["a", "b", "head"]
    with pytest.raises(UsageError, match="has 3 machines, and the training needs 4"):
        machines_of(nodes, 4, 4)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A cluster of two nodes; where jobs are submitted to."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "120")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    from ray.cluster_utils import Cluster

    port = free_port()
    head: dict[str, Any] = {**NODE, "include_dashboard": True, "dashboard_port": port}
    made = Cluster(initialize_head=True, head_node_args=head)
    made.add_node(**NODE)
    yield f"http://127.0.0.1:{port}"
    made.shutdown()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_training_submitted_to_ray_runs_on_both_of_its_nodes(jobs: str, tmp_path: Path) -> None:
    parent(tmp_path)
    plan = job(tmp_path, count=160, steps=40, batch=4, checkpoint_every=10)
    alone = on(plan, "alone", processes=2)
    trained(alone)
    machines = template("ray job submit", **{"http://ray-head.internal:8265": jobs})
    answer, _ = trained(on(plan, "submitted", launch="command", processes=1, machines=machines, hung_s=60))
    assert (answer.machines, answer.processes, answer.restarts) == (2, 2, 0)
    assert same(alone, on(plan, "submitted"))
