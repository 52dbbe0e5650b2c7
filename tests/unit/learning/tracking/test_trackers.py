"""Each tracker with its own package: what was sent is there, and a training that goes on goes on in the same run."""

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learning.tracking import TRACKERS, Point, Training
from tasks.train.recorded import Feed

CONFIG = {"name": "small", "train": {"steps": 4, "group": {"k": 2}}}
TRAINING = Training("0123456789ab", "policy-0001", "policy-0000", 1, "grpo", CONFIG)
STARTS = ((0, (1, 2, 3), False), (2, (3, 4), True))
"""Killed after three steps of which two were kept, then started again to its end."""
BLOCK = 32768
LATER = 0.5
"""Loss of the steps that the second start makes; the first one's is 1."""


def track(name: str, options: dict[str, Any]) -> None:
    """Both starts of one training."""
    own = TRACKERS.options([name], {name: options})[name]
    for resumed, steps, whole in STARTS:
        warnings: list[str] = []
        feed = Feed(name, lambda: TRACKERS.class_of(name)(own, TRAINING), resumed, warnings.append)
        for step in steps:
            feed.log([Point(step, {"loss": LATER if resumed else 1.0, "kl": 0.01 * step}, 1e9 + step)])
        feed.finish(whole, patience_s=240)
        assert warnings == []


def stored(path: Path) -> Iterator[bytes]:
    """The records of an offline run's file: LevelDB's log format behind a header of seven bytes."""
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            yield parts
            parts = b""


def kept(folder: Path, record: Any) -> list[list[Any]]:
    """The records of each offline run so far."""
    files = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    return [[record.FromString(data) for data in stored(path)] for path in files]


def ended(records: list[Any]) -> bool:
    """Whether an offline run's end is written."""
    return any(record.HasField("exit") for record in records)


def test_tensorboard_shows_the_steps_that_were_made_again_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    track("tensorboard", {"folder": str(tmp_path)})
    events = EventAccumulator(str(tmp_path / "0123456789ab" / "policy-0001"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == {"train/loss", "train/kl"}
    assert [(one.step, one.value) for one in events.Scalars("train/loss")] == [(1, 1.0), (2, 1.0), (3, 0.5), (4, 0.5)]
    assert [one.wall_time for one in events.Scalars("train/kl")] == [1e9 + step for step in (1, 2, 3, 4)]


@pytest.mark.slow
def test_weights_and_biases_keeps_an_offline_run_of_one_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from wandb.proto.wandb_internal_pb2 import Record

    track("wandb", {"mode": "offline", "folder": str(tmp_path)})
    deadline = time.monotonic() + 20
    while len(records := kept(tmp_path, Record)) < 2 or not all(map(ended, records)):
        assert time.monotonic() < deadline, "its own process has not written the end"
        time.sleep(0.1)
    rows, runs, ends = [], set(), []
    for record in (record for one in records for record in one):
        if record.WhichOneof("record_type") == "run":
            runs.add((record.run.run_id, record.run.project, record.run.display_name, record.run.run_group))
        if record.WhichOneof("record_type") == "exit":
            ends.append(record.exit.exit_code)
        if record.WhichOneof("record_type") == "history":
            items = {one.key or ".".join(one.nested_key): one.value_json for one in record.history.item}
            rows.append((int(items["step"]), float(items["loss"])))
    assert runs == {(TRAINING.id, "flywheel", "policy-0001", "0123456789ab")}
    assert sorted(rows) == [(1, 1.0), (2, 1.0), (3, 0.5), (3, 1.0), (4, 0.5)]
    assert sorted(ends) == [0, 1]


def test_mlflow_has_one_finished_run_with_every_step_in_its_database(tmp_path: Path) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'runs.db'}"
    track("mlflow", {"uri": uri, "experiment": "mine"})
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("mine")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("policy-0001", "FINISHED")
    assert run.data.params | {"train.steps": "4", "train.group.k": "2", "parent": "policy-0000"} == run.data.params
    history = client.get_metric_history(run.info.run_id, "loss")
    assert sorted((one.step, one.value) for one in history) == [(1, 1.0), (2, 1.0), (3, 0.5), (3, 1.0), (4, 0.5)]
