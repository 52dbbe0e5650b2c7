"""Trainings that hang, lose a process or lose a machine go on within the run; started in all the ways there are."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import psutil
import pytest

from learning.job import Job, TrainerReport, steps_folder
from schemas.failure import FlywheelError
from storage.objects import open_store
from tests.processes import left, mentioning, running, words
from tests.system.parts.s3 import BUCKET
from tests.system.parts.trainings import PAGE, on, same, template, trained
from tests.unit.learning.samples import job as small_job
from tests.unit.learning.samples import parent

pytestmark = pytest.mark.slow


TWICE = "{node} & {node} & wait"
"""A command that starts two machines' worth of processes on this one."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one training, which each test starts in its own way."""
    folder = tmp_path_factory.mktemp("training")
    parent(folder)
    return folder


@pytest.fixture(scope="module")
def unbroken(shared: Path) -> Job:
    """On two processes, which nothing happens to."""
    made = on(small_job(shared, count=160, steps=40, batch=4, checkpoint_every=10), "unbroken", processes=2)
    output, _ = trained(made)
    assert output.restarts == 0 and output.processes == 2
    return made


@pytest.fixture
def plan(shared: Path, tmp_path: Path, unbroken: Job) -> Job:
    """The same, with a result of its own."""
    return unbroken.model_copy(update={"out": tmp_path / "out"})


def processes(module: str) -> list[psutil.Process]:
    """Those of this test that run a module, oldest first; not torchrun's own."""
    found = running(module, psutil.Process().children(recursive=True))
    return [one for one in found if "torch.distributed.run" not in words(one)]


def strike(number: signal.Signals, module: str, plan: Job) -> Callable[[TrainerReport], None]:
    """Once half of the steps are made and a checkpoint is there: a signal to the last process of this kind."""
    struck: list[int] = []

    def meanwhile(message: TrainerReport) -> None:
        if not struck and (message.step or 0) >= 20 and list(steps_folder(plan).glob("*/manifest.json")):
            last = processes(module)[-1]
            struck.append(last.pid)
            whole = [last, *last.children(recursive=True)] if number == signal.SIGKILL else [last]
            for one in whole:
                one.send_signal(number)

    return meanwhile


@pytest.mark.parametrize("number", [signal.SIGSTOP, pytest.param(signal.SIGKILL, marks=pytest.mark.nightly)])
def test_a_rank_that_hangs_or_dies_is_noticed_and_the_training_ends_with_the_same_weights(
    plan: Job, unbroken: Job, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    struck = on(plan, "struck", processes=2)
    output, heard = trained(struck, strike(number, "learning.trainer", struck))
    assert output.restarts == 1 and output.metrics["restarts"] == 1
    (resumed,) = [one.resumed for one in heard if one.resumed is not None]
    assert 10 <= resumed < 40 and same(unbroken, struck)
    answer = " ".join(capsys.readouterr().err.split())
    assert ("was not heard of for" if number == signal.SIGSTOP else "The trainer died with") in answer
    assert "started again (1 of 2 times)" in answer and not processes("learning.trainer")


@pytest.mark.nightly
def test_a_rank_that_dies_before_it_has_joined_ends_the_start_at_once(plan: Job, tmp_path: Path) -> None:
    path = tmp_path / "early.json"
    path.write_text(on(plan, "early", processes=2).model_dump_json())
    command = [sys.executable, "-m", "learning.trainer", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as trainer:
        while not (ranks := psutil.Process(trainer.pid).children()):
            time.sleep(0.05)
        ranks[0].kill()
        said = trainer.communicate(timeout=60)[1]
    assert trainer.returncode == 1 and "rank 1 ended with -9 before it joined" in said


@pytest.mark.nightly
def test_a_training_that_dies_more_often_than_it_is_restarted_is_an_error_with_the_end_of_its_log(plan: Job) -> None:
    once = on(plan, "once", processes=2, restarts=0)
    with pytest.raises(FlywheelError, match="The trainer died with"):
        trained(once, strike(signal.SIGKILL, "learning.trainer", once))
    assert not once.out.exists() and not processes("learning.trainer")


@pytest.mark.nightly  # two that hang or die always run
def test_two_machines_under_torchrun_train_what_two_processes_of_one_do(plan: Job, unbroken: Job) -> None:
    machines = {"hosts": ["localhost", "localhost"]}
    both = on(plan, "both", launch="torchrun", processes=1, machines=machines, hung_s=30)
    output, heard = trained(both)
    assert (output.machines, output.processes, output.restarts) == (2, 2, 0) and same(unbroken, both)
    assert heard[0].gpus == {os.uname().nodename: 0}


@pytest.mark.nightly
def test_a_machine_that_dies_is_gone_on_without_from_the_last_checkpoint(plan: Job, tmp_path: Path) -> None:
    gone, reach = tmp_path / "gone", tmp_path / "reach"
    reach.write_text(f'#!/bin/sh\n[ "$1" = far ] && [ -e {gone} ] && exit 255\nexec sh -c "$2"\n')
    reach.chmod(0o755)
    machines = {"hosts": ["near", "far"], "reach": f"{reach} {{host}}", "least": 1, "join_s": 2}
    lost = on(plan, "lost", launch="torchrun", processes=1, machines=machines, hung_s=6)
    die = strike(signal.SIGKILL, "tasks.launching.node", lost)

    def meanwhile(message: TrainerReport) -> None:
        die(message)
        if len(processes("tasks.launching.node")) < 2:
            gone.touch()

    output, heard = trained(lost, meanwhile)
    assert [one.processes for one in heard if "processes" in one.model_fields_set] == [2, 1]
    assert output.restarts == 1 and (output.resumed or 0) >= 10 and lost.out.is_dir()


@pytest.mark.nightly
def test_a_command_starts_the_machines_and_what_it_started_ends_with_it(plan: Job, unbroken: Job) -> None:
    machines = {"command": TWICE, "nodes": 2}
    both = on(plan, "commanded", launch="command", processes=1, machines=machines, hung_s=30)
    output, _ = trained(both)
    assert (output.machines, output.processes) == (2, 2) and same(unbroken, both)
    assert not processes("tasks.launching.node")


class Enough(Exception):
    """An interruption."""


@pytest.mark.nightly
@pytest.mark.parametrize("escapes", [False, True])
def test_an_interrupted_run_ends_what_a_command_started_and_cancels_it(
    plan: Job, tmp_path: Path, escapes: bool
) -> None:
    cancelled = tmp_path / "cancelled"
    command = "(setsid {node} &); (setsid {node} &); sleep 1000" if escapes else TWICE
    machines: Mapping[str, object] = {"command": command, "nodes": 2, "cancel": f"echo {{name}} > {cancelled}"}
    both = on(plan, "interrupted", launch="command", processes=1, machines=machines).model_copy(
        update={"steps": 100_000}
    )
    seen: list[psutil.Process] = []

    def interrupt(message: TrainerReport) -> None:
        if message.step is not None:
            seen.extend(mentioning(str(tmp_path), psutil.process_iter()))
            raise Enough

    with pytest.raises(Enough):
        trained(both, interrupt)
    assert cancelled.read_text().startswith("flywheel-") and seen
    assert left((one.pid for one in seen), 15) == []


SRUN = """#!/bin/sh
# runs a command as often as --nodes asks for at the most, as srun does on machines
while [ $# -gt 0 ]; do
  case "$1" in
    --nodes) most="${2#*-}"; shift 2 ;;
    --job-name | --ntasks-per-node | --gpus-per-node) shift 2 ;;
    *) break ;;
  esac
done
for machine in $(seq "$most"); do "$@" & done
wait
"""
KUBECTL = """#!{python}
# runs the container's command of an applied job as often as it says, and tells whether all went well
import json, os, subprocess, sys, yaml
state = "{state}"
if sys.argv[1] == "apply":
    job = yaml.safe_load(sys.stdin)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    if os.fork() == 0:
        runs = [subprocess.Popen(command, start_new_session=True) for _ in range(job["spec"]["parallelism"])]
        codes = [one.wait() for one in runs]
        open(state, "w").write("Failed" if any(codes) else "SuccessCriteriaMet Complete")
elif sys.argv[1] == "get" and os.path.exists(state):
    print(open(state).read())
"""


def stands_in(name: str, script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts a script in the place of a program."""
    (folder / "bin").mkdir()
    (folder / "bin" / name).write_text(script)
    (folder / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


@pytest.mark.nightly
def test_the_template_for_slurm_starts_two_machines(
    plan: Job, tmp_path: Path, unbroken: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_in("srun", SRUN, tmp_path, monkeypatch)
    both = on(plan, "slurm", launch="command", processes=1, machines=template("srun"), hung_s=30)
    assert trained(both)[0].machines == 2 and same(unbroken, both)


@pytest.mark.nightly
@pytest.mark.usefixtures("credentials")
def test_the_template_for_kubernetes_starts_two_machines_that_meet_on_s3(
    plan: Job, tmp_path: Path, unbroken: Job, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("FLYWHEEL_SCRATCH", str(tmp_path / "scratch"))
    stands_in("kubectl", KUBECTL.format(python=sys.executable, state=tmp_path / "state"), tmp_path, monkeypatch)
    (manifest,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "trainer.yaml").write_text(manifest)
    own = {"/etc/flywheel": str(tmp_path), "s3://flywheel/training": f"s3://{BUCKET}/trainings"}
    machines = {**template("kubectl", **own), "python": sys.executable, "store": f"s3://{BUCKET}/trainings"}
    both = on(plan, "kubernetes", launch="command", processes=1, machines=machines, hung_s=30)
    assert trained(both)[0].machines == 2 and same(unbroken, both)


@pytest.mark.nightly
@pytest.mark.usefixtures("credentials")
def test_a_training_on_s3_goes_on_from_its_checkpoint_there_and_leaves_nothing_behind(
    plan: Job, tmp_path: Path, unbroken: Job, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    monkeypatch.setenv("FLYWHEEL_SCRATCH", str(tmp_path / "scratch"))
    machines = {"command": TWICE, "nodes": 2, "store": f"s3://{BUCKET}/elsewhere"}
    far = on(plan, "far", launch="command", processes=1, machines=machines, hung_s=8)
    store = open_store(f"s3://{BUCKET}/elsewhere")
    struck: list[int] = []

    def kill(message: TrainerReport) -> None:
        if not struck and any("/steps/step-" in name and name.endswith("manifest.json") for name in store.sizes()):
            shutil.rmtree(tmp_path / "scratch")
            for one in processes("tasks.launching.node"):
                struck.append(one.pid)
                for rank in [one, *one.children(recursive=True)]:
                    rank.kill()

    output, _ = trained(far, kill)
    assert output.restarts == 1 and (output.resumed or 0) >= 10 and same(unbroken, far)
    assert (far.out / "training").is_dir() and not store.sizes()
