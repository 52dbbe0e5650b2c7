"""Tensors in files: taking, joining and stacking parts equals the same operations in memory."""

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learning.checkpoint.state import Box
from learning.conversion import stored
from learning.conversion.stored import Piece, StoredTensor, check_whole, contiguous, joined, layer_of, rows, stacked
from schemas.failure import DamagedError
from tests.fixtures.sentences import Sentences


@pytest.fixture
def numbers(tmp_path: Path) -> tuple[torch.Tensor, StoredTensor]:
    """A tensor (6, 4, 3) in two files: the columns [0, 1) transposed, and the others."""
    whole = torch.arange(72, dtype=torch.float32).view(6, 4, 3)
    (tmp_path / "a").write_bytes(b"head" + whole[:, :1].transpose(0, 2).contiguous().numpy().tobytes())
    (tmp_path / "b").write_bytes(whole[:, 1:].contiguous().numpy().tobytes())
    pieces = (
        Piece(Box((0, 0, 0), (6, 1, 3)), tmp_path / "a", 4, (1, 6, 6)),
        Piece(Box((0, 1, 0), (6, 3, 3)), tmp_path / "b", 0, (9, 3, 1)),
    )
    return whole, StoredTensor(torch.float32, (6, 4, 3), pieces)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_parts_of_tensors_in_files_are_those_of_tensors_in_memory(
    numbers: tuple[torch.Tensor, StoredTensor], data: st.DataObject
):
    whole, tensor = numbers
    for _ in range(data.draw(st.integers(0, 4))):
        low = data.draw(st.integers(0, whole.shape[0] - 1))
        high = data.draw(st.integers(low + 1, whole.shape[0]))
        match data.draw(st.sampled_from(["rows", "joined", "stacked", "layer"])):
            case "rows":
                whole, tensor = whole[low:high], rows(tensor, low, high)
            case "joined":
                whole, tensor = torch.cat([whole[low:high], whole]), joined([rows(tensor, low, high), tensor])
            case "stacked":
                whole, tensor = torch.stack([whole, whole]), stacked([tensor, tensor])
            case _ if whole.ndim > 1:
                whole, tensor = whole[low], layer_of(tensor, low)
            case _:
                pass
    check_whole("w", tensor, Path())
    assert torch.equal(tensor.read(tensor.box), whole)
    offsets = tuple(data.draw(st.integers(0, size - 1)) for size in whole.shape)
    part = Box(offsets, tuple(size - at for size, at in zip(whole.shape, offsets, strict=True)))
    assert torch.equal(tensor.read(part), whole[tuple(slice(at, None) for at in offsets)])


def test_slices_are_the_tensor_in_row_major_order(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored, "BUFFER", 80)
    whole = torch.arange(6 * 5 * 7, dtype=torch.float32).view(6, 5, 7)
    parts = [
        whole[tuple(map(slice, box.offsets, map(sum, zip(*box, strict=True))))]
        for box in stored.slices(Box((0, 0, 0), (6, 5, 7)), torch.float32)
    ]
    assert torch.equal(torch.cat([part.reshape(-1) for part in parts]), whole.reshape(-1))
    assert max(part.nbytes for part in parts) <= 80 < whole.nbytes


@pytest.mark.parametrize(
    ("offsets", "sizes"),
    [((2, 0), (2, 3)), ((1, 0), (3, 3)), ((2, 0), (3, 3))],
    ids=["missing", "doubled", "outside"],
)
def test_a_missing_doubled_or_misplaced_part_is_named(
    offsets: tuple[int, int], sizes: tuple[int, int], sentence: Sentences
):
    first = Piece(Box((0, 0), (2, 2)), Path("a"), 0, (2, 1))
    tensor = StoredTensor(torch.float32, (4, 3), (first, Piece(Box(offsets, sizes), Path("b"), 0, (3, 1))))
    with sentence.raises(DamagedError, "`w`"):
        check_whole("w", tensor, Path("place"))


def test_a_cut_or_missing_file_is_named(tmp_path: Path, sentence: Sentences):
    tensor = contiguous(torch.float32, (4,), tmp_path / "w", 0)
    with sentence.raises(DamagedError, tmp_path / "w"):
        tensor.read(tensor.box)
    (tmp_path / "w").write_bytes(b"1234")
    with sentence.raises(DamagedError, tmp_path / "w"):
        tensor.read(tensor.box)
