"""What prefect.yaml deploys: dotted entrypoints that import, flows of the expected names, defaults that fit them."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError, validate
from prefect import Flow
from prefect.utilities.callables import parameter_schema
from pydantic import TypeAdapter

from apps.completion import KEYS
from apps.schedule.deployments import LEAST_S, TURNS, described, in_words, schedule_of
from flows.deployed import Override
from schemas.config.form import override_pattern
from schemas.failure import UsageError

ROOT = Path(__file__).resolve().parents[2]
DEPLOYED: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text())
DEPLOYMENTS = {one["name"]: one for one in DEPLOYED["deployments"]}


def flow_of(name: str) -> Flow[..., Any]:
    module, _, function = DEPLOYMENTS[name]["entrypoint"].rpartition(".")
    return getattr(import_module(module), function)


def test_these_flows_are_deployed() -> None:
    assert set(DEPLOYMENTS) == {
        "flywheel", "collect", "retrain", "quality", "evaluate", "watch", "maintain", "report"
    }  # fmt: skip
    assert list(DEPLOYMENTS) == [one["name"] for one in described()]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_an_entrypoint_is_a_dotted_path_to_a_flow_of_that_name(name: str) -> None:
    assert ":" not in DEPLOYMENTS[name]["entrypoint"] and ".py" not in DEPLOYMENTS[name]["entrypoint"]
    flow = flow_of(name)
    assert isinstance(flow, Flow)
    assert flow.name == name


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_s_parameters_are_the_flow_s_own_and_fit_the_schema_that_is_enforced(name: str) -> None:
    given = DEPLOYMENTS[name]["parameters"]
    schema = parameter_schema(flow_of(name)).model_dump()
    assert DEPLOYMENTS[name]["enforce_parameter_schema"] is True
    assert set(given) == set(schema["properties"]) >= {"config", "overrides"}
    validate(given, schema)
    assert flow_of(name).validate_parameters(given) == given
    validate({**given, "overrides": ["train.steps=3", 'environments={"mine":{"kind":"fake"}}']}, schema)
    unknown = [{"overrides": [one]} for one in ("no override", "train.stepz=3", "stepz=3", "train.steps.more=3")]
    for broken in (*unknown, {"overrides": "train.steps=3"}, {"config": 3}):
        with pytest.raises(ValidationError):
            validate({**given, **broken}, schema)


def test_the_form_takes_every_key_of_the_config() -> None:
    pattern = re.compile(override_pattern())
    assert all(pattern.match(f"{line.split()[0]}=1") for line in KEYS.read_text().splitlines())
    for free in (
        "suite.max_steps.click-one=3",
        "filter.options.idle.least=2",
        "policy.server.extra.top_k=3",
        "train.steps=",
        "environments.fake.name=Do it.\nThen stop.\n",
    ):
        assert pattern.match(free)
        assert TypeAdapter(Override).validate_python(free) == free
        validate(free, TypeAdapter(Override).json_schema())


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_the_form_says_what_each_parameter_is_and_asks_for_no_section_of_the_config(name: str) -> None:
    fields = parameter_schema(flow_of(name)).model_dump()["properties"]
    assert all(field["description"] for field in fields.values())
    assert {field["type"] for field in fields.values()} <= {"string", "array", "integer"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_waits_to_be_switched_on_and_what_uses_the_machine_waits_for_its_turn(name: str) -> None:
    deployment = DEPLOYMENTS[name]
    assert deployment["work_pool"]["name"] == "flywheel"
    busy = name in ("flywheel", "collect", "retrain", "evaluate")
    assert (deployment["work_pool"]["work_queue_name"] == TURNS) == busy
    assert all(schedule["active"] is False for schedule in deployment["schedules"])
    assert deployment["schedules"]


def test_no_folder_of_any_machine_is_written_down() -> None:
    steps = str(DEPLOYED["pull"])
    assert "set_working_directory" in steps
    assert "/" not in DEPLOYED["pull"][0]["prefect.deployments.steps.set_working_directory"]["directory"]


def test_a_schedule_is_read_and_shown_as_people_write_it() -> None:
    assert in_words(schedule_of("0 2 * * *", None, "Europe/Berlin")) == "0 2 * * * (Europe/Berlin)"
    shown = [in_words(schedule_of(None, every, "UTC")) for every in ("90s", "60m", "6h", "48h")]
    assert shown == ["every 90s", "every 1h", "every 6h", "every 2d"]
    wrong = [("x", None), ("0 2 * *", None), (None, "6"), (None, "0h"), (None, f"{LEAST_S - 1}s"), (None, None)]
    for cron, every in wrong:
        with pytest.raises(UsageError):
            schedule_of(cron, every, "UTC")
    with pytest.raises(UsageError, match="Mars"):
        schedule_of("0 2 * * *", None, "Mars/Olympus")


def test_the_deployments_name_the_prefect_that_is_pinned() -> None:
    pins = (ROOT / "requirements.lock").read_text().splitlines()
    assert f"prefect=={DEPLOYED['prefect-version']}" in pins
