"""Checks that weights are numbers with which a network can be trained.

A weight that is no number makes every reply nonsense, or stops the acting process. A huge weight makes gradients that
are no numbers.
"""

from pathlib import Path

from schemas.failure import CheckpointError

MOST = 1e12
"""Bound far above any trained weight, and above the numbers that replace minus infinity in masks.

Sums of the squares of larger weights soon exceed fp32's range.
"""


def unsound_weight(folder: Path) -> str | None:
    """Finds the first tensor of a model directory with a NaN, an infinity or a weight beyond `MOST`.

    Returns `FILE: TENSOR`; None if there is no such tensor. Reads one tensor at a time.
    """
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
    """Raises CheckpointError if a model directory has a weight that is huge or no number."""
    if (at := unsound_weight(folder)) is not None:
        raise CheckpointError(
            f"{folder}: {at} holds a NaN, an infinity or a weight beyond {MOST:g}.",
            "Take a checkpoint from before it broke.",
        )
