"""Two processes or more on one object store: right in every order of their calls, and no bare error."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from learning.checkpoint import manifest
from learning.status_folder import StatusFolder
from schemas.failure import CheckpointError, UsageError
from storage import patience
from storage.blobs import Blobs
from storage.objects import ObjectStore, RemoteStore
from storage.schema_marker import make_marker
from tasks.exchange import importing
from tasks.promote.events import promotion_lock
from tasks.running import run_status
from tasks.shared import lease, weights
from tests.unit.interleaving import Turns, every_order, process_number

SWITCHES = 3
LEASE = "control/run"
SLEEPER = lease.LeaseOwner(machine="sleeper", process=os.getpid(), began=0.0, host="sleeper")
ASLEEP, AWAKE = (SLEEPER.model_copy(update={"attempt": one}).model_dump_json().encode() for one in "12")
TAKEN = lease.Claim.this(recipe="another").model_dump_json().encode()


def lake_of(store: ObjectStore) -> Any:
    """What of a lake these processes use: its blobs, and a table of policies without rows."""
    return SimpleNamespace(blobs=Blobs(store), uri=store.place, rows=lambda *_: [])


@pytest.mark.slow
def test_a_write_that_was_refused_is_made_again_where_the_owner_deleted_the_file_meanwhile() -> None:
    def process(name: bytes) -> Callable[[RemoteStore], bool]:
        def own(store: RemoteStore) -> bool:
            if ours := store.put_once("lock", name):
                store.delete("lock")
            return ours

        return own

    seen = set[tuple[Any, ...]]()
    for found, left in every_order(lambda _: [process(b"a"), process(b"b"), process(b"c")], 12):
        assert all(isinstance(one, bool) for one in found) and any(found), found
        assert not left
        seen.add(tuple(found))
    assert {(True, True, True), (True, False, True)} <= seen, "one after the other all get it; at once one does"


def test_who_puts_or_gets_has_what_is_there() -> None:
    def process(name: bytes) -> Callable[[RemoteStore], bytes]:
        return lambda store: store.put_or_get("address", name)

    def sweep(store: RemoteStore) -> None:
        store.delete("address")

    for (one, other, swept), left in every_order(lambda _: [process(b"a"), process(b"b"), sweep], 12):
        assert {one, other} <= {b"a", b"b"} and swept is None
        assert one == other or not left or left["address"] in (one, other)
    for (one, other), left in every_order(lambda _: [process(b"a"), process(b"b")], 12):
        assert one == other == left["address"]


@pytest.fixture
def critical(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs processes that take a lock in every order; who waits lets another one go on."""
    waiting: list[Turns] = []
    monkeypatch.setattr(lease, "time", SimpleNamespace(
        sleep=lambda seconds: waiting[0].wait(seconds), monotonic=time.monotonic
    ))  # fmt: skip

    def run(
        take: Callable[[Any], Any],
        processes: int,
        switches: int,
        before: dict[str, bytes] | None = None,
        lost: bool = False,
    ) -> list[tuple[list[Any], dict[str, bytes]]]:
        within: list[int] = []

        def process(number: int, turns: Turns) -> Callable[[RemoteStore], str]:
            def work(store: RemoteStore) -> str:
                with take(lake_of(store)):
                    within.append(number)
                    store.exists("work")
                    assert within == [number], "two hold it at once"
                    within.clear()
                return "held"

            return work

        def made(turns: Turns) -> list[Callable[[RemoteStore], object]]:
            waiting[:] = [turns]
            within.clear()
            return [process(number, turns) for number in range(processes)]

        return list(every_order(made, switches, before, lost))

    yield run


def released(left: dict[str, bytes]) -> bool:
    """Whether the newest file of the lease shows that it is free, and no older one is left."""
    return list(left.values())[-1:] == [b""] and len(left) == 1


def test_a_lease_is_one_process_s_at_a_time_and_a_refusal_names_why(critical: Callable[..., Any]) -> None:
    found = critical(lambda lake: lease.lease(lake, LEASE), 2, 4)
    for ended, left in found:
        assert all(one == "held" or isinstance(one, UsageError) for one in ended), ended
        assert "held" in ended and released(left), (ended, left)
    assert any(ended == ["held", "held"] for ended, _ in found)


@pytest.mark.slow
def test_processes_that_decide_at_once_do_so_one_after_the_other(critical: Callable[..., Any]) -> None:
    for ended, left in critical(promotion_lock, 2, SWITCHES) + critical(promotion_lock, 3, 2):
        assert set(ended) == {"held"} and released(left), (ended, left)


def test_a_lease_whose_owner_died_is_taken_over_by_one_process(critical: Callable[..., Any]) -> None:
    gone = lease.LeaseOwner(machine=lease._machine(), process=2**22 + 1, began=0.0, host="here")
    before = {f"{LEASE}/000000.json": gone.model_dump_json().encode()}
    for ended, left in critical(lambda lake: lease.lease(lake, LEASE, wait=True), 2, SWITCHES, before):
        assert ended == ["held", "held"] and released(left), left


@pytest.mark.slow
def test_a_deletion_made_again_after_a_lost_answer_removes_no_successor_s_file(
    critical: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST_S", 0.0)
    for wait in (False, True):
        for ended, left in critical(lambda lake, wait=wait: lease.lease(lake, LEASE, wait), 3, 2, None, True):
            assert all(one == "held" or (isinstance(one, UsageError) and not wait) for one in ended), ended
            assert "held" in ended and released(left)


@pytest.mark.parametrize("name", [f"{LEASE}/000000.json", f"{LEASE}/{1:015d}-{'f' * 32}.json"])
def test_an_owner_that_slept_beyond_the_silence_ends_and_leaves_its_successors_alone(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines, ended = ["sleeper", "successor"], list[str]()
    monkeypatch.setattr(lease, "_machine", lambda: machines[process_number() or 0])
    kill = SimpleNamespace(getpid=os.getpid, kill=lambda *_: ended.append(machines[process_number() or 0]))
    monkeypatch.setattr(lease, "os", kill)
    monkeypatch.setattr(RemoteStore, "age_s", lambda store, one: 0.0 if store.get(one) == AWAKE else 1000.0)

    def wake(store: RemoteStore) -> None:
        with suppress(SystemExit):
            lease._heartbeat(lake_of(store), name, AWAKE)
        store.put(name, b"")

    def succeed(store: RemoteStore) -> list[str]:
        taken = list[str]()
        for _ in range(2):  # the second takes the place of one that has ended, so nothing is left of that
            with lease.lease(lake_of(store), LEASE):
                own, owner = lease._newest(store, LEASE)
                assert owner is not None and owner.machine == "successor"
                taken.append(own)
                lease._heartbeat(lake_of(store), own, store.get(own))
                assert store.exists(own), "another process removed the owner's file"
        return taken

    seen = set[tuple[str, ...]]()
    for (_, taken), _ in every_order(lambda _: [wake, succeed], SWITCHES, {name: ASLEEP}):
        assert isinstance(taken, UsageError) or len({*taken, name}) == 3, taken
        assert "successor" not in ended
        seen.add((type(taken).__name__, *ended))
        ended.clear()
    assert {("list", "sleeper"), ("UsageError",)} <= seen, "it wakes too late, or in time"


def test_machines_meet_at_one_address_also_where_the_place_is_emptied_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def machine(address: str) -> Callable[[RemoteStore], str]:
        def lead(store: RemoteStore) -> str:
            board = StatusFolder("memory://unused")
            board._store = store
            return board.lead(address)

        return lead

    def empty(store: RemoteStore) -> None:
        for name in store.sizes():
            store.delete(name)

    for found, _ in every_order(lambda _: [machine("a:1"), machine("b:2")], 12):
        assert found in (["a:1", "a:1"], ["b:2", "b:2"])
    for (one, other, emptied), _ in every_order(lambda _: [machine("a:1"), machine("b:2"), empty], 12):
        assert {one, other} <= {"a:1", "b:2"} and emptied is None


def test_a_lake_that_two_processes_make_at_once_has_one_name() -> None:
    def make(store: RemoteStore) -> str:
        return make_marker(store, "memory://lake").lake_id

    for (one, other), left in every_order(lambda _: [make, make], 12):
        assert one == other == json.loads(left["flywheel.json"])["lake_id"]


@pytest.mark.parametrize("same", [True, False])
def test_an_import_has_a_number_of_its_own(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def process(name: str) -> Callable[[RemoteStore], int]:
        request = importing.Request.model_construct(path="x", demonstrations=False)
        return lambda store: importing.claim_import.fn(SimpleNamespace(lake=lake_of(store)), request, name)  # type: ignore

    monkeypatch.setattr(importing, "run_of", lambda config: config)
    for (one, other), left in every_order(lambda _: [process("a"), process("a" if same else "b")], 12):
        assert (one == other) == same and len(left) == 1 + (not same)


def test_a_name_of_a_policy_is_claimed_once() -> None:
    def process(number: int) -> Callable[[RemoteStore], str]:
        return lambda store: lease.claim(lake_of(store), "retrained", {"of": number})

    for found, left in every_order(lambda _: [process(0), process(1)], SWITCHES):
        assert sorted(found) == ["retrained-0000", "retrained-0001"] and len(left) == 2

    def sweep(store: RemoteStore) -> None:
        store.delete(f"{lease.FOLDER}/retrained-0000/0000.json")

    for (name, _), _ in every_order(
        lambda _: [process(0), sweep], 12, {f"{lease.FOLDER}/retrained-0000/0000.json": TAKEN}
    ):
        assert name in ("retrained-0000", "retrained-0001")


def checkpoint(step: int) -> tuple[str, bytes]:
    made = manifest.Manifest.model_construct(step=step, world=1, pieces=(), files={}, extra={})
    return f"{manifest.folder_of(step)}/{manifest.MANIFEST}", manifest._sealed(made)


def test_a_checkpoint_that_is_removed_while_it_is_read_is_named() -> None:
    before = dict(checkpoint(step) for step in (1, 2))

    def read(store: RemoteStore) -> object:
        return manifest.read_manifest(store, 1)

    def tidy(store: RemoteStore) -> None:
        manifest.tidy(store, 1)

    def aside(store: RemoteStore) -> None:
        manifest.set_aside(store, 1)

    for remove in (tidy, aside):
        seen = set[type]()
        for (found, removed), _ in every_order(lambda _, remove=remove: [read, remove], 12, before):
            assert isinstance(found, manifest.Manifest | CheckpointError), found
            assert removed is None
            seen.add(type(found))
        assert len(seen) == 2, "read before, and removed meanwhile"
    for (one, other), _ in every_order(lambda _: [tidy, aside], 12, before):
        assert one is None and other is None


def test_notes_and_runs_that_end_while_they_are_listed_are_left_out() -> None:
    owner = lease.Owner.this().model_dump_json().encode()

    def readers(store: RemoteStore) -> object:
        return weights._notes(lake_of(store))

    def runs(store: RemoteStore) -> object:
        return run_status._files(lake_of(store))

    def empty(store: RemoteStore) -> None:
        for name in store.sizes():
            store.delete(name)

    before = {f"{weights.FOLDER}/p1/{n}.json": owner for n in "ab"} | {
        f"{run_status.FOLDER}/{n}.json": b"" for n in "ab"
    }
    for look in (readers, runs):
        for (found, emptied), _ in every_order(lambda _, look=look: [look, empty], 12, before):
            assert isinstance(found, dict) and emptied is None


def test_the_orders_are_all_of_them() -> None:
    def steps(name: str, log: list[str]) -> Callable[[RemoteStore], None]:
        def process(store: RemoteStore) -> None:
            for _ in range(2):
                store.exists("x")
                log.append(name)

        return process

    def orders(switches: int) -> Sequence[str]:
        logs: list[list[str]] = []

        def made(_: Turns) -> list[Callable[[RemoteStore], object]]:
            logs.append([])
            return [steps("a", logs[-1]), steps("b", logs[-1])]

        for _ in every_order(made, switches):
            pass
        return sorted({"".join(one) for one in logs})

    assert orders(12) == ["aabb", "abab", "abba", "baab", "baba", "bbaa"]
