"""What is due is counted against what the last training read, and asked for once."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.config import Config
from schemas.config.operations import TriggersConfig
from storage.lake import Lake
from tasks import watch
from tasks.running.budget import pause, resume
from tasks.shared.reviews import Draft, submit
from tasks.watch import NONE, TRIES, answered, answering, due, last_trained, watch_lake
from tests.unit.apps.conftest import make_place


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Config, Lake, list[Any]]]:
    """A lake whose last policy, policy-0001, has not read iteration 2; and what was emitted."""
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    made, emitted = make_place(tmp_path), []

    def note(_: Lake, event: str, payload: dict[str, Any]) -> bool:
        emitted.append((event, payload["count"]))
        return True

    monkeypatch.setattr(watch, "emit", note)
    yield made.config, made.lake, emitted


def chosen(config: Config, **keys: Any) -> Config:
    return config.model_copy(update={"triggers": TriggersConfig(**keys)})


def failed(lake: Lake) -> list[str]:
    where = {"success": False, "policy": "policy", "iteration": 2}
    return sorted(lake.read("trajectories", ["trajectory_id"], where)["trajectory_id"].to_pylist())


@pytest.mark.slow
def test_decisions_are_counted_since_the_last_training_and_asked_for_once_and_again_when_as_many_came(
    place: tuple[Config, Lake, list[Any]],
) -> None:
    config, lake, emitted = place
    config = chosen(config, steps=0, decisions=2, success_drop=0)
    names = sorted(lake.read("trajectories", ["trajectory_id"], {"iteration": 2})["trajectory_id"].to_pylist())
    for number, name in enumerate(names[:4], start=1):
        submit(lake, Draft(name, 0, "ada", "reject"))
        watch_lake.fn(config)
        watch_lake.fn(config)
        assert [count for _, count in emitted] == [2, 4][: number // 2]
    assert {event for event, _ in emitted} == {"flywheel.decisions.enough"}
    assert last_trained(lake) is not None
    for name in names[4:6]:
        submit(lake, Draft(name, 0, "ada", "reject"))
    pause(lake, "we look", "ada")
    assert watch_lake.fn(config) == {} and len(emitted) == 2
    resume(lake)
    assert watch_lake.fn(config) and len(emitted) == 3


def test_what_is_due_for_two_reasons_is_asked_for_once_and_answered_by_whatever_is_trained_next(
    place: tuple[Config, Lake, list[Any]],
) -> None:
    config, lake, emitted = place
    config = chosen(config, steps=1, decisions=1, success_drop=0)
    submit(lake, Draft(failed(lake)[0], 0, "ada", "reject"))
    assert list(watch_lake.fn(config)) == ["flywheel.steps.enough", "flywheel.decisions.enough"]
    assert watch_lake.fn(config) == {} and [event for event, _ in emitted] == ["flywheel.steps.enough"]
    assert answered(config, "policy-0001") is None
    assert answered(config, "policy-0000") == answered(config, NONE) == "policy-0001"


def test_accepted_steps_that_the_last_training_did_not_read_are_counted_and_zero_switches_off(
    place: tuple[Config, Lake, list[Any]],
) -> None:
    config, lake, _ = place
    last = last_trained(lake)
    assert last is not None and last.policy_version == "policy-0001"
    new = due(chosen(config, steps=1, success_drop=0), lake, last)
    accepted = submit_all(lake)
    more = due(chosen(config, steps=1, success_drop=0), lake, last)
    before = new["flywheel.steps.enough"].count if new else 0
    assert more["flywheel.steps.enough"].count - before == accepted
    assert due(chosen(config, steps=10_000_000, decisions=0, success_drop=0), lake, last) == {}
    assert due(chosen(config, steps=0, decisions=0, success_drop=0), lake, last) == {}


def submit_all(lake: Lake) -> int:
    """Accepts two failures and returns how many steps they have."""
    rows = lake.read("trajectories", where={"trajectory_id": failed(lake)[:2]}).to_pylist()
    for row in rows:
        submit(lake, Draft(row["trajectory_id"], 0, "ada", "accept"))
    return sum(row["n_steps"] for row in rows)


@pytest.mark.slow
def test_what_a_retraining_that_came_to_nothing_was_for_is_asked_for_again_a_few_times(
    place: tuple[Config, Lake, list[Any]],
) -> None:
    config, lake, emitted = place
    config = chosen(config, steps=0, decisions=2, success_drop=0)
    names = sorted(lake.read("trajectories", ["trajectory_id"], {"iteration": 2})["trajectory_id"].to_pylist())
    with answering(config):
        pass  # one that nobody waits for
    for name in names[:2]:
        submit(lake, Draft(name, 0, "ada", "reject"))
    for tried in range(1, TRIES + 2):
        for _ in range(2):
            watch_lake.fn(config)
            assert len(emitted) == min(tried, TRIES)
        with pytest.raises(MemoryError), answering(config):
            watch_lake.fn(config)
            assert len(emitted) == min(tried, TRIES)  # it is at it
            raise MemoryError
    for name in names[2:4]:
        submit(lake, Draft(name, 0, "ada", "reject"))
    watch_lake.fn(config)
    assert [count for _, count in emitted] == [2] * TRIES + [4]


@pytest.mark.slow
def test_a_retraining_that_was_killed_outright_came_to_nothing(place: tuple[Config, Lake, list[Any]]) -> None:
    config, lake, emitted = place
    config = chosen(config, steps=0, decisions=1, success_drop=0)
    submit(lake, Draft(failed(lake)[0], 0, "ada", "reject"))
    watch_lake.fn(config)
    dying = "import os, sys; from schemas.config import Config; from tasks.watch import answering\n"
    dying += "with answering(Config.model_validate_json(sys.argv[1])): os._exit(9)"
    subprocess.run([sys.executable, "-c", dying, config.model_dump_json()], check=False)
    watch_lake.fn(config)
    assert len(emitted) == 2
