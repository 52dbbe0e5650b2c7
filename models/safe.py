"""Reads untrusted model directories without running code from them.

Weights come only from safetensors. A directory's own code (`auto_map`) is never imported, and nothing is downloaded.
Every `from_pretrained` of this project gets one of the two mappings below.

This module selects the weights' files for the trainer, the policy, hashes, exports, imports and servers. It follows the
common rule of `transformers`, vLLM and SGLang: the files of `model.safetensors.index.json`, else `model.safetensors`.
It refuses a directory that these programs would read differently.

The module also checks that weights are numbers with which a network can be trained. A weight that is no number makes
every reply nonsense, or stops the acting process. A huge weight makes gradients that are no numbers.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Any

from schemas.failure import CheckpointError

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
"""Suffixes of weight files that can run code when they are loaded."""
SAFE: Mapping[str, Any] = {"trust_remote_code": False, "local_files_only": True}
"""Options for configs, tokenizers and processors."""
SAFE_WEIGHTS: Mapping[str, Any] = {**SAFE, "use_safetensors": True}
"""Options for models."""
SINGLE = "model.safetensors"
"""Weight file of a checkpoint with a single weight file."""
INDEX = "model.safetensors.index.json"
"""Index that lists the weights' files."""
SAFETENSORS = ".safetensors"
_POINTER = b"version https://git-lfs.github.com/spec/"
"""First bytes of a Git LFS pointer."""
_NAMED_BY_CONFIG = "transformers_weights"
"""Key of `config.json` for another weight file, which `transformers` follows and servers ignore."""
_MISTRAL = "consolidated"
"""Prefix of file names that vLLM prefers to the index."""


def weight_files(directory: Path) -> list[Path]:
    """Find the files that hold a checkpoint's weights.

    Raises:
        CheckpointError: there are none, one is missing, or `transformers` and servers would read different files.
    """
    single, index = directory / SINGLE, directory / INDEX
    named = _config(directory).get(_NAMED_BY_CONFIG)
    if named not in (None, SINGLE, INDEX):
        problem = f"{directory}/config.json: `{_NAMED_BY_CONFIG}` names {named}, which servers do not read."
        raise CheckpointError(problem, f"Save the weights as {SINGLE}, without that key.")
    if named and not (directory / named).is_file():
        problem = f"{directory}/config.json: `{_NAMED_BY_CONFIG}` names {named}, which is not in the directory."
        raise CheckpointError(problem, "Remove that key, or fetch that file.")
    if not index.is_file():
        if single.is_file():
            return [single]
        raise CheckpointError(f"{directory} has no {SINGLE}: {_found(directory)}.", "Save it in safetensors.")
    names = _indexed(index)
    if gone := next((name for name in names if not (directory / name).is_file()), None):
        raise CheckpointError(f"{index} names {gone}, which is not in the directory.", "Fetch that file again.")
    if single.is_file() and names != [SINGLE]:
        problem = f"{directory} has {SINGLE} and an index of {names[0]}: transformers reads the one, servers the other."
        raise CheckpointError(problem, "Remove the one that is left over.")
    return [directory / name for name in names]


def weights_of(directory: Path) -> dict[str, Path]:
    """Find the file of every stored weight, by the weight's name.

    Raises:
        CheckpointError: as in `weight_files`; a file cannot be read; two files hold the same weight.
    """
    found: dict[str, Path] = {}
    for file in weight_files(directory):
        for name in stored_names(file):
            if name in found:
                problem = f"{directory}: {found[name].name} and {file.name} both hold the weight {name!r}."
                raise CheckpointError(problem, "Save the checkpoint again into an empty directory.")
            found[name] = file
    return found


def stored_names(file: Path) -> list[str]:
    """List the weights of a safetensors file from its header.

    Raises:
        CheckpointError: the file is no safetensors file, or its length does not match its header.
    """
    try:
        size = file.stat().st_size
        with file.open("rb") as content:
            start = content.read(8)
            length = int.from_bytes(start, "little")
            if len(start) == 8 and _POINTER.startswith(start):
                raise CheckpointError(f"{file} is a Git LFS pointer, not the file itself.", "Run `git lfs pull` there.")
            header = dict(json.loads(content.read(min(length, size))))
        weights = {name: field for name, field in header.items() if name != "__metadata__"}
        whole = 8 + length + max((int(field["data_offsets"][1]) for field in weights.values()), default=0)
    except (OSError, ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"{file}: {error}.", "Fetch or save that file again.") from error
    if size != whole:
        problem = f"{file} has {size:,} bytes, and its header has {whole:,}: it was cut or written over."
        raise CheckpointError(problem, "Fetch or save that file again.")
    return list(weights)


def left_over(directory: Path, kept: Container[str] = ()) -> list[str]:
    """List weight files that are not part of the checkpoint, such as another save's shards or pickles.

    Args:
        directory: a checkpoint.
        kept: names of files that are not listed.

    Raises:
        CheckpointError: as in `weight_files`.
    """
    part = {INDEX, *(file.name for file in weight_files(directory))}
    files = (file for file in directory.iterdir() if file.is_file())
    weights = (file.name for file in files if {SAFETENSORS, *PICKLES} & {*file.suffixes})
    return sorted(name for name in weights if name not in part and name not in kept)


def carried(directory: Path, kept: Container[str] = ()) -> set[str]:
    """List all files of a model directory, relative to it, except `left_over` ones; same arguments."""
    spare = set(left_over(directory, kept))
    files = (path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file())
    return {name for name in files if name not in spare}


def require_servable(directory: Path) -> None:
    """Refuse a checkpoint if vLLM or SGLang would read other files than the checkpoint's own.

    Both read every `*.safetensors` of a directory without an index, and vLLM prefers Mistral's `consolidated*`.

    Raises:
        CheckpointError: a server would read another file; the message names it.
    """
    indexed = (directory / INDEX).is_file()
    for name in left_over(directory):
        if name.endswith(SAFETENSORS) and (not indexed or name.startswith(_MISTRAL)):
            hint = "Remove it; `flywheel adopt` takes over the checkpoint's own files alone."
            raise CheckpointError(f"{directory}: a server would read the weights in {name}, too.", hint)
    files = [file.name for file in weight_files(directory)]
    preferred = [name for name in files if name.startswith(_MISTRAL)]
    if preferred and len(preferred) < len(files):
        problem = f"{directory}: vLLM would read {preferred[0]} without the other files of {INDEX}."
        raise CheckpointError(problem, f"Save the weights again, in files whose names do not begin with {_MISTRAL}.")


def write_index(directory: Path) -> None:
    """Write the index of a checkpoint with a single weight file, so that servers read no other file."""
    names = sorted(stored_names(directory / SINGLE))
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, SINGLE)}
    (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")


def read_whole(kind: Any, directory: Path, **options: Any) -> Any:
    """Load a model by a class of `transformers`, and refuse missing weights instead of random ones.

    Raises:
        CheckpointError: the model cannot be loaded; a weight is missing or has another shape.
    """
    weights_of(directory)
    try:
        model, report = kind.from_pretrained(directory, output_loading_info=True, **options, **SAFE_WEIGHTS)
    except Exception as error:  # any error of the library means a faulty directory
        raise CheckpointError(f"{directory}: {error}.", "Name an image-text-to-text model directory.") from error
    if lacks := sorted(report["missing_keys"]):
        more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
        raise CheckpointError(f"{directory}: no file has the weight {lacks[0]!r}{more}.", "The checkpoint is broken.")
    return model


def _found(directory: Path) -> str:
    """Describe the files of a directory without weights in safetensors, for the error."""
    files = sorted(file.name for file in directory.iterdir() if file.is_file()) if directory.is_dir() else []
    if pickled := next((name for name in files if Path(name).suffix in PICKLES), None):
        return f"its weights are in {pickled}, which can run code"
    others = [name for name in files if name.endswith(SAFETENSORS)]
    return f"it has {others[0]}, and no {INDEX}" if others else "there are no weights"


def _indexed(index: Path) -> list[str]:
    """Return the names of an index's files, in order."""
    try:
        places = json.loads(index.read_text())["weight_map"]
        names = sorted(set(places.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index}: {type(error).__name__}: {error}.", "Fetch or save that file again.") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(SAFETENSORS):
            hint = "Save the weights in safetensors, next to their index."
            raise CheckpointError(f"{index} names {name!r}, which is not a safetensors file in its directory.", hint)
    if not names:
        raise CheckpointError(f"{index} names no file.", "Fetch or save that file again.")
    return names


def _config(directory: Path) -> dict[str, Any]:
    """Return a directory's `config.json`; empty if there is none or it is invalid."""
    try:
        config = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


MOST = 1e12
"""Bound far above any trained weight, and above the numbers that replace minus infinity in masks.

Sums of the squares of larger weights soon exceed fp32's range.
"""


def unsound_weight(folder: Path) -> str | None:
    """Finds the first tensor of a model directory with a NaN, an infinity or a weight beyond `MOST`.

    Returns `FILE: TENSOR`; None if there is no such tensor. Reads one tensor at a time.
    """
    from safetensors import safe_open

    from models.tiny.layout import CRITIC

    critic = folder / CRITIC
    for file in [*weight_files(folder), *([critic] if critic.is_file() else [])]:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  it is no mapping
                tensor = tensors.get_tensor(name)
                if tensor.is_floating_point() and not bool((tensor.float().abs() <= MOST).all()):
                    return f"{file.name}: {name}"
    return None


def require_sound(folder: Path) -> None:
    """Raises CheckpointError if a model directory has a weight that is huge or no number."""
    if (at := unsound_weight(folder)) is not None:
        raise CheckpointError(
            f"{folder}: {at} holds a NaN, an infinity or a weight beyond {MOST:g}.",
            "Take a checkpoint from before it broke.",
        )
