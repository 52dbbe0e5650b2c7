"""Events say what was made from what, in OpenLineage's form; that they cannot be delivered ends nothing."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from schemas.config import config_of
from schemas.tables.stage import Stage
from storage.lake import Lake
from tasks.openlineage import Read, emitted, event, flush
from tasks.running.run import Run

TAKEN: list[tuple[dict[str, Any], str | None]] = []


class Collector(BaseHTTPRequestHandler):
    """Takes events as a collector of lineage does."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        TAKEN.append((json.loads(body), self.headers["authorization"]))
        self.send_response(201)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def collector() -> Iterator[str]:
    TAKEN.clear()
    server = HTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage"
    server.shutdown()
    server.server_close()


def run_to(folder: Path, to: str) -> Run:
    fields = {"environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}, "openlineage": {"to": to}}
    config = config_of({**fields, "name": "mine", "lake": {"uri": str(folder / "lake"), "min_free_mb": 1}})
    return Run(config, Lake.open(config.lake), str(uuid4()))


def work(run: Run, iteration: int = 0) -> None:
    row = {"iteration": iteration, "stage": "train", "run_id": "r", "wall_s": 1.0, "result": "{}"}
    run.lake.append("stages", [Stage.model_validate({**row, "started_at": "2026-01-01T00:00:00Z"})])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sent(tmp_path: Path) -> list[dict[str, Any]]:
    """The events of a stage that ended well and of one that failed."""
    run = run_to(tmp_path, str(tmp_path / "events" / "lineage.jsonl"))
    work(run)
    with emitted(run, "train", "iteration 0") as made:
        assert run.lake.count("stages") == 1
        work(run, 1)
        made.append("policy-0000")
    with pytest.raises(ValueError, match="no"), emitted(run, "train", "iteration 1"):
        raise ValueError("no")
    return lines(tmp_path / "events" / "lineage.jsonl")


def test_a_stage_is_a_run_of_a_job_with_the_tables_it_found_and_the_versions_it_made(tmp_path: Path) -> None:
    begin, end, *_ = sent(tmp_path)
    assert (begin["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert begin["run"]["runId"] == end["run"]["runId"] and UUID(end["run"]["runId"])
    assert (end["job"]["namespace"], end["job"]["name"]) == ("flywheel", "mine.train")
    (found,), (table, policy) = end["inputs"], end["outputs"]
    stages = f"{tmp_path}/lake/tables/stages"
    assert (found["name"], found["facets"]["version"]["datasetVersion"]) == (stages, "1")
    assert (table["name"], table["facets"]["version"]["datasetVersion"]) == (stages, "2")
    assert (policy["namespace"], policy["name"]) == ("file", f"{tmp_path}/lake/policies/policy-0000")
    assert begin["inputs"] == []


def test_a_retraining_reads_the_versions_that_are_pinned_and_its_parent_and_not_what_the_lake_has_by_now(
    tmp_path: Path,
) -> None:
    run = run_to(tmp_path, str(tmp_path / "lineage.jsonl"))
    work(run)
    work(run, 1)
    with emitted(run, "retrain", "retrained-0000", {"stages": 0, "steps": 4}, "policy-0000") as made:
        run.lake.read("stages", version=0)
        work(run, 2)
        made.append("retrained-0000")
    begin, end = lines(tmp_path / "lineage.jsonl")
    table, parent = end["inputs"]
    assert begin["inputs"] == [parent]
    named = [one["name"].removeprefix(f"{tmp_path}/lake/") for one in (table, parent, *end["outputs"])]
    assert named == ["tables/stages", "policies/policy-0000", "tables/stages", "policies/retrained-0000"]
    assert table["facets"]["version"]["datasetVersion"] == "0"


def test_a_stage_that_fails_says_so_and_its_error_goes_on(tmp_path: Path) -> None:
    *_, begin, end = sent(tmp_path)
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert end["run"]["facets"]["errorMessage"]["message"] == "no"


def test_events_are_what_openlineage_s_own_client_calls_events(tmp_path: Path) -> None:
    made = pytest.importorskip("openlineage.client.event_v2")
    for one in sent(tmp_path):
        made.RunEvent(
            eventTime=one["eventTime"],
            producer=one["producer"],
            eventType=made.RunState(one["eventType"]),
            run=made.Run(runId=one["run"]["runId"], facets=one["run"]["facets"]),
            job=made.Job(**one["job"]),
            inputs=[made.InputDataset(**dataset) for dataset in one["inputs"]],
            outputs=[made.OutputDataset(**dataset) for dataset in one["outputs"]],
        )


def test_a_collector_is_posted_to_with_the_key_of_the_environment(
    tmp_path: Path, collector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    run = run_to(tmp_path, collector)
    with emitted(run, "train", "iteration 0"):
        pass
    assert flush(run.config.openlineage, 10)
    assert [(one["eventType"], key) for one, key in TAKEN] == [
        ("START", "Bearer secret"), ("COMPLETE", "Bearer secret"),
    ]  # fmt: skip


def test_a_collector_that_is_away_ends_nothing_and_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_to(tmp_path, "http://127.0.0.1:9/lineage")
    for number in range(2):
        with emitted(run, "train", f"iteration {number}"):
            work(run, number)
    assert flush(run.config.openlineage, 10)
    assert run.lake.count("stages") == 2
    assert capsys.readouterr().err.count("do not reach") == 1


@pytest.mark.slow
def test_a_collector_that_hangs_holds_no_run_up_and_is_not_asked_again_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=99) as hanging:
        run = run_to(tmp_path, f"http://127.0.0.1:{hanging.getsockname()[1]}/")
        begun = time.monotonic()
        for number in range(20):
            with emitted(run, "train", f"iteration {number}"):
                pass
        assert time.monotonic() - begun < 4, "an event alone would be waited for for 5 s"
        assert not flush(run.config.openlineage, 0.1)
        assert flush(run.config.openlineage, 15), "one event waits for its time to be over, and 39 are lost with it"


def test_what_lies_on_s3_is_named_as_others_name_it(tmp_path: Path) -> None:
    run = run_to(tmp_path, str(tmp_path / "lineage.jsonl"))
    lake = SimpleNamespace(uri="s3://bucket/a/prefix")
    read = Read({"steps": 3}, "policy-0000")
    made = event(replace(run, lake=cast(Lake, lake)), "train", "iteration 0", "COMPLETE", read, {})
    assert [(one["namespace"], one["name"]) for one in made["inputs"]] == [
        ("s3://bucket", "a/prefix/tables/steps"), ("s3://bucket", "a/prefix/policies/policy-0000"),
    ]  # fmt: skip


def test_nothing_is_written_where_nobody_listens(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    run = run_to(tmp_path, "")
    with emitted(run, "train", "iteration 0"):
        pass
    assert [path for path in tmp_path.rglob("*.jsonl") if path not in before] == []
