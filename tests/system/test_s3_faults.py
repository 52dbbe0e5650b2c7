"""An object store that is away, asks to slow down, or breaks off: what is under way waits, and loses nothing."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from storage.address import resolve
from storage.lake import Lake
from tests.system.parts.commands import CONFIG, start
from tests.system.parts.proxy import Mode, Proxy, proxy_of
from tests.system.parts.s3 import BUCKET, KEY, SECRET
from tests.tiers import NIGHTLY

pytestmark = [pytest.mark.usefixtures("credentials"), pytest.mark.slow]
CHOICE = {
    "iteration": 1, "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0,
    "pool": "unseen", "successes": 0.0, "failures": 0.0, "reason": "x",
}  # fmt: skip


@pytest.fixture
def proxy(endpoint: str) -> Iterator[Proxy]:
    with proxy_of(endpoint) as made:
        yield made


@pytest.fixture
def config(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeConfig:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    return LakeConfig(uri=f"s3://{BUCKET}/{uuid4().hex}", endpoint=proxy.address, patience_s=60)


def choices(first: int, count: int = 10) -> list[dict[str, object]]:
    return [{**CHOICE, "task_id": f"t{number:04d}"} for number in range(first, first + count)]


@pytest.mark.parametrize("mode", ["away", "busy"] if NIGHTLY else ["busy"])
def test_a_lake_under_way_waits_for_its_store_and_loses_and_doubles_nothing(
    mode: Mode, config: LakeConfig, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = Lake.open(config)
    lake.append("curriculum", choices(0))
    proxy.gone_for(6.0, mode)
    assert lake.append("curriculum", choices(5)) == 5
    assert proxy.refused
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and "Waiting for it, until" in said[0] and "answers again after" in said[1], said
    proxy.gone_for(3.0)
    assert lake.count("curriculum") == 15
    proxy.gone_for(3.0)
    assert len(set(lake.read("curriculum", ["task_id"])["task_id"].to_pylist())) == 15
    proxy.gone_for(3.0)
    assert lake.delete("curriculum", "task_id < 't0005'") == 5
    proxy.gone_for(3.0)
    with lake.connect(["curriculum"]) as connection:
        assert connection.sql("SELECT count(*) FROM curriculum").fetchall() == [(10,)]


def test_reading_goes_on_after_the_last_batch_and_a_checkpoint_is_written_whole(
    config: LakeConfig, proxy: Proxy, tmp_path: Path
) -> None:
    lake = Lake.open(config)
    rows = [
        {"sha256": f"{i:064x}", "iteration": 1, "png": os.urandom(20_000), "width": 1, "height": 1, "phash": "0"}
        for i in range(1000)
    ]
    lake.append("screenshots", rows)
    names: list[str] = []
    for number, batch in enumerate(lake.batches("screenshots", ["sha256", "png"])):
        if number == 0:
            proxy.gone_for(2.0)
        names += batch["sha256"].to_pylist()
    assert len(names) == len(set(names)) == 1000
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(os.urandom(120_000_000))
    proxy.budget = 70_000_000
    name = lake.blobs.put_directory(folder, "policies/p1")
    here = lake.blobs.get_directory(name, tmp_path / "cache")
    assert (here / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert proxy.refused


def test_patience_ends_and_a_command_that_begins_has_none(config: LakeConfig, proxy: Proxy) -> None:
    lake = Lake.open(config.model_copy(update={"patience_s": 2.0}))
    proxy.be("away")
    with pytest.raises(LakeError, match=r"cannot be reached, for \d+ s \(`lake.patience_s`\)"):
        lake.append("curriculum", choices(0))
    with pytest.raises(LakeError, match=r"cannot be reached\. Check `lake.endpoint`"):
        Lake.open(config)


@pytest.mark.nightly  # tests/unit/storage has the cache of files by itself
def test_a_lake_that_was_read_is_read_again_from_this_machine_also_after_upkeep(
    config: LakeConfig, tmp_path: Path, proxy: Proxy
) -> None:
    lake = Lake.open(config)
    for first in range(0, 100, 10):
        lake.append("curriculum", choices(first))
    assert lake.read("curriculum").num_rows == 100
    before = set((tmp_path / "home/cache").rglob("*.parquet"))
    assert len(before) == 10
    lake.maintain(retention_hours=0.0)
    with lake.connect(["curriculum"]) as connection:
        assert connection.sql("SELECT count(DISTINCT task_id) FROM curriculum").fetchall() == [(100,)]
        (new,) = set((tmp_path / "home/cache").rglob("*.parquet")) - before
        proxy.be("away")
        assert connection.sql("SELECT count(DISTINCT task_id) FROM curriculum").fetchall() == [(100,)]
    proxy.be("whole")
    lake.upsert("curriculum", [{**CHOICE, "task_id": "t0003", "weight": 0.9}])
    assert sorted(lake.read("curriculum")["weight"].to_pylist()) == [0.5] * 99 + [0.9]
    without = Lake.open(config.model_copy(update={"cache_mb": 0}))
    assert without.read("curriculum").sort_by("task_id").equals(lake.read("curriculum").sort_by("task_id"))
    assert new.is_file()


@pytest.mark.nightly
def test_a_run_whose_store_goes_away_twice_waits_and_its_credentials_are_written_nowhere(
    config: LakeConfig, tmp_path: Path, proxy: Proxy
) -> None:
    text = CONFIG.format(lake=config.uri).replace("min_free_mb", f'endpoint = "{config.endpoint}"\nmin_free_mb')
    small = tmp_path / "small.toml"
    small.write_text(text.replace("= 30", "= 6"))
    run = start(small)
    for stage in ("collect", "quality"):
        while f"iteration 0  {stage}" not in run.log.read_text() and run.process.poll() is None:
            time.sleep(0.2)
        proxy.gone_for(5.0)
    assert run.process.wait(timeout=300) == 0, run.log.read_text()
    said = run.log.read_text()
    assert "Waiting for it, until" in said and "answers again after" in said and "Traceback" not in said, said
    folder = tmp_path / "copy"
    files = resolve(config).filesystem
    files.get(config.uri, str(folder), recursive=True)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.is_relative_to(folder) for path in written) and len(written) > 50
    assert not [path for path in written if SECRET.encode() in path.read_bytes() or KEY.encode() in path.read_bytes()]
