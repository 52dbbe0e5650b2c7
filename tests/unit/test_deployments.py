"""What prefect.yaml deploys: dotted entrypoints that import, flows of the expected names, defaults that fit them."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect import Flow

from schemas.config import Config

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text())
DEPLOYMENTS = {one["name"]: one for one in DEPLOYED["deployments"]}


def flow_of(name: str) -> Flow[..., Any]:
    module, _, function = DEPLOYMENTS[name]["entrypoint"].rpartition(".")
    return getattr(import_module(module), function)


def test_the_five_flows_are_deployed() -> None:
    assert set(DEPLOYMENTS) == {"flywheel", "collect", "retrain", "evaluate", "report"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_an_entrypoint_is_a_dotted_path_to_a_flow_of_that_name(name: str) -> None:
    assert ":" not in DEPLOYMENTS[name]["entrypoint"] and ".py" not in DEPLOYMENTS[name]["entrypoint"]
    flow = flow_of(name)
    assert isinstance(flow, Flow)
    assert flow.name == name


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_s_parameters_are_the_flow_s_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    validated = flow_of(name).validate_parameters(DEPLOYMENTS[name]["parameters"])
    assert isinstance(validated["config"], Config)
    assert validated["config"].name == "laptop"


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_runs_one_at_a_time_and_waits_to_be_switched_on(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    assert deployment["concurrency_limit"]["limit"] == 1
    assert deployment["work_pool"]["name"] == "flywheel"
    assert all(schedule["active"] is False for schedule in deployment["schedules"])
    assert deployment["schedules"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_may_name_its_config_file_although_the_schema_asks_for_an_object(name: str) -> None:
    assert DEPLOYMENTS[name]["enforce_parameter_schema"] is False


def test_no_folder_of_any_machine_is_written_down() -> None:
    steps = str(DEPLOYED["pull"])
    assert "set_working_directory" in steps
    assert "/" not in DEPLOYED["pull"][0]["prefect.deployments.steps.set_working_directory"]["directory"]
