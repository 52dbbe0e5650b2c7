"""A user's folder that holds `models.py`, `schemas/` or `tasks/`: all of ours runs there, and their scripts too."""

import os
import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from common.process import SAFE_PATH, ours, theirs
from schemas.config.sections import LakeConfig
from storage.lake import Lake
from tasks.running.cluster import _path_hook, without_folder
from tests.shadowed import shadow
from tests.system.parts.trainings import on, trained
from tests.unit.learning.samples import job, parent

ROOT = Path(__file__).parents[2]
CONFIG = """
[environments.fake]
sandboxes = 2
[suite]
tasks = ["fake/click-one"]
[collect]
trajectories_per_task = 6
[policy]
max_new_tokens = 8
[train]
processes = 2
steps_first = 4
steps = 4
batch = 4
warmup = 1
[promote]
unparsable = 1
[evaluate]
seeds = 2
explorer_seeds = 2
untrained_seeds = 1
held_out_seeds = 0
[lake]
uri = "lake"
min_free_mb = 10
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shadow(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.nightly
@pytest.mark.timeout(400)
def test_a_whole_iteration_with_two_trainer_processes_runs_there(folder: Path) -> None:
    (folder / "flywheel.toml").write_text(CONFIG)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "apps.cli", "run", "--iterations", "1"],
        env={**os.environ, "FLYWHEEL_HOME": str(folder / "work")}, capture_output=True, text=True, timeout=380,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lake = Lake.open(LakeConfig(uri=str(folder / "lake")), create=False)
    assert "iteration" in lake.read("policies")["kind"].to_pylist()
    assert lake.count("evaluations")


@pytest.mark.parametrize(
    ("launch", "machines"),
    [
        ("local", {}),
        pytest.param("torchrun", {"hosts": ["localhost"]}, marks=pytest.mark.nightly),
        pytest.param("torchrun", {"hosts": ["elsewhere"], "reach": "/bin/sh -c : {host}"}, marks=pytest.mark.nightly),
        pytest.param("command", {"command": f"{sys.executable} submit.py {{node}}"}, marks=pytest.mark.nightly),
    ],
)
@pytest.mark.slow
def test_a_training_of_two_processes_runs_there_however_it_is_started(
    launch: str, machines: dict[str, object], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A user's submitting script imports its sibling; a machine that is reached begins in the same folder."""
    (folder / "submit.py").write_text("import sibling, sys\nsibling.run(sys.argv[1:])\n")
    (folder / "sibling.py").write_text("import subprocess, sys\ndef run(words): sys.exit(subprocess.call(words))\n")
    reach = folder / "reach"
    reach.write_text('#!/bin/sh\nexec sh -c "$2"\n')
    reach.chmod(0o755)
    if "reach" in machines:
        machines = {**machines, "reach": f"{reach} {{host}}"}
    place = tmp_path_factory.mktemp("training")
    parent(place)
    plan = on(
        job(place, count=16, steps=4, batch=4), "out", processes=2, launch=launch, machines=machines, hung_s=60,
        restarts=0,
    )  # fmt: skip
    output, _ = trained(plan)
    assert output.processes == 2 and (plan.out / "model.safetensors").is_file()


def test_a_user_s_command_gets_back_the_path_that_it_would_have_had() -> None:
    assert ours({"A": "1"}) == {"A": "1", SAFE_PATH: "flywheel"}
    assert theirs(ours({"A": "1"})) == {"A": "1"}
    assert theirs(ours(ours({SAFE_PATH: ""}))) == {}, "Python takes an empty one for none"
    assert theirs(ours({SAFE_PATH: "1"})) == {SAFE_PATH: "1"}, "the user's own stays"


@pytest.mark.parametrize("without", [True, False])
def test_a_worker_of_ray_imports_nothing_from_the_folder_that_ray_puts_first(without: bool, folder: Path) -> None:
    """ray 2.60.0 does so in `ray._private.worker.connect`, also where the driver has PYTHONSAFEPATH."""
    hook = cloudpickle.dumps(without_folder(str(folder)))
    code = f"""
import importlib, pickle, sys
hook = pickle.loads({hook!r})
if {without}:
    hook()
sys.path.insert(0, {str(folder)!r})
importlib.invalidate_caches()
import schemas.failure, yaml
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == without, done.stderr
    assert without or "is the user's own" in done.stderr


def test_the_code_s_own_folder_stays_on_the_path_of_ray_s_workers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _path_hook("") and not _path_hook("ray://head:10001")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert not _path_hook("")
    monkeypatch.delenv("PYTHONPATH")
    assert _path_hook("10.0.0.1:6379")
    monkeypatch.chdir(ROOT)
    assert not _path_hook("")


@pytest.mark.slow
def test_the_flows_are_imported_before_prefect_puts_the_folder_first(folder: Path) -> None:
    """prefect 3.9.1 does so in `prefect.utilities.importtools.load_module`, also where PYTHONSAFEPATH is set."""
    code = """
from prefect.utilities.importtools import import_object
from apps.schedule.deployments import described, flow_at
if {ahead}:
    flows = [flow_at(one["entrypoint"]) for one in described()]
print(*(import_object(one["entrypoint"]).name for one in described()))
"""
    for ahead in (True, False):
        words = [sys.executable, "-P", "-c", code.replace("{ahead}", str(ahead))]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) == ahead, done.stderr
        assert "flywheel" in done.stdout.split() if ahead else "is the user's own" in done.stderr
