"""One run has a lake's iterations: a second one gets the name of the first, and one that is gone blocks nobody."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.lease import EXPIRY_S, ITERATIONS, LeaseOwner, Owner, iteration_lock, lease_owner, require_free
from tests.fixtures.sentences import Sentences

TURN = "from tasks.shared.lease import iteration_lock; from storage.lake import Lake; import os, sys; "
TURN += "from schemas.config.sections import LakeConfig; lake = Lake.open(LakeConfig(uri=sys.argv[1]))\n"
TURN += "try:\n  with iteration_lock(lake):\n    print('turning', os.getpid(), flush=True); sys.stdin.read()\n"
TURN += "except Exception as error:\n  print(error, flush=True)"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake")))


def turner(lake: Lake, first: str = "") -> subprocess.Popen[str]:
    """A process that holds the lease until its standard input ends."""
    words = [sys.executable, "-c", first + TURN, lake.uri]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def elsewhere(lake: Lake, number: int, silent_s: float = 0.0) -> None:
    """The file of an owner on another machine, whose last heartbeat was so long ago."""
    name = f"{ITERATIONS}/{number:06d}.json"
    other = LeaseOwner(machine="elsewhere", process=1, began=0.0, host="elsewhere")
    lake.blobs.store.put(name, other.model_dump_json().encode())
    path = lake.blobs.store.local_path(name)
    assert path is not None
    at = time.time() - silent_s
    os.utime(path, (at, at))


@pytest.mark.slow
def test_of_runs_that_begin_at_once_one_turns_and_the_others_are_refused(lake: Lake, sentence: Sentences) -> None:
    runs = [turner(lake) for _ in range(4)]
    try:
        lines = [first_line(one) for one in runs]
        assert sum(line.startswith("turning") for line in lines) == 1
        (turning_one,) = (one for one, line in zip(runs, lines, strict=True) if line.startswith("turning"))
        with sentence.raises(UsageError, turning_one.pid, hint="lake.uri"):
            require_free(lake)
    finally:
        for one in runs:
            one.communicate()
    require_free(lake)
    assert list(lake.blobs.store.sizes(ITERATIONS).values()) == [0], "the file of a released lease"


def test_after_a_kill_the_next_one_turns_at_once(lake: Lake) -> None:
    dead = turner(lake)
    assert first_line(dead).startswith("turning")
    dead.kill()
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is not even reaped yet
    with iteration_lock(lake):
        assert len(lake.blobs.store.sizes(ITERATIONS)) == 1
    dead.communicate()


def test_a_second_one_is_refused_and_the_first_goes_on(lake: Lake, sentence: Sentences) -> None:
    with iteration_lock(lake):
        with sentence.raises(UsageError, hint="lake.uri"), iteration_lock(lake):
            pytest.fail("two at once")
        assert len(lake.blobs.store.sizes(ITERATIONS)) == 1
    require_free(lake)


@pytest.mark.parametrize(("silent_s", "free"), [(0.0, False), (EXPIRY_S / 2, False), (EXPIRY_S + 10, True)])
def test_one_of_another_machine_counts_while_it_sends_heartbeats(
    lake: Lake, silent_s: float, free: bool, sentence: Sentences
) -> None:
    elsewhere(lake, 4, silent_s)
    assert (lease_owner(lake) is None) == free
    if free:
        with iteration_lock(lake):
            assert list(lake.blobs.store.sizes(ITERATIONS)) == [f"{ITERATIONS}/{5:015d}.json"]
    else:
        with (
            sentence.raises(UsageError, hint="lake.uri"),
            iteration_lock(lake),
        ):
            pytest.fail("two at once")


@pytest.mark.parametrize("name", ["000004.json", f"{1_700_000_000_000:015d}-{'f' * 32}.json"])
def test_a_file_of_an_earlier_release_counts_while_its_process_lives(lake: Lake, name: str) -> None:
    known = {"machine", "process", "began", "ticks", "host"}
    for process, free in ((os.getpid(), False), (2**22 + 1, True)):
        owner = Owner.this(process=process).model_copy(update={} if not free else {"ticks": 1})
        lake.blobs.store.put(f"{ITERATIONS}/{name}", owner.model_dump_json(include=known).encode())
        assert (lease_owner(lake) is None) == free
    with iteration_lock(lake):
        assert len(lake.blobs.store.sizes(ITERATIONS)) == 1


def test_an_owner_of_before_this_machine_s_restart_is_gone() -> None:
    own = Owner.this()
    boot, _, space = own.machine.partition("/")
    assert space, "no /proc here"
    before = own.model_copy(update={"machine": f"0{boot[1:]}-/{space}"})
    assert before.gone and not own.gone
    for elsewhere in ({"host": "elsewhere"}, {"installation": "another"}):
        assert not before.model_copy(update=elsewhere).gone


@pytest.mark.parametrize("deleted", [True, False])
def test_a_run_whose_lease_another_took_reports_it_and_ends(lake: Lake, deleted: bool, sentence: Sentences) -> None:
    store, woken = lake.blobs.store, turner(lake, "import tasks.shared.lease; tasks.shared.lease.HEARTBEAT_S = 0.05; ")
    assert first_line(woken).startswith("turning")
    (name,) = (one for one in store.sizes(ITERATIONS) if one.endswith(".json"))
    elsewhere(lake, 10**14)
    if deleted:
        store.delete(name)
    woken.wait(timeout=60)
    _, text = woken.communicate()
    assert woken.returncode == -signal.SIGTERM
    sentence(text)


def test_a_run_sends_heartbeats(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.shared.lease.HEARTBEAT_S", 0.05)
    store = lake.blobs.store
    with iteration_lock(lake):
        (name,) = store.sizes(ITERATIONS)
        path = store.local_path(name)
        assert path is not None
        began = path.stat().st_mtime_ns
        for _ in range(100):
            time.sleep(0.05)
            if path.stat().st_mtime_ns > began:
                return
    pytest.fail("no heartbeat")


def test_a_step_of_the_clock_makes_no_living_owner_a_dead_one(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, real = Owner.this(), psutil.Process.create_time
    earlier = Owner(machine=owner.machine, process=owner.process, began=owner.began)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: real(self) + 1.0)
    assert not owner.gone and not earlier.gone
    assert owner.is_of(Owner.this()) and earlier.is_of(owner)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: real(self) + 3600.0)
    assert not owner.gone and earlier.gone


def test_another_process_of_the_same_id_is_not_the_owner() -> None:
    owner = Owner.this()
    assert owner.ticks is not None
    before = owner.model_copy(update={"ticks": owner.ticks - 1})
    assert before.gone and not before.is_of(owner)
