"""Two trainings never share a GPU: the second waits, says for whom, and goes on when the first is gone."""

import subprocess
import sys
from pathlib import Path

import pytest

from learning.launch import lock_gpus, take_gpus
from tests.fixtures.sentences import Sentences
from tests.unit.learning.samples import job, parent

HOLD = "import sys; from pathlib import Path; from learning.launch import lock_gpus\n"
HOLD += "held = lock_gpus(sys.argv[2:], lambda text: print(text, flush=True), Path(sys.argv[1]))\n"
HOLD += "print('has', *sys.argv[2:], flush=True); sys.stdin.read()"


def training(folder: Path, *names: str) -> subprocess.Popen[str]:
    words, pipe = [sys.executable, "-c", HOLD, str(folder), *names], subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.slow
def test_the_second_waits_and_goes_on_when_the_first_is_killed(tmp_path: Path, sentence: Sentences) -> None:
    first = training(tmp_path, "a", "b")
    assert line(first) == "has a b"
    second, other = training(tmp_path, "b"), training(tmp_path, "c")
    try:
        sentence(line(second), first.pid, PROCESS=first.pid)
        assert line(other) == "has c"
        first.kill()
        assert line(second) == "has b"
    finally:
        for one in (first, second, other):
            one.kill()
            one.communicate()


def test_what_is_given_back_is_free(tmp_path: Path) -> None:
    said: list[str] = []
    for _ in range(2):
        for lock in lock_gpus(["a"], said.append, tmp_path):
            lock.release()
    assert not said


def test_a_training_without_a_gpu_waits_for_nobody(tmp_path: Path) -> None:
    parent(tmp_path)
    assert take_gpus(job(tmp_path), lambda text: None) == []
