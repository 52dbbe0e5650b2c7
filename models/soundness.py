"""Whether weights are numbers that a network can be trained with: one that is not makes every reply nonsense, or stops
the process that acts; one that is huge gives gradients that are no numbers."""

from pathlib import Path

from schemas.failure import CheckpointError

MOST = 1e12
"""Far beyond any trained weight, also beyond what stands for minus infinity in masks; the squares of larger ones soon
leave fp32's range."""


def unsound_weight(folder: Path) -> str | None:
    """The first tensor of a model directory's safetensors that holds a NaN, an infinity or a weight beyond `MOST`, as
    `FILE: TENSOR`; None where none does. Reads one tensor at a time."""
    from safetensors import safe_open

    from models.safe import weight_files
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
    """Raises CheckpointError for a model directory with a weight that is no number, or a huge one."""
    if (at := unsound_weight(folder)) is not None:
        raise CheckpointError(
            f"{folder}: {at} holds a NaN, an infinity or a weight beyond {MOST:g}.",
            "Take a checkpoint from before it broke.",
        )
