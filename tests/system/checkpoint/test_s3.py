"""Checkpoints on a real S3 server: saved by gloo ranks, looked into by the command line, loaded by one process."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import s3fs
import torch

from learning.checkpoint import Checkpoints, verify
from schemas.failure import CheckpointError
from tests.system.parts.ranks import run_text
from tests.system.parts.s3 import BUCKET, KEY, SECRET

pytestmark = pytest.mark.usefixtures("credentials")
PLACE = f"s3://{BUCKET}/training/checkpoints"
SAVE = """
import sys
import s3fs, torch, torch.distributed as dist
from learning.checkpoint import Checkpoints, Stretch

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, place, files = dist.get_rank(), sys.argv[1], s3fs.S3FileSystem(endpoint_url=sys.argv[2])
with Checkpoints(place, keep=1, filesystem=files) as checkpoints:
    for step in (1, 2):
        whole = torch.arange(3_000_000.0) * step
        low, high = (0, 1_000_001) if rank == 0 else (1_000_001, 3_000_000)
        state = {"w": Stretch(whole[low:high].clone(), (3000, 1000), low), "s": torch.tensor(float(step))}
        checkpoints.save(state, step, {"step": step})
dist.destroy_process_group()
"""


@pytest.mark.nightly  # test_s3_lake.py keeps checkpoints there, too
def test_what_ranks_save_on_s3_one_process_loads_and_damage_is_found(endpoint: str, tmp_path: Path):
    run_text(SAVE, tmp_path, PLACE, endpoint, ranks=2)
    files = s3fs.S3FileSystem(key=KEY, secret=SECRET, endpoint_url=endpoint, use_listings_cache=False)
    names = files.find(f"{BUCKET}/training/checkpoints")
    assert {name.split("/")[3] for name in names} == {"step-00000002"} and len(names) == 4
    checkpoints = Checkpoints(PLACE, filesystem=files)
    found = {"w": torch.zeros(3000, 1000), "s": torch.tensor(0.0)}
    assert checkpoints.load(found) == {"step": 2}
    assert torch.equal(found["w"].flatten(), torch.arange(3_000_000.0) * 2) and float(found["s"]) == 2
    assert checkpoints.store.read_bytes < 12_000_004 + 50_000
    words = [sys.executable, "-m", "apps.cli", "checkpoint", "verify", PLACE, f"lake.endpoint={endpoint}", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=os.environ)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"], done.stderr
    shard = next(name for name in names if name.endswith("-00001.distcp"))
    content = bytearray(files.cat_file(shard))
    content[5_000_000] ^= 1
    files.pipe_file(shard, bytes(content))
    assert verify(checkpoints.store).damaged == {shard.rpartition("/")[2]: ["w"]}
    with pytest.raises(CheckpointError, match=r"s3://.*-00001\.distcp: `w` differs from the saved data"):
        checkpoints.load(found)
    with pytest.raises(CheckpointError, match="step-00000002 is already there"):
        checkpoints.save(found, 2)
