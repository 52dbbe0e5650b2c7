"""Work on a Ray cluster of two nodes: they share collection out, and one that dies loses no finished trajectory; what
is judged there is judged as on one machine."""

import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from flows.flywheel import collect
from schemas.config import Config
from schemas.config.curating import JudgeConfig
from schemas.config.operations import ClusterConfig
from schemas.config.sections import CollectConfig, LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.collect.collect import plan
from tasks.judge import judge_again
from tasks.prepare import INITIAL
from tasks.running.cluster import require_cluster
from tasks.running.run import Run

NODE = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}
WAIT_S = 240.0


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "120")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("PYTHONPATH", os.getcwd())
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=NODE)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.mark.slow
def test_a_machine_that_dies_while_a_cluster_collects_loses_no_finished_trajectory(small: Config, cluster: Any) -> None:
    node = cluster.add_node(**{key: value for key, value in NODE.items() if key != "include_dashboard"})
    config = small.model_copy(
        update={
            "cluster": ClusterConfig(kind="ray", address=cluster.address, parts=6),
            "collect": CollectConfig(trajectories_per_task=60, policy_share=0.25, relay_share=0.25, chunk=4),
        }
    )
    lake = Lake.open(config.lake)
    finished_before: set[str] = set()

    def kill_in_the_middle() -> None:
        until = time.monotonic() + WAIT_S
        while len(finished_before) < 20 and time.monotonic() < until:
            finished_before.update(ids(lake))
            time.sleep(0.1)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill_in_the_middle)
    killer.start()
    collect(config)
    killer.join()

    planned = {one.trajectory_id for one in plan(Run(config, lake, "run"), 0, INITIAL)}
    rows = lake.read("trajectories", ["trajectory_id", "n_steps"], {"iteration": 0}).to_pylist()
    steps = Counter(lake.read("steps", ["trajectory_id"], {"iteration": 0})["trajectory_id"].to_pylist())
    assert 20 <= len(finished_before) < len(planned)
    assert {row["trajectory_id"] for row in rows} == planned and len(rows) == len(planned)
    assert finished_before <= planned
    assert steps == {row["trajectory_id"]: row["n_steps"] for row in rows if row["n_steps"]}
    judged_alike(config, small)


def judged_alike(cluster: Config, alone: Config) -> None:
    """Judging as a data stage that machines share out: the same verdicts as one machine's on a copy of the lake."""
    copy = LakeConfig(uri=f"{alone.lake.uri}-copy", min_free_mb=10)
    shutil.copytree(alone.lake.uri, copy.uri)
    judge, two = JudgeConfig(kind="fake"), cluster.cluster.model_copy(update={"parts": 2})
    lakes = [Lake.open(alone.lake), Lake.open(copy)]
    reports = [
        judge_again(cluster.model_copy(update={"judge": judge, "cluster": two}), lakes[0], None),
        judge_again(alone.model_copy(update={"judge": judge, "lake": copy}), lakes[1], None),
    ]
    names = ("trajectory_id", "gate", "gate_version", "passed", "score", "reason", "route")
    found = [sorted(map(repr, lake.read("verdicts", list(names), {"gate": "judge"}).to_pylist())) for lake in lakes]
    assert found[0] == found[1] and len(found[0]) == reports[0].judged == reports[1].judged > 0


def ids(lake: Lake) -> list[str]:
    return lake.read("trajectories", ["trajectory_id"], {"iteration": 0})["trajectory_id"].to_pylist()


def test_a_cluster_without_a_server_of_prefect_that_it_reaches_is_refused(
    small: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    far = small.model_copy(update={"cluster": ClusterConfig(kind="ray", address="ray://head:10001")})
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(UsageError, match="PREFECT_API_URL"):
        require_cluster(far)
    assert "ray" in require_cluster(far)
    assert "one machine" in require_cluster(small)


def test_streamed_training_and_a_cluster_refuse_each_other(small: Config) -> None:
    fields = small.model_dump()
    fields["cluster"]["kind"], fields["train"]["stream"]["on"], fields["train"]["method"] = "ray", True, "grpo"
    with pytest.raises(UsageError, match="one machine"):
        Config.model_validate(fields)
