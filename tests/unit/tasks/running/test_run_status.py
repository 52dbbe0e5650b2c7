"""What a run tells of its present moment."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from environments.leased import Leased, list_lease, unlist_lease
from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.running import run_status
from tasks.running.console import bar
from tasks.running.run_status import (
    CURRENT,
    FOLDER,
    GONE_S,
    POINTS,
    CurrentStatus,
    RunStatus,
    file_of,
    published,
    require_idle,
    run_statuses,
)

WORK = "from tasks.running.run_status import published; from storage.lake import Lake; import sys; "
WORK += "from schemas.config.sections import LakeConfig; lake = Lake.open(LakeConfig(uri=sys.argv[1]))\n"
WORK += "with published(lake, 'one', 'retrain'):\n  print('at it', flush=True); sys.stdin.read()"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake"), min_free_mb=1))


def test_a_bar_tells_how_far_it_has_come_where_nobody_sees_it() -> None:
    CURRENT.enter("run", 3, "collect")
    with bar() as progress:
        shown = progress.add_task("collect", total=8, message="")
        progress.advance(shown)
        progress.update(shown, completed=4, message="half")
    at = CURRENT.read()
    assert (at.iteration, at.stage, at.label, at.done, at.total, at.message) == (3, "collect", "collect", 4, 8, "half")
    CURRENT.leave()
    assert (CURRENT.read().stage, CURRENT.read().total) == ("", None)


def test_a_status_without_leases_measures_none_of_them() -> None:
    def shown(number: int) -> Leased:
        raise AssertionError(number)

    number = list_lease(shown)
    try:
        assert CURRENT.read(leases=False).sandboxes == ()
        with pytest.raises(AssertionError):
            CURRENT.read()
    finally:
        unlist_lease(number)


def test_a_curve_stays_short_and_keeps_its_last_point() -> None:
    moment = CurrentStatus()
    for step in range(10 * POINTS + 1):
        moment.trained(step, 10 * POINTS, {"loss": 1.0})
    curve = moment.read().curve
    assert len(curve) <= POINTS + 1 and curve[0][0] == 0 and curve[-1][0] >= 9 * POINTS


def test_what_is_left_follows_from_the_pace_so_far() -> None:
    assert RunStatus(since=100.0, heard=110.0, done=5, total=20).left_s == pytest.approx(30.0)
    assert RunStatus(since=100.0, heard=110.0, done=0, total=20).left_s is None
    assert RunStatus(since=100.0, heard=110.0, done=5).left_s is None


def test_sandboxes_are_listed_while_they_are_leased() -> None:
    leased = Leased(environment="fake", task_id="fake/two-steps", seed=7, since=1.0)
    number = list_lease(lambda number: leased.model_copy(update={"lease": number}))
    assert [(one.lease, one.task_id, one.seed) for one in CURRENT.read().sandboxes] == [(number, "fake/two-steps", 7)]
    unlist_lease(number)
    assert CURRENT.read().sandboxes == ()


def test_a_sandbox_is_never_older_than_the_moment_that_lists_it() -> None:
    number = list_lease(lambda _: Leased(environment="fake", task_id="fake/two-steps", seed=7, since=time.time()))
    moment = CURRENT.read()
    unlist_lease(number)
    assert moment.heard >= moment.sandboxes[0].since


def test_the_lake_holds_the_moment_while_a_run_lives_and_not_after(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_status, "EVERY_S", 0.05)
    CURRENT.enter("run", 1, "train")
    with published(lake, "one", "retrain"):
        until = time.monotonic() + 10
        while not run_statuses(lake) and time.monotonic() < until:
            time.sleep(0.02)
        (found,) = run_statuses(lake)
        assert found.stage == "train" and (found.run_id, found.flow) == ("one", "retrain")
    assert not run_statuses(lake)
    CURRENT.leave()


def test_what_killed_runs_left_is_taken_away_and_other_runs_stay(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_status, "EVERY_S", 0.02)
    for name, ago in (("killed", GONE_S + 60), ("beside", 1.0)):
        lake.blobs.store.put(file_of(name), RunStatus(heard=time.time() - ago, run_id=name).model_dump_json().encode())
    with published(lake, "one", "retrain"):
        until = time.monotonic() + 10
        while lake.blobs.store.exists(file_of("killed")) and time.monotonic() < until:
            time.sleep(0.02)
        assert {one.run_id for one in run_statuses(lake)} == {"one", "beside"}
        assert not lake.blobs.store.exists(file_of("killed"))


def test_sandboxes_that_parts_lease_on_other_machines_are_their_runs(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_status, "EVERY_S", 0.02)
    there = Leased(host="there", process=7, lease=1, environment="fake", task_id="fake/one", seed=1, since=time.time())
    far = RunStatus(host="there", process=7, heard=time.time(), run_id="one", part=0, sandboxes=(there,))
    lake.blobs.store.put(file_of("one-0"), far.model_dump_json().encode())
    own = far.model_copy(update={"run_id": "two", "part": None, "sandboxes": (there.model_copy(update={"seed": 2}),)})
    for name in ("two", "two-0"):  # a store may list a run before its parts
        one = own if name == "two" else far.model_copy(update={"run_id": "two"})
        lake.blobs.store.put(file_of(name), one.model_dump_json().encode())
    files = run_status._files
    for order in (sorted, lambda names: sorted(names, reverse=True)):
        with monkeypatch.context() as listing:
            listing.setattr(
                run_status, "_files", lambda lake, by=order: {name: files(lake)[name] for name in by(files(lake))}
            )
            (two,) = [one for one in run_statuses(lake) if one.run_id == "two"]
        assert [one.seed for one in two.sandboxes] == [2, 1]
    for name in ("two", "two-0"):
        lake.blobs.store.delete(file_of(name))
    with published(lake, "one", "collect"), published(lake, "one", "collect", part=1):
        until = time.monotonic() + 10
        while not lake.blobs.store.exists(file_of("one-1")) and time.monotonic() < until:
            time.sleep(0.02)
        (found,) = run_statuses(lake)
        assert found.part is None
        assert [(one.host, one.process) for one in found.sandboxes] == [("there", 7)]
    assert not lake.blobs.store.exists(file_of("one-1"))


def test_a_store_that_cannot_be_written_costs_the_run_nothing(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_status, "EVERY_S", 0.02)
    monkeypatch.setattr(type(lake.blobs.store), "put", lambda *_: (_ for _ in ()).throw(OSError("out of reach")))
    with published(lake, "one", "retrain"):
        time.sleep(0.2)
    assert not run_statuses(lake)


def test_many_use_a_lake_at_once_and_leave_nothing_behind(lake: Lake) -> None:
    with (
        published(lake, "one", "merge"),
        published(lake, "two", "merge"),
        pytest.raises(UsageError, match=r"\(merge\)"),
    ):
        require_idle(lake)
    require_idle(lake)
    assert not lake.blobs.store.sizes(FOLDER)


def test_another_process_is_named_and_blocks_nothing_after_a_kill(lake: Lake) -> None:
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", WORK, lake.uri], stdin=pipe, stdout=pipe, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "at it\n"
        with pytest.raises(UsageError, match=rf"Process {other.pid} of .* \(retrain\)"):
            require_idle(lake)
    finally:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    require_idle(lake)
    assert not lake.blobs.store.sizes(FOLDER)
    other.communicate()
