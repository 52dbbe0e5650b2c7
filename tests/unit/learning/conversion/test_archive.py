"""Files of `torch.save` are read without loading their numbers and without running code from them."""

import argparse
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata

from learning.checkpoint.shard_file import bytes_in
from learning.conversion.archive import Record, read_archive, read_metadata
from learning.conversion.stored import StoredTensor
from schemas.failure import CheckpointError, DamagedError
from tests.fixtures.sentences import Sentences


class Runs:
    """An object whose unpickling makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_tensors_become_positions_and_other_values_stay(tmp_path: Path):
    base = torch.arange(24, dtype=torch.bfloat16).view(4, 6)
    saved = {
        "view": base[1:, 2:5],
        "transposed": base.t(),
        "weight": torch.nn.Parameter(torch.rand(3)),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "eight": torch.ones(2, dtype=torch.float8_e4m3fn),
        "unsigned": torch.ones(2, dtype=torch.uint16),
        "rest": [1, 2.5, None, (torch.Size([3]), torch.float16), {"a"}],
        "arguments": argparse.Namespace(tensor=2),
    }
    torch.save(saved, tmp_path / "a.pt")
    content = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(b"before" + content + b"after")
    for file, place in (("a.pt", ()), ("b.pt", (6, len(content)))):
        found = read_archive(tmp_path / file, *place)
        for name, tensor in saved.items():
            if isinstance(tensor, torch.Tensor):
                one = found[name]
                assert isinstance(one, StoredTensor) and one.dtype == tensor.dtype
                assert bytes(bytes_in(one.read(one.box))) == bytes(bytes_in(tensor.detach().contiguous()))
        assert found["rest"] == saved["rest"]
        assert isinstance(found["arguments"], Record) and vars(found["arguments"])["tensor"] == 2


def test_code_in_a_file_is_refused_by_name_and_not_run(tmp_path: Path, sentence: Sentences):
    torch.save({"w": torch.ones(2), "hook": Runs(tmp_path / "made")}, tmp_path / "a.pt")
    with sentence.raises(CheckpointError, "posix.mkdir", tmp_path / "a.pt"):
        read_archive(tmp_path / "a.pt")
    metadata = Metadata({}, planner_data=Runs(tmp_path / "made"))
    (tmp_path / ".metadata").write_bytes(pickle.dumps(metadata))
    with pytest.raises(CheckpointError, match=r"posix\.mkdir"):
        read_metadata(tmp_path / ".metadata")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("size", [0, 3, 300, -20])
def test_a_cut_file_is_named(tmp_path: Path, size: int):
    file = tmp_path / "a.pt"
    torch.save({"w": torch.ones(20)}, file)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(DamagedError, match=r"a\.pt is cut"):
        read_archive(file)
    (tmp_path / ".metadata").write_bytes(pickle.dumps(Metadata({}))[: min(size, 20)])
    with pytest.raises(DamagedError, match=r"\.metadata is damaged"):
        read_metadata(tmp_path / ".metadata")
