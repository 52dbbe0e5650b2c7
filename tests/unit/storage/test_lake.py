"""A lake holds every key once, whoever writes, and says plainly what is wrong with a place that is no lake."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.dataset as pads
import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

import schemas.table as clock
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError, UsageError
from schemas.table import SCHEMA_VERSION
from storage.lake import Lake
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import Rows

APPEND = """
import sys
from schemas.config.sections import LakeConfig
from storage.lake import Lake
lake, new = Lake.open(LakeConfig(uri=sys.argv[1])), 0
choice = dict(weight=0.5, explorer_trajectories=0, policy_trajectories=0, relay_trajectories=0, pool="unseen",
              successes=0.0, failures=0.0, reason="x")
for chunk in range(6):
    new += lake.append("curriculum", [{**choice, "iteration": 1, "task_id": f"t{chunk}-{i}"} for i in range(20)])
print(new)
"""


def test_a_second_opening_finds_the_same_lake(lake: Lake) -> None:
    assert Lake.open(LakeConfig(uri=lake.uri), create=False).lake_id == lake.lake_id


def test_a_place_without_a_lake_is_refused_unless_one_may_be_made(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="no lake at"):
        Lake.open(LakeConfig(uri=str(tmp_path / "none")), create=False)


def test_a_folder_with_other_things_is_not_taken_for_a_lake(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(LakeError, match=r"thesis\.txt.*lake\.uri"):
        Lake.open(LakeConfig(uri=str(tmp_path)))
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_lake_of_another_schema_version_is_refused_with_both_versions(lake: Lake, sentence: Sentences) -> None:
    mark = Path(lake.uri) / "flywheel.json"
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "schema_version": 99}))
    with sentence.raises(LakeError, SCHEMA_VERSION, hint="lake.uri", VERSION=SCHEMA_VERSION):
        Lake.open(LakeConfig(uri=lake.uri))


def test_a_lake_whose_upgrade_by_a_newer_flywheel_was_cut_short_is_read_and_not_written(
    lake: Lake, sentence: Sentences
) -> None:
    row = {
        "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0, "pool": "unseen",
        "successes": 0.0, "failures": 0.0, "reason": "x", "iteration": 1,
    }  # fmt: skip
    lake.append("curriculum", [{**row, "task_id": "first"}])
    column = Field("newer", PrimitiveType("string"))
    DeltaTable(f"{lake.uri}/tables/curriculum").alter.add_columns([column])
    older = Lake.open(LakeConfig(uri=lake.uri), create=False)
    assert older.read("curriculum", ["task_id"]).to_pylist() == [{"task_id": "first"}]
    with sentence.raises(LakeError, "curriculum", hint="flywheel upgrade"):
        older.append("curriculum", [{**row, "task_id": "second"}])


def test_a_broken_mark_is_refused(lake: Lake, sentence: Sentences) -> None:
    (Path(lake.uri) / "flywheel.json").write_text("{}")
    with sentence.raises(LakeError, hint="lake.uri"):
        Lake.open(LakeConfig(uri=lake.uri))


@pytest.mark.parametrize("uri", ["gs://bucket/lake", "memory://lake"])
def test_an_address_of_an_unknown_kind_is_refused_with_the_field(uri: str) -> None:
    with pytest.raises(UsageError, match=r"lake\.uri"):
        Lake.open(LakeConfig(uri=uri))


@pytest.mark.parametrize(
    ("uri", "right"),
    [
        *((uri, "s3://bucket/lake") for uri in ("s3:/bucket/lake", "s3:bucket/lake", "s3a:/bucket/lake")),
        *((uri, "s3://bucket/lake") for uri in ("S3://bucket/lake", "s3n://bucket/lake")),
        *((uri, "/data/lake") for uri in ("file:/data/lake", "file:///data/lake")),
        ("file:lake", "lake"),
    ],
)
def test_an_address_of_another_form_is_refused_with_the_right_form(
    uri: str, right: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=rf"`lake\.uri`.*Write {right}[,.]"):
        Lake.open(LakeConfig(uri=uri))
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_place_of_the_lake_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LakeError, match=r"lake\.uri"):
        Lake.open(LakeConfig(uri=str(tmp_path / "file" / "lake")))


@pytest.mark.parametrize("name", ["my lake", "mühle", "a#b", "it's", "a?b"])
def test_a_lake_may_lie_below_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / name / "lake")))
    task = {"iteration": 1, "task_id": "a", "weight": 0.5, "pool": "unseen", "successes": 0.0, "failures": 0.0,
            "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0, "reason": "x"}  # fmt: skip
    lake.append("curriculum", [task])
    assert lake.connect(["curriculum"]).sql("SELECT task_id FROM curriculum").fetchall() == [("a",)]


def test_a_folder_that_delta_would_take_for_another_one_is_refused(tmp_path: Path, sentence: Sentences) -> None:
    with pytest.raises(LakeError, match=r"`lake\.uri`.*%20 as another"):
        Lake.open(LakeConfig(uri=str(tmp_path / "a%20b")))
    for mark in "[]|^\\\t\n\x7f":
        with sentence.raises(LakeError, "lake.uri", repr(mark)) as refused:
            Lake.open(LakeConfig(uri=str(tmp_path / f"a{mark}b")))
        assert refused.value.hint
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("uri", "secret", "said"),
    [
        ("s3://bucket/lake", "secret", r"AWS_ACCESS_KEY_ID is not set\. Set it in"),
        ("s3://bucket/lake", "", r"AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set\. Set them in"),
        ("s3://", "secret", r"`lake\.uri` is s3://: the bucket is missing\."),
        ("s3:///lake", "secret", r"the bucket is missing\."),
    ],
)
def test_what_an_s3_address_lacks_is_named(uri: str, secret: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secret)
    with pytest.raises((LakeError, UsageError), match=said):
        Lake.open(LakeConfig(uri=uri))


def test_an_unknown_table_is_refused_with_the_known_ones(lake: Lake) -> None:
    with pytest.raises(LakeError, match=r"`trajectory`.*trajectories"):
        lake.append("trajectory", [])


def test_rows_written_again_are_left_alone(lake: Lake, row) -> None:
    assert lake.append("trajectories", [row("trajectories", trajectory_id=f"t{i}") for i in range(5)]) == 5
    again = [row("trajectories", trajectory_id=f"t{i}", reward=-1.0) for i in range(3, 8)]
    assert lake.append("trajectories", again) == 3
    assert lake.read("trajectories", where={"reward": 1.0}).num_rows == 5
    assert lake.count("trajectories") == 8


def test_rows_that_a_table_returned_go_to_no_other_table(lake: Lake, row, sentence: Sentences) -> None:
    lake.append("steps", [row("steps")])
    for write in (lake.append, lake.upsert):
        with sentence.raises(LakeError, "of table `steps`"):
            write("evaluation_steps", lake.read("steps"))
    assert lake.append("steps", lake.read("steps")) == 0 and not lake.count("evaluation_steps")


def test_a_row_that_does_not_fit_is_named_with_its_table_number_and_key(
    lake: Lake, row: Rows, sentence: Sentences
) -> None:
    with sentence.raises(LakeError):
        lake.append("steps", [row("steps"), {**row("steps", step=1), "screen_width": "wide"}])
    with sentence.raises(LakeError):
        lake.upsert("steps", [{"trajectory_id": "t1"}])
    assert not lake.count("steps")


def test_rows_already_there_make_no_new_version(lake: Lake, row) -> None:
    lake.append("steps", [row("steps")])
    version = lake.version("steps")
    assert lake.append("steps", [row("steps")]) == 0
    assert lake.version("steps") == version


def test_a_key_repeated_within_one_write_is_written_once(lake: Lake, row) -> None:
    assert lake.append("steps", [row("steps", step=0), row("steps", step=1), row("steps", step=0)]) == 2


def test_a_picture_seen_again_in_a_later_iteration_is_stored_once(lake: Lake, row) -> None:
    lake.append("screenshots", [row("screenshots")])
    assert lake.append("screenshots", [row("screenshots", iteration=2)]) == 0


def test_keys_are_known_whoever_wrote_them_and_whatever_became_of_their_files(lake: Lake, row) -> None:
    other = Lake.open(LakeConfig(uri=lake.uri))
    rows = [row("trajectories", trajectory_id=f"t{n}", iteration=n % 3 if n < 12 else 0) for n in range(30)]
    assert lake.append("trajectories", rows[:12]) == 12  # several files in one commit
    assert lake.append("trajectories", rows[12:13]) == 1
    assert other.append("trajectories", rows[10:15]) == 2
    assert lake.append("trajectories", rows[:20]) == 5
    for number in range(20, 30):
        assert lake.append("trajectories", rows[number - 1 : number + 1]) == 1
    assert other.compact("trajectories") > 0
    assert lake.append("trajectories", rows) == other.append("trajectories", rows) == 0
    assert lake.delete("trajectories", "trajectory_id = 't4'") == 1
    assert other.append("trajectories", rows) == 1 and lake.append("trajectories", rows) == 0
    assert lake.count("trajectories") == 30


def test_a_writer_does_not_read_again_what_it_has_just_written(lake: Lake, row) -> None:
    rows = [row("trajectories", trajectory_id=name) for name in ("a", "b")]
    lake.append("trajectories", rows[:1])
    for file in Path(lake.uri, "tables", "trajectories").rglob("*.parquet"):
        file.rename(file.with_suffix(".away"))
    assert lake.append("trajectories", rows) == 1


def test_a_deleted_key_can_be_written_again(lake: Lake, row) -> None:
    lake.append("steps", [row("steps", step=step) for step in range(3)])
    assert lake.delete("steps", "step = 1") == 1
    assert lake.append("steps", [row("steps", step=step) for step in range(3)]) == 1


def test_deleting_from_a_table_that_does_not_exist_deletes_nothing(lake: Lake) -> None:
    assert lake.delete("pairs", "true") == 0


def test_an_upsert_replaces_the_row_of_its_key(lake: Lake, row) -> None:
    lake.upsert("policies", [row("policies", policy_version=name) for name in ("p1", "p2")])
    lake.upsert(
        "policies", [row("policies", policy_version="p1", status="retired"), row("policies", policy_version="p3")]
    )
    statuses = lake.read("policies", columns=["policy_version", "status"]).to_pylist()
    assert {each["policy_version"]: each["status"] for each in statuses} == {
        "p1": "retired",
        "p2": "champion",
        "p3": "champion",
    }


def test_an_upserted_table_can_still_be_filtered_and_queried_by_text(lake: Lake, row) -> None:
    for status in ("candidate", "champion"):
        lake.upsert("policies", [row("policies", status=status)])
    assert lake.read("policies", where={"status": "champion", "policy_version": ["p1"]}).num_rows == 1
    assert lake.append("policies", [row("policies")]) == 0
    with lake.connect(["policies"]) as connection:
        assert connection.sql("SELECT count(*) FROM policies WHERE status = 'champion'").fetchall() == [(1,)]


def test_an_upsert_leaves_other_rows_and_partitions_as_they_were(lake: Lake, row) -> None:
    lake.append("steps", [row("steps", step=step, iteration=1 + step % 2, token_ids=[step]) for step in range(4)])
    lake.upsert("steps", [row("steps", step=2, thought="better")])
    found = {each["step"]: (each["thought"], each["token_ids"]) for each in lake.read("steps").to_pylist()}
    assert found == {0: ("", [0]), 1: ("", [1]), 2: ("better", None), 3: ("", [3])}


def test_a_table_can_be_emptied_and_filled_again(lake: Lake, row) -> None:
    for table in ("steps", "policies"):
        lake.append(table, [row(table)])
        assert lake.delete(table, "true") == 1
        assert lake.count(table) == 0
        with lake.connect([table]) as connection:
            assert connection.sql(f"SELECT count(*) FROM {table}").fetchall() == [(0,)]
        assert lake.append(table, [row(table)]) == 1


def test_a_table_that_does_not_exist_reads_as_empty_with_its_schema(lake: Lake) -> None:
    table = lake.read("pairs")
    assert table.num_rows == 0
    assert "chosen" in table.schema.names
    assert lake.version("pairs") is None
    assert lake.versions() == {}


def test_reading_takes_columns_values_lists_and_expressions(lake: Lake, row) -> None:
    lake.append("steps", [row("steps", step=step, iteration=1 + step % 2) for step in range(6)])
    assert lake.read("steps", columns=["step"], where={"iteration": 2}).schema.names == ["step"]
    assert lake.read("steps", where={"iteration": 1, "step": [0, 1, 2]}).num_rows == 2
    assert lake.read("steps", where=pads.field("step") > 3).num_rows == 2
    assert lake.read("steps", where={"token_ids": None}).num_rows == 6
    assert lake.read("steps", columns={"twice": pads.field("step") * 2})["twice"].to_pylist() != []


def test_an_earlier_version_reads_as_it_was(lake: Lake, row) -> None:
    lake.append("steps", [row("steps", step=0)])
    pinned = lake.versions()
    lake.append("steps", [row("steps", step=1)])
    assert lake.read("steps", version=pinned["steps"]).num_rows == 1
    with lake.connect(["steps"], pinned) as connection:
        assert connection.sql("SELECT count(*) FROM steps").fetchall() == [(1,)]


def test_a_version_that_never_was_is_refused(lake: Lake, row) -> None:
    lake.append("steps", [row("steps")])
    with pytest.raises(LakeError, match="version 99"):
        lake.read("steps", version=99)


def test_duckdb_sees_every_table_also_those_without_rows(lake: Lake, row) -> None:
    lake.append("screenshots", [row("screenshots")])
    lake.append("steps", [row("steps")])
    with lake.connect() as connection:
        query = "SELECT octet_length(png) FROM steps JOIN screenshots ON screenshot = sha256"
        assert connection.sql(query).fetchall() == [(3,)]
        assert connection.sql("SELECT count(*) FROM pairs").fetchall() == [(0,)]


def test_a_log_is_read_again_only_for_a_new_commit_and_none_is_missed(
    lake: Lake, row: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, looked = Lake.open(LakeConfig(uri=lake.uri)), []
    update = DeltaTable.update_incremental

    def updated(self: DeltaTable) -> None:
        looked.append(self.version())
        update(self)

    monkeypatch.setattr(DeltaTable, "update_incremental", updated)
    lake.append("trajectories", [row("trajectories", trajectory_id="a")])
    for number in range(3):
        for _ in range(2):
            assert other.count("trajectories") == number + 1
        lake.append("trajectories", [row("trajectories", trajectory_id=f"b{number}")])
    assert len(looked) <= 3, "one for each commit of the other lake"
    table = Path(lake.uri, "tables", "trajectories")
    assert other.count("trajectories") == 4
    DeltaTable(table).create_checkpoint()
    for file in sorted((table / "_delta_log").glob("0*.json"))[:-1]:  # as a clean-up of the log leaves it
        file.unlink()
    lake.append("trajectories", [row("trajectories", trajectory_id="c")])
    assert other.count("trajectories") == 5


def test_under_pins_a_table_without_one_is_empty(lake: Lake, row) -> None:
    lake.append("steps", [row("steps")])
    with lake.connect(versions={}) as connection:
        assert connection.sql("SELECT count(*) FROM steps").fetchall() == [(0,)]


def test_threads_that_write_the_same_keys_leave_each_once(lake: Lake, row) -> None:
    new: list[int] = []

    def write() -> None:
        own = Lake.open(LakeConfig(uri=lake.uri))
        for chunk in range(5):
            new.append(own.append("steps", [row("steps", step=10 * chunk + i) for i in range(10)]))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    steps = lake.read("steps", columns=["step"])["step"].to_pylist()
    assert sorted(steps) == list(range(50))
    assert sum(new) == 50


def test_processes_that_write_the_same_keys_leave_each_once(lake: Lake) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", APPEND, lake.uri], stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    new = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    keys = lake.read("curriculum", columns=["task_id"])["task_id"].to_pylist()
    assert sum(new) == len(keys) == len(set(keys)) == 120


def test_a_full_disk_is_a_clear_error_and_leaves_the_table_as_it_was(lake: Lake, row, sentence: Sentences) -> None:
    lake.append("steps", [row("steps")])
    script = f"""
import resource, signal
from schemas.config.sections import LakeConfig
from storage.lake import Lake
lake = Lake.open(LakeConfig(uri={lake.uri!r}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8000, 8000))
import os
import re
shot = dict(iteration=1, width=1, height=1, phash="0")
lake.append("screenshots", [dict(shot, sha256=str(i), png=os.urandom(5000)) for i in range(50)])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    sentence.lines(done.stderr, "LakeError")
    assert "Free some space" in done.stderr
    assert lake.count("screenshots") == 0
    assert lake.count("steps") == 1


def test_a_process_that_fails_to_read_still_ends(lake: Lake, row) -> None:
    lake.append("steps", [row("steps")])
    for file in Path(lake.uri).rglob("*.parquet"):
        os.unlink(file)
    script = f"""
from schemas.config.sections import LakeConfig
from storage.lake import Lake
Lake.open(LakeConfig(uri={lake.uri!r})).read("steps")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "LakeError" in done.stderr


def test_a_clock_that_is_set_back_makes_nothing_older_than_what_the_lake_holds(
    lake: Lake, row, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.append("policies", [row("policies")])
    monkeypatch.setattr(clock, "_last", datetime.min.replace(tzinfo=UTC))  # as in a process that begins
    monkeypatch.setattr(clock, "_clock", lambda: datetime.now(UTC) - timedelta(hours=5))
    early = clock.utc_now()
    assert Lake.open(LakeConfig(uri=lake.uri)).count("policies") == 1
    times = [clock.utc_now() for _ in range(3)]
    assert times == sorted(set(times)) and times[0] - early > timedelta(hours=4)


def test_a_lake_that_may_not_be_written_says_so_and_delta_is_not_asked(
    lake: Lake, row: Callable[..., dict[str, object]], monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    lake.append("steps", [row("steps")])
    monkeypatch.setattr(os, "access", lambda path, mode: "tables/" not in str(path))
    monkeypatch.setattr("storage.table.write_deltalake", lambda *_, **__: pytest.fail("delta-rs would panic"))
    for change in (lake.append, lake.upsert):
        with sentence.raises(LakeError, hint="lake.uri"):
            change("steps", [row("steps", step=1)])
    assert lake.count("steps") == 1


def test_who_notes_what_is_read_within_another_who_does_leaves_that_one_its_own(lake: Lake) -> None:
    with lake.noting() as outer:
        inner = _noted(lake)
        lake.count("steps")
    lake.count("verdicts")
    assert (outer, inner) == ({"steps"}, set())


def _noted(lake: Lake) -> set[str]:
    with lake.noting() as names:
        return names


@pytest.mark.parametrize("above", ["seed=3", "iteration=7", "success=false", "a=b=c", "policy_version=x/seed=0"])
def test_a_folder_above_the_lake_that_looks_like_a_column_changes_no_row(above: str, tmp_path: Path, row: Rows) -> None:
    """DuckDB takes every KEY=VALUE of a file's path for a partition, also above the table (duckdb 2.0.1)."""
    lake = Lake.open(LakeConfig(uri=str(tmp_path / above / "lake")))
    lake.append("trajectories", [row("trajectories", trajectory_id=f"t{one}", seed=one) for one in (1, 2)])
    lake.append("policies", [row("policies", seed=5)])
    wanted = ["trajectory_id", "seed", "iteration", "success", "policy_version"]
    with lake.connect() as connection:
        found = connection.sql(f"SELECT {', '.join(wanted)} FROM trajectories ORDER BY seed").to_arrow_table()
        seeds = connection.sql("SELECT seed, policy_version FROM policies").fetchall()
    assert found.to_pylist() == lake.read("trajectories", wanted).sort_by("seed").to_pylist()
    assert found["seed"].to_pylist() == [1, 2] and found["iteration"].to_pylist() == [1, 1]
    assert seeds == [(5, "p1")]
    assert lake.delete("trajectories", "seed = 1") == 1 and lake.count("trajectories") == 1
