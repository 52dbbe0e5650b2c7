"""Writes a rank's file: consecutive `torch.save` archives, as DCP's reader expects.

The bytes that `torch.save` writes around a tensor's numbers depend only on its shape and type. So they are made once
and kept. A save then only copies numbers from the staging buffers to the file, and hashes them.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import IO, Any, cast

import numpy as np
import torch
from torch import Tensor

from learning.checkpoint.manifest import FileEntry, TensorPiece
from learning.checkpoint.state import Box
from storage.objects import ObjectStore, Sink

BLOCK = 4 << 20
"""Bytes between two checksums; also the unit in which a load distributes the reading over ranks."""
ALIGN = 64
"""`torch.save` begins numbers at multiples of this in an archive; archives begin at multiples of it in the file."""


@dataclass(frozen=True, slots=True)
class Shell:
    """Bytes before and after the numbers of a tensor in its archive."""

    head: bytes
    tail: bytes


@dataclass(frozen=True, slots=True, eq=False)
class Slot:
    """A box to write: its place in the file and the staging memory of its numbers."""

    tensor: str
    box: Box
    at: int
    """Offset of the box's archive in the file, in bytes."""
    shell: Shell
    memory: Tensor
    """Contiguous, on the CPU, shaped like the box; on no device if the numbers are not staged."""

    @property
    def start(self) -> int:
        """Offset of the box's numbers in the file, in bytes."""
        return self.at + len(self.shell.head)

    @property
    def length(self) -> int:
        """Length of the archive in bytes."""
        return len(self.shell.head) + self.memory.nbytes + len(self.shell.tail)


@dataclass(frozen=True, slots=True)
class Written:
    """File that one rank wrote, with its pieces."""

    file: str
    entry: FileEntry
    pieces: tuple[TensorPiece, ...]
    archives: tuple[tuple[int, int], ...]
    """Offset and length in the file of each piece's archive, for DCP's metadata."""


@lru_cache(maxsize=4096)
def shell(sizes: tuple[int, ...], dtype: torch.dtype) -> Shell:
    """Makes the bytes that `torch.save` writes around a contiguous tensor of these sizes."""
    tensor = torch.empty(sizes, dtype=dtype)
    around = _Around(tensor.data_ptr(), tensor.nbytes)
    checks = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)  # its checksum would be of this empty tensor
    try:
        torch.save(tensor, cast(IO[bytes], around))
    finally:
        torch.serialization.set_crc32_options(checks)
    return Shell(bytes(around.head), bytes(around.tail))


def bytes_in(tensor: Tensor) -> memoryview:
    """Returns the memory of a contiguous CPU tensor."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def block_bytes(sizes: tuple[int, ...], itemsize: int) -> int:
    """Counts the bytes between the checksums of a box: whole rows if rows are short enough."""
    row = math.prod(sizes[1:]) * itemsize
    return BLOCK // row * row if 0 < row <= BLOCK else BLOCK


def padded(position: int) -> int:
    """Rounds up to the next multiple of ALIGN."""
    return -(-position // ALIGN) * ALIGN


def write_file(
    store: ObjectStore,
    folder: str,
    file: str,
    slots: list[Slot],
    numbers: Callable[[Slot], Iterable[Tensor]] | None = None,
) -> Written:
    """Writes a rank's file; no file if there is nothing to write.

    Args:
        store: store of the checkpoint.
        folder: folder of the step.
        file: name of the file.
        slots: boxes to write, consecutive.
        numbers: yields the numbers of a slot in row-major parts; the slot's staging memory if not given.

    Raises:
        CheckpointError: no space is left, or the store fails.
    """
    size = slots[-1].at + slots[-1].length if slots else 0
    digest, pieces = hashlib.sha256(), []
    if not slots:
        return Written(file, FileEntry(bytes=0, sha256=digest.hexdigest()), (), ())
    with store.create(f"{folder}/{file}", size) as sink:
        at = 0
        for slot in slots:
            _put(sink, digest, bytes(slot.at - at) + slot.shell.head)
            block = block_bytes(slot.box.sizes, slot.memory.element_size())
            parts = [slot.memory] if numbers is None else numbers(slot)
            sums = tuple(_sums(sink, digest, parts, block))
            _put(sink, digest, slot.shell.tail)
            at = slot.at + slot.length
            pieces.append(
                TensorPiece(
                    tensor=slot.tensor,
                    offsets=slot.box.offsets,
                    sizes=slot.box.sizes,
                    file=file,
                    start=slot.start,
                    bytes=slot.memory.nbytes,
                    block=block,
                    sums=sums,
                )
            )
    archives = tuple((slot.at, slot.length) for slot in slots)
    return Written(file, FileEntry(bytes=size, sha256=digest.hexdigest()), tuple(pieces), archives)


def laid_out(boxes: Iterable[tuple[str, Box, Tensor]]) -> list[Slot]:
    """Makes consecutive slots for boxes and their memory."""
    slots, at = [], 0
    for name, box, memory in boxes:
        slots.append(Slot(name, box, at, shell(box.sizes, memory.dtype), memory))
        at = padded(at + slots[-1].length)
    return slots


def _sums(sink: Sink, digest: Any, parts: Iterable[Tensor], block: int) -> Iterator[int]:
    """Writes parts, and yields the CRC-32 of each block."""
    total, room = 0, block
    for part in parts:
        rest = bytes_in(part)
        while rest:
            now, rest = rest[:room], rest[room:]
            _put(sink, digest, now)
            total, room = zlib.crc32(now, total), room - len(now)
            if not room:
                yield total
                total, room = 0, block
    if room < block:
        yield total


def _put(sink: Sink, digest: Any, data: bytes | memoryview) -> None:
    sink.write(data)
    digest.update(data)


class _Around:
    """A file for `torch.save` that keeps all bytes except the tensor's memory, which it recognises by its address."""

    def __init__(self, address: int, length: int) -> None:
        self.head, self.tail = bytearray(), bytearray()
        self._address, self._length = address, length
        self._behind = length == 0

    def write(self, data: memoryview) -> int:
        length = len(data)
        if not self._behind and length == self._length and np.frombuffer(data, np.uint8).ctypes.data == self._address:
            self._behind = True
        elif self._behind:
            self.tail += data
        else:
            self.head += data
        return length

    def flush(self) -> None:
        """Does nothing, since no bytes are buffered."""
