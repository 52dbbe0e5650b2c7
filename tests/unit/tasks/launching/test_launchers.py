"""What is run where, and that a training which cannot go well is refused with the machine's name."""

import shlex
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from learning.status_folder import StatusFolder
from schemas.config.training import TrainConfig
from tasks.launching import node
from tasks.launching.launchers import Start, blanks, node_command
from tests.unit.learning.samples import job, parent


def start(folder: Path, **train: object) -> Start:
    made = job(folder)
    made = made.model_copy(update={"train": TrainConfig(**{**made.train.model_dump(), **train})})
    return Start(made, str(folder / "job.json"), str(folder / "a board"), "flywheel-1", folder / "trainer.log")


def test_the_blanks_of_a_template_are_the_machines_and_what_runs_on_each(tmp_path: Path) -> None:
    machines = {"command": "srun --nodes={nodes} {node}", "nodes": 4, "least": 2}
    given = start(tmp_path, launch="command", machines=machines)
    found = blanks(given)
    assert (found["nodes"], found["least"], found["name"]) == ("4", "2", "flywheel-1")
    words = shlex.split(found["node"])
    assert words == node_command(given) and words[:4] == [sys.executable, "-P", "-m", "tasks.launching.node"]
    assert words[4:] == [given.at, given.board, "--nodes", "2:4", "--name", "flywheel-1"]


@pytest.mark.parametrize(
    ("train", "named"),
    [
        ({"launch": "torchrun"}, "machines.hosts"),
        ({"launch": "command"}, "machines.command has to hold {node}"),
        ({"launch": "command", "machines": {"command": "srun hostname"}}, "machines.command has to hold {node}"),
        ({"machines": {"nodes": 2, "least": 3}}, "least is 3"),
        ({"machines": {"store": "gs://bucket"}}, "store is gs://bucket"),
        ({"machines": {"reach": "ssh"}}, "{host} once"),
        ({"launch": "torchrun", "machines": {"hosts": ["a"]}, "method": "grpo", "stream": {"on": True}}, "stream.on"),
        ({"launch": "torchrun", "machines": {"hosts": ["a"], "store": "s3://a/b"}, "profile": 3}, "profile is 3"),
    ],
)
def test_a_launch_that_cannot_start_is_refused_by_its_key(train: dict[str, object], named: str) -> None:
    with pytest.raises(ValidationError) as refused:
        TrainConfig.model_validate(train)
    assert named in str(refused.value)


def test_more_processes_than_a_machine_has_gpus_are_refused_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent(tmp_path)
    given = start(tmp_path, processes=8)
    Path(given.at).write_text(given.job.model_dump_json())
    monkeypatch.setattr(node, "gpus_of", lambda job: 4)
    monkeypatch.setattr(node.socket, "gethostname", lambda: "node-7")
    assert node.main([given.at, given.board, "--nodes", "1:1", "--name", given.name]) == 2
    (answer,) = StatusFolder(given.board).complaints()
    assert answer.startswith("node-7: `train.processes` is 8") and "has 4" in answer


def test_a_machine_that_does_not_see_the_job_says_which_folder_it_lacks(tmp_path: Path) -> None:
    board = tmp_path / "board"
    assert node.main([str(tmp_path / "no.json"), str(board), "--nodes", "1:1", "--name", "x"]) == 2
    (answer,) = StatusFolder(board).complaints()
    assert "no.json" in answer and "FLYWHEEL_HOME" in answer
