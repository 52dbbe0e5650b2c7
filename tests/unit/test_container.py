"""The container's file makes what `make setup` makes: it is held against the script, and is not built here; and the job
template of a pool runs it."""

import json
import re
import tomllib
from pathlib import Path

from prefect.client.schemas.actions import WorkPoolCreate

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def told(instruction: str) -> list[str]:
    """What an instruction is given, every time."""
    whole = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{instruction} (.*)$", whole, re.MULTILINE)


def test_its_python_is_one_that_the_project_takes_and_no_tag_moves() -> None:
    (image,) = told("FROM")
    found = re.fullmatch(r"python:(\d+)\.(\d+)-slim-\w+", image)
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert found and wanted == f">={found[1]}.{found[2]}"


def test_its_packages_are_those_that_the_set_up_would_fetch_and_it_runs_the_set_up() -> None:
    (apt,) = [line for line in told("RUN") if "apt-get install" in line]
    setup = (ROOT / "scripts/setup.sh").read_text()
    assert "apt_install chromium-headless-shell" in setup and "chromium-headless-shell" in apt and " make " in apt
    (made,) = [line for line in told("RUN") if "make setup" in line]
    assert "FLYWHEEL_TORCH_INDEX" in made and "FLYWHEEL_TORCH_INDEX" in setup
    assert told("ARG") == ["FLYWHEEL_TORCH_INDEX="]
    assert "setup: .venv/ready" in (ROOT / "Makefile").read_text()


def test_it_runs_as_nobody_special_and_writes_to_one_place() -> None:
    assert told("USER") == ["flywheel"] and told("VOLUME") == ["/project"] and told("WORKDIR")[-1] == "/project"
    assert DOCKERFILE.index("USER flywheel") > DOCKERFILE.index("make setup")
    assert told("ENTRYPOINT") == ['["flywheel"]']


def test_nothing_that_is_made_here_is_copied_and_everything_that_the_set_up_reads_is() -> None:
    left_out = (ROOT / ".dockerignore").read_text().split()
    assert {".venv", ".git", "lake", ".flywheel"} <= set(left_out)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
        "packages"
    ]
    for name in (*packages, "scripts", "Makefile", "README.md", "pyproject.toml", "requirements.lock"):
        assert (ROOT / name).exists() and name not in left_out


def test_a_pool_of_kubernetes_runs_commands_in_it_and_every_variable_is_told_of() -> None:
    template = json.loads((ROOT / "configs/kubernetes.json").read_text())
    pool = WorkPoolCreate(name="cluster", type="kubernetes", base_job_template=template)
    (container,) = pool.base_job_template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["env"] and container["args"] == "{{ command }}", "its entry point is `flywheel`"
    used = set(re.findall(r"{{ (\w+) }}", json.dumps(template["job_configuration"])))
    assert used == template["variables"]["properties"].keys()
    assert container["volumeMounts"][0]["mountPath"] in told("VOLUME")
