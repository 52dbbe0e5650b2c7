"""Small files are merged, and what a policy was made from stays readable whatever is thrown away."""

import json
import os
import time
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from storage.lake import Lake


def _write_many(lake: Lake, row, count: int = 12) -> None:
    for step in range(count):
        lake.append("steps", [row("steps", step=step)])


def _files(lake: Lake) -> list[Path]:
    return sorted((Path(lake.uri) / "tables" / "steps").rglob("*.parquet"))


def test_compacting_merges_many_small_files_and_keeps_every_row(lake: Lake, row) -> None:
    _write_many(lake, row)
    assert lake.compact("steps") == 11
    assert sorted(lake.read("steps")["step"].to_pylist()) == list(range(12))
    assert lake.append("steps", [row("steps", step=3)]) == 0


def test_few_files_are_left_as_they_are(lake: Lake, row) -> None:
    _write_many(lake, row, count=5)
    assert lake.compact("steps") == 0


def test_compacting_a_table_that_does_not_exist_does_nothing(lake: Lake) -> None:
    assert lake.compact("pairs") == 0


def test_a_pinned_version_outlives_maintenance_and_others_do_not(lake: Lake, row) -> None:
    _write_many(lake, row)
    lake.append("policies", [row("policies", data_versions=json.dumps({"steps": 5, "pairs": 99}))])
    lake.maintain(retention_hours=0)
    assert lake.read("steps", version=5).num_rows == 5
    with pytest.raises(LakeError, match="version 9"):
        lake.read("steps", version=9)
    assert lake.count("steps") == 12
    assert len(_files(lake)) == 1 + 5


def test_maintenance_keeps_recent_versions_by_default(lake: Lake, row) -> None:
    _write_many(lake, row)
    lake.maintain()
    assert lake.read("steps", version=9).num_rows == 9


def test_how_long_versions_are_kept_is_configured(lake: Lake, row) -> None:
    _write_many(lake, row)
    Lake.open(LakeConfig(uri=lake.uri, keep_hours=1e-9)).maintain()
    with pytest.raises(LakeError, match="version 9"):
        lake.read("steps", version=9)


def test_maintenance_removes_old_files_that_nobody_committed_and_spares_fresh_ones(lake: Lake, row) -> None:
    _write_many(lake, row, count=2)
    old, fresh = (_files(lake)[0].with_name(f"part-{name}.parquet") for name in ("old", "fresh"))
    for path in (old, fresh):
        path.write_bytes(b"")
    os.utime(old, (time.time() - 1e6,) * 2)
    lake.maintain()
    assert not old.exists()
    assert fresh.exists()


@pytest.mark.parametrize("hours", [0, 0.5, 1.0])
def test_however_short_versions_are_kept_what_another_writer_has_put_is_there_when_it_commits(
    lake: Lake, row, hours: float
) -> None:
    _write_many(lake, row, count=2)
    kept = lake.files_of("steps")
    put = {name: kept.get(name) for name in kept.sizes() if name.endswith(".parquet")}
    for name, data in put.items():
        kept.put(f"{name.rpartition('/')[0]}/part-put.parquet", data)
    lake.maintain(hours)
    assert len(_files(lake)) == len(put) + len({path.parent for path in _files(lake)})


def test_hours_are_rounded_up(lake: Lake, row) -> None:
    _write_many(lake, row)
    Lake.open(LakeConfig(uri=lake.uri, keep_hours=0.5)).maintain()
    assert lake.read("steps", version=9).num_rows == 9


def test_the_size_counts_everything_in_the_lake(lake: Lake, row) -> None:
    lake.append("screenshots", [row("screenshots", png=os.urandom(100_000))])
    lake.blobs.store.put("policies/p1/model", bytes(50_000))
    assert 150_000 < lake.size_bytes() < 200_000
