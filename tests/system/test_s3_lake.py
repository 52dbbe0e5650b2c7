"""The lake on a real S3 server (seaweedfs), started here and stopped afterwards."""

import ast
import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from safetensors.torch import load_file

from apps.quality.gather import quality_of
from schemas.config import load_config
from schemas.config.profiles import config_file
from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from schemas.table import utc_now
from storage import forgetting
from storage.address import resolve
from storage.catalog import ask
from storage.lake import Lake
from storage.quality.docs import publish_docs
from storage.quality.gate import run_gate
from tasks.preflight.preflight import probes
from tasks.promote.events import LOCK
from tests.system.parts import streaming
from tests.system.parts.s3 import BUCKET, KEY, SECRET, free_ports
from tests.unit.apps.conftest import make_place

pytestmark = pytest.mark.usefixtures("credentials")

CHOICE = {
    "iteration": 1, "weight": 0.5, "explorer_trajectories": 0, "policy_trajectories": 0, "relay_trajectories": 0,
    "pool": "unseen", "successes": 0.0, "failures": 0.0, "reason": "x",
}  # fmt: skip
ROOT = Path(__file__).parents[2]
APPEND = """
import json, sys
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from storage.quality.docs import publish_docs
from storage.quality.gate import run_gate
lake, new = Lake.open(LakeConfig.model_validate_json(sys.argv[1])), 0
for chunk in range(4):
    new += lake.append("curriculum", [dict(json.loads(sys.argv[2]), task_id=f"t{chunk}-{i}") for i in range(10)])
print(new)
"""

DECIDE = """
import json, sys, time
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.promote.events import promotion_lock
lake, spans = Lake.open(LakeConfig.model_validate_json(sys.argv[1]), create=False), []
for _ in range(4):
    with promotion_lock(lake):
        began = time.monotonic()
        time.sleep(0.05)
        spans.append((began, time.monotonic()))
print(json.dumps(spans))
"""


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


@pytest.mark.slow
def test_of_processes_that_decide_at_once_one_does_and_the_others_wait(config: LakeConfig) -> None:
    Lake.open(config)
    words = [sys.executable, "-c", DECIDE, config.model_dump_json()]
    all_of_them = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [json.loads(one.communicate(timeout=120)[0]) for one in all_of_them]
    spans = sorted((began, ended) for found in said for began, ended in found)
    assert len(spans) == 12 and all(ended <= began for (_, ended), (began, _) in pairwise(spans))
    assert list(Lake.open(config).blobs.store.sizes(LOCK).values()) == [0], "the file of a released lease"


def test_blobs_and_checkpoints_come_back(config: LakeConfig, tmp_path: Path) -> None:
    blobs = Lake.open(config).blobs
    store = blobs.store
    assert store.put_once("note", b"first") and not store.put_once("note", b"second")
    assert store.get("note") == b"first"
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(os.urandom(300_000))
    name = blobs.put_directory(checkpoint, "policies/p1")
    here = blobs.get_directory(name, tmp_path / "cache")
    assert (here / "model.safetensors").read_bytes() == (checkpoint / "model.safetensors").read_bytes()
    assert sorted(store.sizes("policies")) == ["policies/p1/manifest.json", "policies/p1/model.safetensors"]
    store.move("policies", "old")
    assert sorted(store.sizes()) == ["note", "old/p1/manifest.json", "old/p1/model.safetensors"]


def test_a_prefix_with_other_things_is_not_taken_for_a_lake(endpoint: str) -> None:
    with pytest.raises(LakeError, match="is not empty"):
        Lake.open(LakeConfig(uri=f"s3://{BUCKET}", endpoint=endpoint))


def test_a_prefix_that_held_something_once_is_as_free_as_a_fresh_one(config: LakeConfig) -> None:
    whole = load_config(config_file("laptop"), [f"lake.uri={config.uri}", f"lake.endpoint={config.endpoint}"], {})
    for _ in range(2):
        (said,) = (probe.check() for probe in probes(whole) if probe.name == "storage")
        assert said.ok and said.detail == f"{config.uri} is free for a new lake"
    assert Lake.open(config).lake_id


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
    (port,) = free_ports(1)
    with pytest.raises(LakeError, match=r"cannot be reached.*lake\.endpoint"):
        Lake.open(LakeConfig(uri=f"s3://{BUCKET}/lake", endpoint=f"http://127.0.0.1:{port}"))


def test_plays_are_trained_on_while_others_go_on_with_a_lake_on_s3_and_its_credentials_are_written_nowhere(
    config: LakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    whole = streaming.config(tmp_path).model_copy(update={"lake": config})
    lake = streaming.begin(whole, tmp_path)
    made = streaming.run(whole, lake, 8)
    assert lake.count("trajectories") == 32 and made["updates"] >= 2 and made["samples"] > 0
    folder = lake.blobs.get_directory(made["checkpoint"], tmp_path / "fetched")
    assert load_file(folder / "model.safetensors").keys() == load_file(tmp_path / "parent/model.safetensors").keys()
    resolve(config).filesystem.get(config.uri, str(tmp_path / "copy"), recursive=True)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 50 and any(path.is_relative_to(tmp_path / "copy") for path in written)
    assert not [path for path in written if SECRET.encode() in path.read_bytes() or KEY.encode() in path.read_bytes()]


def test_the_quality_gate_reads_s3_and_publishes_its_pages_there(config: LakeConfig, tmp_path: Path) -> None:
    lake = Lake.open(config)
    lake.append("curriculum", [{**CHOICE, "task_id": "sound"}, {**CHOICE, "task_id": "heavy", "weight": 1.5}])
    for iteration in (1, 2):
        results = run_gate(lake, iteration, ["curriculum", "steps", "trajectories"], tmp_path, keep=1)
        lake.upsert("quality", results)
        publish_docs(lake, tmp_path, iteration, keep=1)
    (failed,) = lake.read("quality", where={"success": False}).to_pylist()
    assert json.loads(failed["examples"]) == [{"iteration": 1, "task_id": "heavy"}]
    assert set(lake.blobs.store.sizes("data_docs")) == {"data_docs/iteration-0002/index.html"}
    found = quality_of(lake, None)
    assert [row.critical for row in found.iterations] == [0, 1]


def test_what_is_forgotten_leaves_the_files_of_every_version_there(config: LakeConfig) -> None:
    lake = Lake.open(config)
    opinion = {
        "gate": "route", "gate_version": "1", "iteration": 1, "passed": True, "score": None, "error_step": None,
        "reason": "", "route": "sft", "created_at": utc_now(),
    }  # fmt: skip
    for name in ("secret", "other"):
        lake.append("verdicts", [{**opinion, "trajectory_id": name}])
    pinned = lake.versions()
    assert ask(lake, "decisions", iteration=None).num_rows == 2  # and there is a copy of it on this machine
    assert forgetting.erase(lake, forgetting.Doomed(["secret"], [])) == {"verdicts": 1}
    for found in (Lake.open(config), lake):
        assert found.read("verdicts")["trajectory_id"].to_pylist() == ["other"]
        assert found.read("verdicts", version=pinned["verdicts"])["trajectory_id"].to_pylist() == ["other"]
        assert ask(found, "decisions", pinned, iteration=None)["trajectory_id"].to_pylist() == ["other"]
    store, options = lake.files_of("verdicts"), resolve(config).delta_options
    there: Any = DeltaTable(f"{lake.uri}/tables/verdicts", pinned["verdicts"], options).to_pyarrow_table()
    assert there["trajectory_id"].to_pylist() == ["other"], "whatever reads Delta finds it"
    assert not any(b"secret" in store.get(name) for name in store.sizes())


@pytest.mark.parametrize("place", ["disk", "s3"])
def test_other_tools_read_a_lake_as_the_documents_show(
    place: str, endpoint: str, credentials: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "lake") if place == "disk" else f"s3://{BUCKET}/documents"
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    lake = Lake.open(LakeConfig(uri=uri, endpoint=None if place == "disk" else endpoint, min_free_mb=1))
    copied = make_place(tmp_path / "made").lake
    for name in ("trajectories", "steps"):
        lake.append(name, copied.read(name))
    page = (ROOT / "docs/inspect.md").read_text()
    (code,) = (one for one in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S) if "DeltaTable(" in one)
    body = ast.parse(code.replace('lake = "lake"', f"lake = {uri!r}")).body
    values: list[ast.expr] = [one.value for one in body if isinstance(one, ast.Expr)]
    names: dict[str, Any] = {}
    exec(compile(ast.Module([one for one in body if not isinstance(one, ast.Expr)], []), "inspect.md", "exec"), names)
    means, counts = (eval(compile(ast.Expression(one), "inspect.md", "eval"), names) for one in values)
    assert means.height == 6 and set(means.columns) == {"iteration", "policy", "success"}
    assert sorted(counts.fetchall()) == [("fake/click-target", "click", 36), ("fake/two-steps", "click", 36)]
