"""Events say what was made from what, in OpenLineage's form; that they cannot be delivered ends nothing."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.config import config_of
from schemas.tables.stage import Stage
from storage.lake import Lake
from tasks.openlineage import emitted
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
    assert (found["name"], found["facets"]["version"]["datasetVersion"]) == ("tables/stages", "1")
    assert (table["name"], table["facets"]["version"]["datasetVersion"]) == ("tables/stages", "2")
    assert policy["name"] == "policies/policy-0000" and table["namespace"].endswith("/lake")


def test_a_retraining_reads_the_versions_that_are_pinned_and_its_parent_and_not_what_the_lake_has_by_now(
    tmp_path: Path,
) -> None:
    run = run_to(tmp_path, str(tmp_path / "lineage.jsonl"))
    work(run)
    work(run, 1)
    with emitted(run, "retrain", "retrained-0000", {"stages": 0, "steps": 4}, "policy-0000") as made:
        work(run, 2)
        made.append("retrained-0000")
    for one in lines(tmp_path / "lineage.jsonl"):
        *tables, parent = one["inputs"]
        read = {table["name"]: table["facets"]["version"]["datasetVersion"] for table in tables}
        assert (read, parent["name"]) == ({"tables/stages": "0", "tables/steps": "4"}, "policies/policy-0000")
    assert [table["name"] for table in one["outputs"]] == ["tables/stages", "policies/retrained-0000"]


def test_a_stage_that_fails_says_so_and_its_error_goes_on(tmp_path: Path) -> None:
    *_, begin, end = sent(tmp_path)
    assert (begin["eventType"], end["eventType"]) == ("START", "FAIL")
    assert end["run"]["facets"]["errorMessage"]["message"] == "no"


def test_events_are_what_openlineage_s_own_client_calls_events(tmp_path: Path) -> None:
    made = pytest.importorskip("openlineage.client.event_v2", reason="openlineage-python is not installed")
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
    with emitted(run_to(tmp_path, collector), "train", "iteration 0"):
        pass
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
    assert run.lake.count("stages") == 2
    assert capsys.readouterr().err.count("do not reach") == 1


def test_nothing_is_written_where_nobody_listens(tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    run = run_to(tmp_path, "")
    with emitted(run, "train", "iteration 0"):
        pass
    assert [path for path in tmp_path.rglob("*.jsonl") if path not in before] == []
