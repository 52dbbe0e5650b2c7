"""Traces by option: where nobody asks there are none, and who asks without the extra is told which one."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.failure import FlywheelError
from tasks.running import traces

SCRIPT = """
import sys
from pathlib import Path
from schemas.config import load_config
from tasks.running.traces import note, set_up, span
set_up(load_config("laptop", ["traces.to=file"], {}), Path(sys.argv[1]))
with span("run", {"run_id": "r"}):
    with span("stage train", {"stage": "train", "iteration": 3}) as made:
        note(made, {"loss": 0.5, "say": "well", "nested": {"left": "out"}})
    try:
        with span("stage evaluate", {}):
            raise ValueError("nobody expected this")
    except ValueError:
        pass
"""


def test_who_asks_for_traces_without_the_extra_is_told_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(traces.MODULES, "file", "there.is.no.such.package")
    with pytest.raises(FlywheelError, match=r"flywheel\[traces\]"):
        traces.require_traces(load_config("laptop", ["traces.to=file"], {}))
    assert "not set" in traces.require_traces(load_config("laptop", (), {}))


def test_a_stage_is_a_span_within_its_run_with_its_numbers(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk.trace")
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True)
    train, evaluate, run = map(json.loads, (tmp_path / traces.FILE).read_text().splitlines())
    assert train["parent_id"] == evaluate["parent_id"] == run["context"]["span_id"]
    assert train["attributes"] == {
        "flywheel.stage": "train", "flywheel.iteration": 3, "flywheel.loss": 0.5, "flywheel.say": "well"
    }  # fmt: skip
    assert evaluate["status"]["status_code"] == "ERROR" and "nobody expected" in json.dumps(evaluate["events"])
