"""Keeps what a model has computed of earlier prompts, so that a new prompt continues from a common beginning.

An attending layer has keys and values of every token, so its memory can be cut anywhere. A gated DeltaNet has one state
for all tokens before it, which can't be cut: its states are kept at the end of a prompt, and where a later prompt has
branched off from it. A prompt continues at the last of these places, as in SGLang's cache of hybrid models (Marconi,
arXiv 2411.19379).
"""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from torch import Tensor

Prompt = tuple[int, ...]
"""Tokens of a prompt; each token of a picture is the picture's number, which is below 0."""
Pair = tuple[Tensor, Tensor]
MOST_STATES = 4
"""Maximum places of a prompt at which states are kept: the first one, and the last ones. A state of the largest models
needs as much memory as a thousand tokens' keys and values."""


@dataclass(frozen=True, slots=True)
class PromptCache:
    """What the layers of a model keep of the tokens of a prompt."""

    tokens: int
    keys: dict[int, Pair] = field(default_factory=dict)
    """Keys and values by attending layer, (1, heads, tokens, width)."""
    states: dict[int, dict[int, Pair]] = field(default_factory=dict)
    """After so many tokens, by gated DeltaNet layer: the last inputs of its convolution, (1, channels, kernel), and its
    recurrent state, (1, heads, key width, value width). Without such layers, it is empty."""

    def first(self, tokens: int) -> "PromptCache | None":
        """Returns the memory of at most the first tokens; None if none of it is usable."""
        if self.states:
            tokens = max((at for at in self.states if at <= tokens), default=0)
        if not tokens:
            return None
        keys = {layer: (one[:, :, :tokens], two[:, :, :tokens]) for layer, (one, two) in self.keys.items()}
        return PromptCache(tokens, keys, {at: state for at, state in self.states.items() if at <= tokens})

    def add_states(self, other: "PromptCache", shared: int) -> int:
        """Adds states of another prompt with the same first `shared` tokens; returns the bytes of memory they take."""
        before = _bytes(self.held())
        self.states.update({at: state for at, state in other.states.items() if at <= shared})
        self.thin()
        return _bytes(self.held()) - before

    def thin(self) -> None:
        """Drops states beyond `MOST_STATES`."""
        for at in sorted(self.states)[1 : 1 - MOST_STATES]:
            del self.states[at]

    @property
    def state(self) -> dict[int, Pair]:
        """Returns the states after the last token, by layer."""
        return self.states.get(self.tokens, {})

    def held(self) -> Iterable[Tensor]:
        """Yields its tensors."""
        for pairs in (self.keys, *self.states.values()):
            for pair in pairs.values():
                yield from pair


class Prefixes:
    """Cache of prompts, up to a bound.

    Args:
        most_bytes: the bound that `trim` enforces; the least recently used prompts are dropped first. A state that
            prompts share counts for each of them.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self.held = most_bytes, 0
        self._kept: OrderedDict[Prompt, PromptCache] = OrderedDict()
        self._sorted: list[Prompt] = []

    def __len__(self) -> int:
        return len(self._kept)

    def longest(self, prompt: Prompt) -> tuple[PromptCache | None, int]:
        """Finds the known prompt of which the most is usable, and marks it as used.

        Returns:
            What is usable of it, or None; and the number of common tokens, 0 if no known prompt shares the first token.
        """
        # among sorted prompts, one of the two neighbours shares the longest prefix with this prompt
        place = bisect_left(self._sorted, prompt)
        neighbours = self._sorted[max(0, place - 1) : place + 1]
        found = [(self._kept[other].first(common(other, prompt)), other) for other in neighbours]
        shared = max((common(other, prompt) for other in neighbours), default=0)
        if not shared:
            return None, 0
        # a neighbour with fewer common tokens may have a later state
        usable, nearest = max(found, key=lambda one: (one[0].tokens if one[0] else 0, common(one[1], prompt)))
        self._kept.move_to_end(nearest)
        return usable, shared

    def keep(self, prompt: Prompt, cache: PromptCache) -> None:
        """Keeps a prompt and drops a kept prefix of it; does nothing if it is a prefix of a kept one."""
        place = bisect_left(self._sorted, prompt)
        for neighbour in self._sorted[max(0, place - 1) : place + 1]:
            self.held += self._kept[neighbour].add_states(cache, common(neighbour, prompt))
        if place < len(self._sorted) and _begins(self._sorted[place], prompt):
            return
        if place and _begins(prompt, self._sorted[place - 1]):
            self._drop(self._sorted[place - 1])
        cache.thin()
        insort(self._sorted, prompt)
        self._kept[prompt] = cache
        self.held += _bytes(cache.held())

    def clear(self) -> None:
        """Drops all prompts."""
        while self._kept:
            self._drop(next(iter(self._kept)))

    def trim(self) -> None:
        """Drops the least recently used prompts until the bound holds."""
        while self.held > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, prompt: Prompt) -> None:
        self.held -= _bytes(self._kept.pop(prompt).held())
        del self._sorted[bisect_left(self._sorted, prompt)]


def _begins(prompt: Prompt, beginning: Prompt) -> bool:
    return prompt[: len(beginning)] == beginning


def common(one: Prompt, other: Prompt) -> int:
    """Counts the equal tokens at the beginnings of two prompts."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in tensors)
