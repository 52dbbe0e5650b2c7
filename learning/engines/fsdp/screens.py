"""Computes a vision tower's inputs from the sizes of its screens, outside of the training step.

`transformers` would compute the windows of each screen, the positions of patches, and the learned positions between
which each patch lies from the grids at every forward pass, with loops over numbers that a GPU has to hand back first.
Here they are computed on the CPU, in the thread that also decodes the screens.
"""

from typing import Any

from torch import Tensor

Precomputed = dict[str, Tensor | int]
"""Tensors by the names under which the model takes them."""


def precomputed_of(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the tower's inputs from these grids; nothing for an unknown tower.

    Args:
        tower: the vision tower of Qwen2.5-VL, Qwen3-VL or its mixture of experts; its weights are not used.
        grids: (screens, 3) patches of each screen in time, rows, columns, on the CPU.
    """
    made = _MAKERS.get(tower.config.model_type)
    return {f"image_{name}": one for name, one in made(tower, grids).items()} if made else {}


def _each(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower whose patches attend within their screen."""
    from transformers.vision_utils import get_vision_cu_seqlens, get_vision_position_ids

    edges = get_vision_cu_seqlens(grids)
    places = get_vision_position_ids(grids, tower.spatial_merge_size)
    return {"position_ids": places, "cu_seqlens": edges, "max_seqlen": _longest(edges)}


def _windowed(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower whose patches, in most layers, attend within their window alone."""
    from transformers.vision_utils import get_vision_window_index

    order, edges = get_vision_window_index(grids, tower.spatial_merge_size, tower.window_size, tower.patch_size)
    windows: Precomputed = {"window_index": order, "cu_window_seqlens": edges, "max_window_seqlen": _longest(edges)}
    return {**_each(tower, grids), **windows}


def _between(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower with a square table of learned positions, interpolated for each patch."""
    from transformers.vision_utils import get_vision_interpolation_indices_and_weights

    entries, weights = get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.config.spatial_merge_size,
    )
    return {**_each(tower, grids), "interp_indices": entries, "interp_weights": weights}


_MAKERS = {"qwen2_5_vl": _windowed, "qwen2_5_vl_vision": _windowed, "qwen3_vl": _between, "qwen3_vl_vision": _between}
_MAKERS |= {"qwen3_vl_moe": _between, "qwen3_vl_moe_vision": _between}


def _longest(edges: Tensor) -> int:
    return int(edges.diff().max())
