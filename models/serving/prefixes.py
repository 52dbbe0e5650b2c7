"""Caches keys and values of the last prompts, found by the longest common prefix with a new prompt."""

from bisect import bisect_left, insort
from collections import OrderedDict

from torch import Tensor

Prompt = tuple[int, ...]
"""Tokens of a prompt; those of a picture are all the picture's number, which is below 0."""
Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, (1, heads, tokens, width)."""


class Prefixes:
    """Cache of prompts' keys and values, up to a bound.

    Args:
        most_bytes: the bound that `trim` enforces; the least recently used go first.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self.held = most_bytes, 0
        self._kept: OrderedDict[Prompt, Layers] = OrderedDict()
        self._sorted: list[Prompt] = []

    def __len__(self) -> int:
        return len(self._kept)

    def longest(self, prompt: Prompt) -> Layers | None:
        """Finds the layers of the longest known prefix and marks it as used; None if no token of it is known."""
        # among sorted prompts none shares more with this one than its two neighbours
        place = bisect_left(self._sorted, prompt)
        neighbours = self._sorted[max(0, place - 1) : place + 1]
        nearest = max(neighbours, key=lambda other: _common(other, prompt), default=())
        shared = _common(nearest, prompt)
        if not shared:
            return None
        self._kept.move_to_end(nearest)
        return cut(self._kept[nearest], shared)

    def keep(self, prompt: Prompt, layers: Layers) -> None:
        """Keeps a prompt and drops a kept prefix of it; does nothing if it is a prefix of a kept one."""
        place = bisect_left(self._sorted, prompt)
        if place < len(self._sorted) and _begins(self._sorted[place], prompt):
            return
        if place and _begins(prompt, self._sorted[place - 1]):
            self._drop(self._sorted[place - 1])
        insort(self._sorted, prompt)
        self._kept[prompt] = layers
        self.held += _bytes(layers)

    def trim(self) -> None:
        """Drops the least recently used until the bound holds."""
        while self.held > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, prompt: Prompt) -> None:
        self.held -= _bytes(self._kept.pop(prompt))
        del self._sorted[bisect_left(self._sorted, prompt)]


def cut(layers: Layers, tokens: int) -> Layers:
    """Returns those of the first tokens."""
    return [(keys[:, :, :tokens], values[:, :, :tokens]) for keys, values in layers]


def length(layers: Layers | None) -> int:
    """Counts their tokens."""
    return layers[0][0].shape[2] if layers else 0


def _begins(prompt: Prompt, beginning: Prompt) -> bool:
    return prompt[: len(beginning)] == beginning


def _common(one: Prompt, other: Prompt) -> int:
    """Counts the equal tokens at their beginnings."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)


def _bytes(layers: Layers) -> int:
    return sum(part.numel() * part.element_size() for layer in layers for part in layer)
