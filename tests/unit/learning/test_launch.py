"""How many ranks a training has, what they wait for, and what whoever started it is told."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from learning.job import TrainerReport, sweep
from learning.launch import processes_of
from learning.trainer import train
from learning.writing import sweep_leftovers
from schemas.failure import CheckpointError, UsageError
from tasks.launching.trainer_process import TrainerProcess
from tests.fixtures.sentences import Sentences
from tests.system.parts.ranks import run_text
from tests.unit.learning.samples import job, parent


@pytest.mark.parametrize(
    ("asked", "gpus", "made"), [("auto", 0, 2), ("auto", 1, 1), ("auto", 8, 8), (2, 8, 2), (5, 0, 5)]
)
def test_there_is_one_process_per_gpu_or_two_without_any_or_as_many_as_asked_for(asked, gpus: int, made: int) -> None:
    assert processes_of(asked, gpus) == made


def test_more_processes_than_gpus_are_refused_by_name(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "train.processes", hint="train.processes"):
        processes_of(2, 1)


@pytest.mark.nightly
def test_whatever_libraries_print_goes_to_the_log_and_is_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noise").mkdir()
    printed = "NCCL version 2.27.5+cuda13.0\\n" + '{"loss": "mine", "step": null}\\n' + "[1, 2]\\n"
    (tmp_path / "noise" / "sitecustomize.py").write_text(
        f"import os; os.write(1, b{printed!r})".replace("\\\\n", "\\n")
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "noise"), prepend=":")
    parent(tmp_path)
    messages: list[TrainerReport] = []
    with TrainerProcess(job(tmp_path, steps=1, processes=2), tmp_path) as trainer:
        told = trainer.listen(messages.append)
    assert told.loss > 0 and told.processes == 2 and told.device == "cpu"
    told_of = [one.model_fields_set & {"processes", "step", "checkpoint"} for one in messages]
    assert told_of == [{"processes"}, {"step"}, {"checkpoint"}]
    log = (tmp_path / "trainer.log").read_text()
    assert log.count("NCCL version") == 2 and '"mine"' in log


def test_what_a_killed_writer_left_is_swept_and_a_live_one_is_left_alone(tmp_path: Path, sentence: Sentences) -> None:

    parent(tmp_path)
    plan = job(tmp_path, steps=1)
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    dead, alive = (tmp_path / f"out.making-{socket.gethostname()}-{pid}" for pid in (gone.pid, 1))
    for folder in (dead, alive):
        folder.mkdir()
    with sentence.raises(CheckpointError, HOST=socket.gethostname()):
        sweep_leftovers(plan.out)
    alive.rmdir()
    dead.mkdir(exist_ok=True)
    train(plan)
    assert plan.out.exists() and not list(tmp_path.glob("out.making*"))
    sweep(plan)
    assert not plan.out.exists()


def test_a_training_that_has_ended_is_not_made_again_and_tells_again_what_it_came_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent(tmp_path)
    plan = job(tmp_path, steps=1)
    train(plan)
    before = (plan.out / "model.safetensors").stat()
    train(plan)
    assert (plan.out / "model.safetensors").stat() == before
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    first, again = (line for line in told if "checkpoint" in line)
    assert again == {name: first[name] for name in ("checkpoint", "loss", "numbers")} and again["loss"] > 0


SLOW = """
import sys, time
from datetime import timedelta
from pathlib import Path
import torch, torch.distributed as dist
from learning.checkpoint.planner import Ranks
from learning.job import read_job
from learning.launch import PATIENCE
from learning.writing import write_checkpoint

dist.init_process_group("gloo", timeout=timedelta(seconds=2))

class Slow:
    def write(self, folder, steps=None):
        if dist.get_rank() == 0:
            time.sleep(5)
            (folder / "written").touch()

ranks = Ranks(PATIENCE)
write_checkpoint(Slow(), read_job(Path(sys.argv[1])), ranks)
ranks.close()
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_the_other_ranks_wait_for_a_long_write_beyond_the_time_limit_of_a_step(tmp_path: Path) -> None:
    parent(tmp_path)
    plan = job(tmp_path)
    (tmp_path / "job.json").write_text(plan.model_dump_json())
    run_text(SLOW, tmp_path, tmp_path / "job.json", ranks=2)
    assert (plan.out / "written").exists()
