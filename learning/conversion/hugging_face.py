"""Opens a Hugging Face directory, and writes its weights: safetensors files and their index."""

import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from learning.checkpoint import open_store
from learning.checkpoint.shard_file import bytes_in
from learning.conversion.source import WEIGHT, ForeignTensor, Source
from learning.conversion.stored import RESTORE, StoredTensor, contiguous, slices
from models.safe import INDEX, SINGLE, weights_of
from schemas.failure import DamagedError

Progress = Callable[[int], object]
"""Gets the number of bytes of each written slice."""
_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
_TIED = "tie_word_embeddings"
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


def open_hugging_face(path: Path) -> Source | None:
    """Opens a Hugging Face directory; None if the folder is none.

    Raises:
        CheckpointError: a file of the index is missing, cut or holds a weight a second time.
    """
    if not (path / INDEX).is_file() and not (path / SINGLE).is_file():
        return None
    files = weights_of(path)
    headers = {file: _header(file) for file in dict.fromkeys(files.values())}
    entries = tuple(ForeignTensor(name, WEIGHT, name, headers[file][name]) for name, file in files.items())
    listed = _index(path)
    for name in sorted(listed.keys() ^ files.keys() if listed else ()):
        lacks = f"{listed[name]} lacks" if name in listed else f"{INDEX} does not list"
        raise DamagedError(f"{path}: {lacks} the weight `{name}`.", RESTORE)
    return Source(path, "hf", "transformers", None, {"files": len(headers)}, entries)


def write_hugging_face(tensors: Mapping[str, StoredTensor], folder: Path, shards: int, progress: Progress) -> int:
    """Writes weights slice by slice, in files of about equal size; returns the number of files.

    Args:
        tensors: weights by name.
        folder: an existing folder without weights.
        shards: maximum number of files.
        progress: gets the bytes of each slice.

    Raises:
        CheckpointError: a source file is damaged, or the disk is full.
    """
    groups = list(_groups(tensors, shards))
    total = sum(tensor.nbytes for tensor in tensors.values())
    placed: dict[str, str] = {}
    store = open_store(folder)
    for number, names in enumerate(groups, 1):
        file = SINGLE if len(groups) == 1 else f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        at = 0
        for name in names:
            tensor = tensors[name]
            place = [at, at + tensor.nbytes]
            header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": place}
            at += tensor.nbytes
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with store.create(file, 8 + len(text) + at) as sink:
            sink.write(struct.pack("<Q", len(text)) + text)
            for name in names:
                for box in slices(tensors[name].box, tensors[name].dtype):
                    numbers = tensors[name].read(box)
                    sink.write(bytes_in(numbers))
                    progress(numbers.nbytes)
        placed |= dict.fromkeys(names, file)
    if len(groups) > 1:
        index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(placed.items()))}
        store.put(INDEX, json.dumps(index, indent=2).encode() + b"\n")
    return len(groups)


def config_of(path: Path) -> dict[str, Any]:
    """Reads a directory's `config.json`; empty if there is none. Raises DamagedError if it is no JSON object."""
    try:
        found = json.loads((path / "config.json").read_text())
        tied = {name: found[name] for name in (_TIED,) if name in found}  # it is the whole network's, not its text's
        return {**(found.get("text_config") or found), **tied}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise DamagedError(f"{path / 'config.json'}: {error}.", RESTORE) from error


def _groups(tensors: Mapping[str, StoredTensor], shards: int) -> Iterator[list[str]]:
    """Cuts the list of weights into consecutive groups of about equal bytes, none of them empty."""
    total = sum(tensor.nbytes for tensor in tensors.values())
    group: list[str] = []
    done, number = 0, 1
    for name, tensor in tensors.items():
        if group and done + tensor.nbytes / 2 > total * number / shards and number < shards:
            yield group
            group, number = [], number + 1
        group.append(name)
        done += tensor.nbytes
    yield group


def _header(file: Path) -> dict[str, StoredTensor]:
    """Reads the tensors of a file from its header; `weights_of` has checked the file's length."""
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        header = json.loads(content.read(length))
    found = {}
    for name, field in header.items():
        if name == "__metadata__":
            continue
        dtype, shape, (start, end) = _DTYPES.get(field["dtype"]), tuple(field["shape"]), field["data_offsets"]
        if dtype is None:
            raise DamagedError(f"{file}: `{name}` has the unknown type {field['dtype']!r}.", RESTORE)
        if math.prod(shape) * dtype.itemsize != end - start:
            problem = f"{file}: `{name}` is {shape}, but has {end - start} bytes of {field['dtype']}."
            raise DamagedError(problem, RESTORE)
        found[name] = contiguous(dtype, shape, file, 8 + length + start)
    return found


def _index(path: Path) -> dict[str, str]:
    return dict(json.loads((path / INDEX).read_text())["weight_map"]) if (path / INDEX).is_file() else {}
