"""Reads files of `torch.save` without running code from them and without loading their numbers.

The file is a zip archive: a pickle with the structure, and a record per storage with its numbers, uncompressed. The
unpickler calls nothing that the file names. Tensors become positions in the file. Known classes of trainers become
`Record`s, which are never executed. Any other class is an error that names it.
"""

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.serialization import _get_layout
from torch.storage import _storage_type_to_dtype_map
from typing_extensions import override

from learning.checkpoint.state import Box
from learning.conversion.stored import RESTORE, Piece, StoredTensor
from schemas.failure import CheckpointError, DamagedError

INERT = ("argparse", "deepspeed", "megatron", "numpy", "_codecs", "pathlib", "torch.distributed.checkpoint.planner")
"""Packages whose classes become `Record`s: settings and enums of trainers, states of random numbers, paths."""
_PLAIN: Mapping[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex,
    ("torch", "Size"): torch.Size,
    ("torch", "Tensor"): StoredTensor,
    ("torch.nn.parameter", "Parameter"): StoredTensor,
    ("torch", "device"): str,
    ("torch.serialization", "_get_layout"): _get_layout,
}
_OF_DCP: Mapping[tuple[str, str], Any] = {
    **{
        ("torch.distributed.checkpoint.metadata", name): getattr(metadata, name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    },
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"): filesystem._StorageInfo,
}
_STORAGES = {**_storage_type_to_dtype_map(), "UntypedStorage": torch.uint8}
"""Number types by the names of torch's classes of storages."""
_ZIP = b"PK\x03\x04"
_LOCAL_HEADER = 30


class Record:
    """An object of a class that was not imported: its class's name, arguments and attributes."""

    kind = ""
    arguments: tuple[Any, ...] = ()

    def __new__(cls, *arguments: Any, **_: Any) -> "Record":
        """Keeps the arguments."""
        made = super().__new__(cls)
        made.arguments = arguments
        return made

    def __init__(self, *_: Any, **__: Any) -> None:
        """Does nothing, since `__new__` kept the arguments."""

    def __setstate__(self, state: Any) -> None:
        """Keeps attributes."""
        if isinstance(state, dict):
            self.__dict__.update(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Ignores entries of a dictionary's subclass."""

    def append(self, value: Any) -> None:
        """Ignores entries of a list's subclass."""


def is_archive(file: Path) -> bool:
    """Checks whether a file begins as `torch.save` writes it."""
    with file.open("rb") as content:
        return content.read(4) == _ZIP


def read_archive(file: Path, start: int = 0, length: int | None = None) -> Any:
    """Reads the structure of a `torch.save` archive, in which each tensor is a `StoredTensor`.

    Args:
        file: file with the archive.
        start: offset of the archive in the file, in bytes.
        length: its length; up to the file's end if not given.

    Raises:
        DamagedError: the file is missing, cut, or no such archive.
        CheckpointError: the archive has an object of a class that this module does not know.
    """
    try:
        with file.open("rb") as content:
            size = content.seek(0, io.SEEK_END)
            part = _Part(content, start, size - start if length is None else length)
            with zipfile.ZipFile(part) as archive:
                return _structure(archive, part, file, start)
    except FileNotFoundError as error:
        raise DamagedError(f"{file} is missing.", RESTORE) from error
    except zipfile.BadZipFile as error:
        raise DamagedError(f"{file} is cut or no file of `torch.save` ({error}).", RESTORE) from error
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError(f"{file} is damaged: {type(error).__name__}: {error}.", RESTORE) from error


def read_metadata(file: Path) -> metadata.Metadata:
    """Reads DCP's `.metadata` without running code from it; raises as `read_archive`."""
    try:
        found = _Unpickler(io.BytesIO(file.read_bytes()), file, _OF_DCP).load()
    except FileNotFoundError as error:
        raise DamagedError(f"{file} is missing.", RESTORE) from error
    except (pickle.UnpicklingError, EOFError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise DamagedError(f"{file} is damaged: {type(error).__name__}: {error}.", RESTORE) from error
    if not isinstance(found, metadata.Metadata):
        raise DamagedError(f"{file} is not DCP's metadata, but a {type(found).__name__}.", RESTORE)
    return found


@dataclass(frozen=True, slots=True)
class _Storage:
    dtype: torch.dtype
    key: str
    numel: int


def _structure(archive: zipfile.ZipFile, part: "_Part", file: Path, start: int) -> Any:
    """Unpickles the structure; without the records' checksums, which fast writers leave out."""
    (pickled,) = (one for one in archive.namelist() if one.endswith("/data.pkl"))
    root = pickled.removesuffix("data.pkl")

    def place(name: str, least: int = 0) -> tuple[int, int]:
        """Finds the offset in the archive and the length of a record."""
        record = archive.getinfo(f"{root}{name}")
        if record.compress_type != zipfile.ZIP_STORED or record.file_size < least:
            raise ValueError(f"record {name} has {record.file_size} bytes")
        header = part.at(record.header_offset, _LOCAL_HEADER)
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        return record.header_offset + _LOCAL_HEADER + names, record.file_size

    if f"{root}byteorder" in archive.namelist() and part.at(*place("byteorder")) != b"little":
        raise CheckpointError(f"{file} was written on a big-endian machine.", "Save it again on a little-endian one.")

    def numbers(storage: _Storage) -> int:
        """Finds the offset in the file of a storage's numbers."""
        return start + place(f"data/{storage.key}", storage.numel * storage.dtype.itemsize)[0]

    return _Unpickler(io.BytesIO(part.at(*place("data.pkl"))), file, {}, numbers).load()


class _Unpickler(pickle.Unpickler):
    """Unpickles plain values, tensors as `StoredTensor`s and the given classes."""

    def __init__(
        self,
        content: IO[bytes],
        file: Path,
        allowed: Mapping[tuple[str, str], Any],
        place: Callable[[_Storage], int] | None = None,
    ) -> None:
        super().__init__(content)
        self._file, self._place = file, place
        self._allowed = {**_PLAIN, **allowed}

    @override
    def find_class(self, module: str, name: str) -> Any:
        module = "builtins" if module == "__builtin__" else module  # its name in older pickles
        if (module, name) in self._allowed:
            return self._allowed[module, name]
        if module == "torch._utils" and name in ("_rebuild_tensor_v2", "_rebuild_tensor_v3"):
            return self._tensor
        if module == "torch._utils" and name == "_rebuild_parameter":
            return lambda tensor, *_: tensor
        if (module, name) == ("torch._tensor", "_rebuild_from_type_v2"):  # of a tensor that has attributes
            return lambda build, _, arguments, __: build(*arguments)
        if module in ("torch", "torch.storage"):
            if name in _STORAGES:
                return _STORAGES[name]
            found = getattr(torch, name, None)
            if isinstance(found, torch.dtype):
                return found
        if any(module == one or module.startswith(f"{one}.") for one in INERT):
            return type(name, (Record,), {"kind": f"{module}.{name}"})
        problem = f"{self._file} has an object of `{module}.{name}`, which is not loaded: it could run code."
        raise CheckpointError(problem, "Save the checkpoint without it.")

    @override
    def persistent_load(self, pid: Any) -> _Storage:
        what, kind, key, _, numel = pid
        if what != "storage":
            raise ValueError(f"unknown reference {what!r}")
        return _Storage(kind, key, numel)

    def _tensor(self, storage: _Storage, offset: int, sizes: Any, strides: Any, *rest: Any) -> StoredTensor:
        """Describes a tensor; the arguments are those of `torch._utils._rebuild_tensor_v2` and `_v3`."""
        dtype = next((one for one in rest if isinstance(one, torch.dtype)), storage.dtype)
        box = Box((0,) * len(sizes), tuple(sizes))
        if box.numel == 0:
            return StoredTensor(dtype, box.sizes, ())
        last = offset + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
        if (last + 1) * dtype.itemsize > storage.numel * storage.dtype.itemsize or min(offset, *strides, 0) < 0:
            raise ValueError(f"a tensor {tuple(sizes)} exceeds its storage")
        assert self._place is not None
        start = self._place(storage) + offset * dtype.itemsize
        return StoredTensor(dtype, box.sizes, (Piece(box, self._file, start, tuple(strides)),))


class _Part(io.RawIOBase):
    """A range of a file, as a file of its own."""

    def __init__(self, content: IO[bytes], start: int, length: int) -> None:
        super().__init__()
        self._content, self._start, self._length, self._position = content, start, length, 0

    def at(self, offset: int, size: int) -> bytes:
        """Reads bytes at an offset."""
        self.seek(offset)
        return self.read(size) or b""

    @override
    def seekable(self) -> bool:
        return True

    @override
    def readable(self) -> bool:
        return True

    @override
    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._length}[whence]
        self._position = max(0, origin + offset)
        return self._position

    @override
    def tell(self) -> int:
        return self._position

    @override
    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        count = max(0, min(len(view), self._length - self._position))
        self._content.seek(self._start + self._position)
        got = self._content.read(count)
        view[: len(got)] = got
        self._position += len(got)
        return len(got)
