"""Recognises whose checkpoint a folder is, and opens it."""

from pathlib import Path

from learning.conversion.dcp import open_dcp, open_flywheel
from learning.conversion.deepspeed import open_deepspeed
from learning.conversion.hugging_face import open_hugging_face
from learning.conversion.megatron import open_megatron
from learning.conversion.source import Source, checked
from schemas.failure import CheckpointError, UsageError

_UNREADABLE = (
    ("model_world_size_*_rank_*.pt", "verl's FSDP checkpoint, a pickle per rank", "Merge it with verl's model merger."),
    ("pytorch_model*.bin", "pickled weights", "Save them as safetensors."),
)
"""Files of known checkpoints that are not read: their pattern, their name, and what to do."""
_KNOWN = "Known are Hugging Face safetensors, torch DCP, DeepSpeed ZeRO, Megatron Core and this project's checkpoints."


def open_checkpoint(path: Path, step: int | None = None, prefix: str | None = None) -> Source:
    """Opens a checkpoint of any known trainer, without reading its numbers.

    Args:
        path: folder of a checkpoint, or of a trainer's checkpoints of several steps.
        step: step to open; the last one if not given.
        prefix: prefix of the weights' names in DCP's format; found by the names if not given.

    Raises:
        UsageError: the format has no such prefix, or no steps.
        CheckpointError: no known trainer wrote the folder, there is no such step, a file is missing or damaged, or an
            object in it could run code.
    """
    if not path.is_dir():
        raise CheckpointError(f"{path} is not a folder.", "Give the folder of a checkpoint on this machine.")
    source = (
        open_flywheel(path, step, prefix)
        or open_deepspeed(path, step)
        or open_megatron(path, step, prefix)
        or open_dcp(path, step, prefix)
        or open_hugging_face(path)
    )
    if source is not None:
        for option, given, formats in (("--prefix", prefix, ("hf", "deepspeed")), ("--step", step, ("hf",))):
            if given is not None and source.format in formats:
                raise UsageError(f"`{option}` has no effect on the format of {path}, {source.format}.", "Remove it.")
        return checked(source)
    for pattern, what, hint in _UNREADABLE:
        if any(path.glob(pattern)):
            raise CheckpointError(f"{path} is {what}, which is not read.", hint)
    files = sorted(one.name for one in path.iterdir())
    found = f"it has {', '.join(files[:5])}{' and more' if len(files) > 5 else ''}" if files else "it is empty"
    raise CheckpointError(f"{path} is no checkpoint of a known trainer: {found}.", _KNOWN)
