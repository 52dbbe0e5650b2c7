"""A run's name on Prefect's pages: what it does, and what a person called it."""

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import load_config
from tasks.running import run


@pytest.mark.parametrize(
    ("flow", "given", "drawn", "named"),
    [
        ("flywheel", {}, "bold-fox", "flywheel smoke"),
        ("flywheel", {}, None, "flywheel smoke"),
        ("retrain", {"like": "policy-0007"}, "My experiment", "retrain like policy-0007: My experiment"),
        ("retrain", {"like": None}, "retrain smoke: two epochs", "retrain smoke: two epochs"),
        ("evaluate", {"policy": "/models/base"}, "bold-fox", "evaluate base"),
        ("adopt", {"directory": "theirs/tuned", "name": None}, "bold-fox", "adopt tuned"),
    ],
)
def test_a_run_is_named_by_what_it_does_and_keeps_a_typed_name(
    monkeypatch: pytest.MonkeyPatch, flow: str, given: dict[str, Any], drawn: str | None, named: str
) -> None:
    parameters = {"config": load_config("smoke"), **given}
    monkeypatch.setattr(run, "flow_run", SimpleNamespace(flow_name=flow, name=drawn, parameters=parameters))
    assert run.run_name() == named


def test_a_deployment_s_run_is_named_by_its_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    given = SimpleNamespace(flow_name="flywheel", name="bold-fox", parameters={"config": "projects/lamps.toml"})
    monkeypatch.setattr(run, "flow_run", given)
    assert run.run_name() == "flywheel lamps.toml"
