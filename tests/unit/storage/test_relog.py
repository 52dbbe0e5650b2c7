"""After a trajectory is forgotten every version of every table reads, for whatever reads Delta, without it."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from schemas.config.sections import LakeConfig
from schemas.table import utc_now
from storage import forgetting
from storage.lake import Lake
from storage.objects import LocalStore
from storage.upgrade import upgrade
from tests.tiers import NIGHTLY

SECRET = "0secret"
"""The least of the names, so it is a bound of files that hold it."""


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Files of several trajectories, merged ones, checkpoints of the log, and one file that was swept."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    lake.append("verdicts", [verdict(SECRET, 0)])
    lake.upsert("verdicts", [verdict("a", 0)])
    checkpoint(lake)
    for number in range(9):
        lake.append("verdicts", [verdict(f"b{number}", 1), verdict(f"c{number}", 2)])
    lake.append("verdicts", [verdict("d", 1), verdict(SECRET, 1)])
    checkpoint(lake)
    assert lake.compact("verdicts")
    lake.append("verdicts", [verdict("e", 1)])
    checkpoint(lake)
    return lake


def verdict(name: str, iteration: int) -> dict[str, Any]:
    return {
        "trajectory_id": name, "gate": "route", "gate_version": str(iteration), "iteration": iteration,
        "passed": True, "score": None, "error_step": None, "reason": "x", "route": "sft", "created_at": utc_now(),
    }  # fmt: skip


def table_of(lake: Lake) -> str:
    return f"{lake.uri}/tables/verdicts"


def checkpoint(lake: Lake) -> None:
    DeltaTable(table_of(lake)).create_checkpoint()


def _duckdb(uri: str, version: int) -> list[str]:
    there: Any = DeltaTable(uri, version).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("there", there)
        return [name for (name,) in connection.sql("SELECT trajectory_id FROM there").fetchall()]


READERS: dict[str, Callable[[str, int], list[str]]] = {
    "polars": lambda uri, version: pl.scan_delta(uri, version=version).collect()["trajectory_id"].to_list(),
    "delta": lambda uri, version: DeltaTable(uri, version).to_pyarrow_table()["trajectory_id"].to_pylist(),
    "dataset": lambda uri, version: pa.table(
        DeltaTable(uri, version).to_pyarrow_dataset().scanner(columns=["trajectory_id"]).to_table()
    )["trajectory_id"].to_pylist(),
    "duckdb": _duckdb,
}


def versions_of(lake: Lake, readers: Any = tuple(READERS)) -> list[list[str]]:
    """What every version holds, as all readers say."""
    found = []
    for version in range(DeltaTable(table_of(lake)).version() + 1):
        said = [sorted(READERS[name](table_of(lake), version)) for name in readers]
        said.append(sorted(lake.read("verdicts", version=version)["trajectory_id"].to_pylist()))
        assert all(one == said[0] for one in said), version
        found.append(said[0])
    return found


def without(names: list[list[str]]) -> list[list[str]]:
    return [[name for name in version if name != SECRET] for version in names]


def forget(lake: Lake) -> None:
    forgetting.erase(lake, forgetting.Doomed([SECRET], []))


@pytest.mark.slow
def test_every_version_reads_without_it_for_every_reader_of_delta(lake: Lake) -> None:
    before = versions_of(lake)
    assert sum(SECRET in version for version in before) > 9
    forget(lake)
    after = versions_of(lake)
    assert after[: len(before)] == without(before) and after[-1] == without(before)[-1]


def test_the_log_s_own_numbers_are_those_of_the_files_and_name_it_nowhere(lake: Lake) -> None:
    forget(lake)
    held = [path for path in Path(table_of(lake)).rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []
    for version in range(DeltaTable(table_of(lake)).version() + 1):
        handle = DeltaTable(table_of(lake), version)
        for one in pa.table(handle.get_add_actions(flatten=True)).to_pylist():
            file = Path(table_of(lake)) / one["path"]
            names = pl.read_parquet(file, columns=["trajectory_id"])["trajectory_id"].to_list()
            assert (one["size_bytes"], one["num_records"]) == (file.stat().st_size, len(names))
            assert (one["min.trajectory_id"], one["max.trajectory_id"]) == (
                (min(names), max(names)) if names else (None, None)
            )


def test_bounds_of_a_file_that_was_swept_do_not_name_it_either(lake: Lake) -> None:
    lake.delete("verdicts", f"trajectory_id = '{SECRET}'")
    lake.maintain(0)
    forget(lake)
    assert not any(SECRET.encode() in path.read_bytes() for path in Path(table_of(lake)).rglob("*.*"))


@pytest.mark.slow
def test_killed_anywhere_every_version_reads_once_and_the_same_command_ends_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = versions_of(lake)
    kills = 0
    while True:
        left = iter(range(kills))

        def dying(whole: Callable[..., Any], left: Any = left) -> Callable[..., Any]:
            def step(*arguments: Any) -> Any:
                if next(left, None) is None:
                    raise KeyboardInterrupt
                return whole(*arguments)

            return step

        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "put", dying(LocalStore.put))
            patch.setattr(LocalStore, "delete", dying(LocalStore.delete))
            try:
                forget(lake)
                break
            except KeyboardInterrupt:
                pass
        found = versions_of(lake, ["delta"])
        assert without(found)[: len(before)] == without(before), f"killed at {kills}"
        assert SECRET not in found[-1]
        kills += 1 if NIGHTLY else 7
    assert kills > 2
    assert versions_of(lake)[: len(before)] == without(before)
    assert not any(SECRET.encode() in path.read_bytes() for path in Path(table_of(lake)).rglob("*.*"))


def test_a_process_that_knew_the_table_before_goes_on(lake: Lake) -> None:
    other = Lake.open(LakeConfig(uri=lake.uri))
    before = other.read("verdicts")["trajectory_id"].to_pylist()
    forget(lake)
    assert sorted(other.read("verdicts")["trajectory_id"].to_pylist()) == sorted(set(before) - {SECRET})
    other.append("verdicts", [verdict("f", 1)])
    assert lake.count("verdicts", {"trajectory_id": "f"}) == 1
    assert sorted(lake.read("verdicts")["trajectory_id"].to_pylist()) == versions_of(lake)[-1]


@pytest.mark.nightly
def test_files_that_an_earlier_forget_wrote_anew_in_their_place_are_read_by_every_reader_after_an_upgrade(
    lake: Lake,
) -> None:
    store, before = lake.files_of("verdicts"), versions_of(lake)
    for name in [one for one in store.sizes() if one.endswith(".parquet") and "_delta_log" not in one]:
        rows = pq.read_table(io.BytesIO(store.get(name)))
        kept, sink = rows.filter(pc.field("trajectory_id") != SECRET), io.BytesIO()
        if kept.num_rows < rows.num_rows:
            pq.write_table(kept, sink)
            store.put(name, sink.getvalue())
    assert forgetting.unreadable(lake) == {}, "a lake that forgot nothing is not looked through"
    about = {"reason": "x", "policies": [], "screenshots": [], "done": True, "created_at": utc_now()}
    lake.append("forgotten", [{"trajectory_id": SECRET, **about}])
    broken = forgetting.unreadable(lake)["verdicts"]
    with pytest.raises(BaseException):  # noqa: B017
        versions_of(lake)
    notes: list[str] = []
    config = LakeConfig(uri=lake.uri)
    assert broken and upgrade(config, notes.append) == notes and f"table verdicts: {broken} files" in notes[0]
    assert versions_of(Lake.open(config)) == without(before)
    assert forgetting.unreadable(lake) == {} and upgrade(config, notes.append) == []
