"""Who works on a lake is seen there, and one that is gone is in nobody's way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.config.sections import LakeConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.running.lake_use import FOLDER, in_use, require_idle

WORK = "from tasks.running.lake_use import in_use; from storage.lake import Lake; import sys; "
WORK += "from schemas.config.sections import LakeConfig; lake = Lake.open(LakeConfig(uri=sys.argv[1]))\n"
WORK += "with in_use(lake, 'retrain'):\n  print('at it', flush=True); sys.stdin.read()"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open(LakeConfig(uri=str(tmp_path / "lake")))


def test_many_work_at_once_and_leave_nothing_behind(lake: Lake) -> None:
    with in_use(lake, "merge"), in_use(lake, "merge"), pytest.raises(UsageError, match=r"\(merge\)"):
        require_idle(lake)
    require_idle(lake)
    assert not list((Path(lake.uri) / "blobs" / FOLDER).iterdir())


def test_another_process_is_named_and_counts_nothing_after_a_kill(lake: Lake) -> None:
    pipe = subprocess.PIPE
    other = subprocess.Popen([sys.executable, "-c", WORK, lake.uri], stdin=pipe, stdout=pipe, text=True)
    try:
        assert other.stdout is not None and other.stdout.readline() == "at it\n"
        with pytest.raises(UsageError, match=rf"Process {other.pid} of .* \(retrain\)"):
            require_idle(lake)
    finally:
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    require_idle(lake)
    assert not lake.blobs.store.sizes(FOLDER)
    other.communicate()
