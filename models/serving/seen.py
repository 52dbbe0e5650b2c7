"""Caches the vision tower's outputs of the last screens, so that a trajectory's steps encode each screen once.

The encoding of a screen does not depend on the rest of its prompt. So its output is equal in all steps, except for
rounding.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor


class SeenScreens:
    """Wraps `get_image_features` of a model whose screens are grids of patches (Qwen2.5-VL, Qwen3-VL).

    Args:
        model: a model of `transformers`; a model that encodes pictures in another way is not changed.
        most_bytes: the size of the cache; the least recently used screens are dropped first.
    """

    def __init__(self, model: Any, most_bytes: int) -> None:
        base = model.base_model
        self._encode: Any = getattr(base, "get_image_features", None)
        self._most, self._held = most_bytes, 0
        self._kept: OrderedDict[Hashable, tuple[Tensor, ...]] = OrderedDict()
        self._made: Any = None
        self._deep = False
        self.next: Sequence[Hashable] = ()
        """Names of the screens of the next prompt, in the prompt's order."""
        if self._encode is not None and most_bytes:
            base.get_image_features = self._features

    def _features(self, pixel_values: Tensor, image_grid_thw: Tensor | None = None, **more: Any) -> Any:
        """Computes the model's result: a tensor of shape (tokens, width) per screen, and as many per deeper layer."""
        names, self.next = self.next, ()
        if image_grid_thw is None or len(names) != len(image_grid_thw):
            return self._encode(pixel_values, image_grid_thw, **more)
        rows = torch.split(pixel_values, image_grid_thw.prod(-1).tolist())
        first = {name: place for place, name in reversed(list(enumerate(names))) if name not in self._kept}
        found = {name: self._kept[name] for name in names if name in self._kept}
        if new := sorted(first.values()):
            made = self._encode(torch.cat([rows[place] for place in new]), image_grid_thw[new], **more)
            deeper = getattr(made, "deepstack_features", None)
            layers = [made.pooler_output, *(deeper or ())]
            found |= {names[place]: tuple(layer[at] for layer in layers) for at, place in enumerate(new)}
            self._made, self._deep = type(made), deeper is not None
        for name in names:
            self._keep(name, found[name])
        pooled, *deeper = ([found[name][layer] for name in names] for layer in range(len(found[names[0]])))
        return self._made(pooler_output=pooled, **({"deepstack_features": deeper} if self._deep else {}))

    def clear(self) -> None:
        """Forgets all screens."""
        self._kept.clear()
        self._held = 0

    def _keep(self, name: Hashable, layers: tuple[Tensor, ...]) -> None:
        if name not in self._kept:
            self._kept[name] = tuple(layer.clone() for layer in layers)  # a slice would keep its whole batch in memory
            self._held += _bytes(layers)
        self._kept.move_to_end(name)
        while self._held > self._most:
            self._held -= _bytes(self._kept.popitem(last=False)[1])


def _bytes(layers: tuple[Tensor, ...]) -> int:
    return sum(layer.numel() * layer.element_size() for layer in layers)
