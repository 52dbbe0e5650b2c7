"""Whether weights are numbers: one that is not makes every reply nonsense, or stops the process that acts."""

from pathlib import Path

from schemas.failure import CheckpointError


def unsound_weight(folder: Path) -> str | None:
    """The first tensor of a model directory's safetensors that holds a NaN or an infinity, as `FILE: TENSOR`; None
    where all are finite. Reads one tensor at a time."""
    import torch
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118  it is no mapping
                tensor = tensors.get_tensor(name)
                if tensor.is_floating_point() and not bool(torch.isfinite(tensor.float()).all()):
                    return f"{file.name}: {name}"
    return None


def require_sound(folder: Path) -> None:
    """Raises CheckpointError for a model directory with a weight that is no number."""
    if (at := unsound_weight(folder)) is not None:
        raise CheckpointError(f"{folder}: {at} holds a NaN or an infinity.", "Take a checkpoint from before it broke.")
