"""One run turns a lake: a second is told who is at it, and one that is gone is in nobody's way."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.iteration_lock import FOLDER, iteration_lock, require_free
from tasks.shared.lock import EXPIRY_S, LockOwner, _this

TURN = "from tasks.iteration_lock import iteration_lock; from storage.lake import Lake; import os, sys; "
TURN += "from schemas.config.sections import LakeConfig; lake = Lake.open(LakeConfig(uri=sys.argv[1]))\n"
TURN += "try:\n  with iteration_lock(lake):\n    print('turning', os.getpid(), flush=True); sys.stdin.read()\n"
TURN += "except Exception as error:\n  print(error, flush=True)"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake")))


def turner(lake: Lake, first: str = "") -> subprocess.Popen[str]:
    """A process that turns the lake until its standard input ends."""
    words = [sys.executable, "-c", first + TURN, lake.uri]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_runs_that_begin_at_once_one_turns_and_the_others_are_refused(lake: Lake) -> None:
    runs = [turner(lake) for _ in range(4)]
    try:
        said = [first_line(one) for one in runs]
        assert sum(line.startswith("turning") for line in said) == 1
        (turning_one,) = (one for one, line in zip(runs, said, strict=True) if line.startswith("turning"))
        with pytest.raises(UsageError, match=rf"process {turning_one.pid} of .*same command then goes on"):
            require_free(lake)
    finally:
        for one in runs:
            one.communicate()
    require_free(lake)
    assert not lake.blobs.store.sizes(FOLDER)


def test_after_a_kill_the_next_one_turns_at_once(lake: Lake) -> None:
    dead = turner(lake)
    assert first_line(dead).startswith("turning")
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not even reaped yet
    with iteration_lock(lake):
        assert len(lake.blobs.store.sizes(FOLDER)) == 1
    dead.communicate()


def test_a_second_one_is_refused_and_the_first_goes_on(lake: Lake) -> None:
    with iteration_lock(lake):
        with pytest.raises(UsageError, match="is in use by process"), iteration_lock(lake):
            pytest.fail("two at once")
        assert len(lake.blobs.store.sizes(FOLDER)) == 1
    require_free(lake)


@pytest.mark.parametrize(("silent_s", "free"), [(0.0, False), (EXPIRY_S / 2, False), (EXPIRY_S + 10, True)])
def test_one_of_another_machine_counts_while_it_gives_signs_of_life(lake: Lake, silent_s: float, free: bool) -> None:
    other = LockOwner(machine="elsewhere", process=1, began=0.0, host="elsewhere", heard=time.time() - silent_s)
    lake.blobs.store.put(f"{FOLDER}/000004.json", other.model_dump_json().encode())
    if free:
        with iteration_lock(lake):
            (name,) = lake.blobs.store.sizes(FOLDER)
            assert int(name.removeprefix(f"{FOLDER}/").partition("-")[0]) / 1000 == pytest.approx(time.time(), abs=60)
    else:
        with (
            pytest.raises(UsageError, match=r"process 1 of elsewhere.*counts until \d\d:\d\d:\d\d"),
            iteration_lock(lake),
        ):
            pytest.fail("two at once")


def test_what_this_machine_turned_before_it_was_started_anew_is_over() -> None:
    own = _this()
    boot, _, space = own.machine.partition("/")
    assert space, "no /proc here"
    before = own.model_copy(update={"machine": f"0{boot[1:]}-/{space}"})
    assert before.over and not own.over
    for elsewhere in ({"host": "elsewhere"}, {"installation": "another"}):
        assert not before.model_copy(update=elsewhere).over


@pytest.mark.parametrize("deleted", [True, False])
def test_a_run_whose_turn_another_took_says_so_and_ends(lake: Lake, deleted: bool) -> None:
    store, woken = lake.blobs.store, turner(lake, "import tasks.shared.lock; tasks.shared.lock.HEARTBEAT_S = 0.05; ")
    assert first_line(woken).startswith("turning")
    (name,) = (one for one in store.sizes(FOLDER) if one.endswith(".json"))
    for beat in range(100):
        other = LockOwner(machine="elsewhere", process=1, began=0.0, host="elsewhere", heard=time.time() + beat)
        store.put(f"{FOLDER}/{10**14:015d}-{0:032x}.json", other.model_dump_json().encode())
        if deleted and not beat:
            store.delete(name)
        time.sleep(0.1)
        if woken.poll() is not None:
            break
    _, said = woken.communicate()
    assert woken.returncode == -signal.SIGTERM and "Another run took over the lake" in said


def test_one_that_is_about_to_be_refused_ends_nobody(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.shared.lock.HEARTBEAT_S", 0.05)
    with iteration_lock(lake):
        other = LockOwner(machine="elsewhere", process=1, began=0.0, host="elsewhere", heard=time.time(), asks=True)
        lake.blobs.store.put(f"{FOLDER}/{10**14:015d}-{0:032x}.json", other.model_dump_json().encode())
        time.sleep(0.5)


def test_a_run_gives_signs_of_life(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.shared.lock.HEARTBEAT_S", 0.05)
    store = lake.blobs.store
    with iteration_lock(lake):
        (name,) = store.sizes(FOLDER)
        began = LockOwner.model_validate_json(store.get(name)).heard
        for _ in range(100):
            time.sleep(0.05)
            if LockOwner.model_validate_json(store.get(name)).heard > began:
                return
    pytest.fail("no sign of life")
