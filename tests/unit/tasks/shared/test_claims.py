"""Names of policies: each is one maker's, also of several processes at once, and a dead one's is taken up."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.shared.lease import claim
from tests.fixtures.sentences import Sentences

CLAIM = "from tasks.shared.lease import claim; from storage.lake import Lake; import json, sys; "
CLAIM += "from schemas.config.sections import LakeConfig; lake = Lake.open(LakeConfig(uri=sys.argv[1])); "
CLAIM += "print(claim(lake, 'retrained', json.loads(sys.argv[2])), flush=True); sys.stdin.read()"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake")))


def maker(lake: Lake, recipe: dict[str, int]) -> subprocess.Popen[str]:
    """A process that claims a name and then works until its standard input ends."""
    words = [sys.executable, "-c", CLAIM, lake.uri, json.dumps(recipe)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def name_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_processes_that_claim_at_once_get_a_name_each(lake: Lake) -> None:
    makers = [maker(lake, {"seed": seed // 2}) for seed in range(4)]
    try:
        assert {name_of(one) for one in makers} == {f"retrained-{number:04d}" for number in range(4)}
    finally:
        for one in makers:
            one.communicate()


def test_the_name_of_a_dead_maker_is_taken_up_for_the_same_and_for_nothing_else(lake: Lake) -> None:
    dead = maker(lake, {"seed": 1})
    name = name_of(dead)
    dead.kill()
    dead.communicate()
    assert name == "retrained-0000"
    assert claim(lake, "retrained", {"seed": 2}) == "retrained-0001"
    assert claim(lake, "retrained", {"seed": 1}) == "retrained-0000"
    assert claim(lake, "retrained", {"seed": 1}) == "retrained-0002", "its second maker lives"


def test_a_name_of_ones_own_is_given_once(lake: Lake, sentence: Sentences) -> None:
    assert claim(lake, "adopted", {"from": "a"}, "ours-1.0") == "ours-1.0"
    with pytest.raises(UsageError, match=r"`ours-1\.0` is taken"):
        claim(lake, "adopted", {"from": "b"}, "ours-1.0")
    for name in ("champion", "run", "../up", "", "a b"):
        with sentence.raises(UsageError):
            claim(lake, "adopted", {}, name)
