"""Prefills the rows of a batch in one forward pass, and decodes them token by token in memory of a fixed size.

Rows are packed for prefilling: each attends to its own kept beginning and to itself. For decoding, each row has a slot.
A step has the same shapes and addresses for every token, so that a GPU captures its launches once and replays them.
A row that has ended makes room for the next prompt, so short replies do not wait for long ones.
"""

import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from models.attention import attend, by_length, has_kernel, variable_length
from models.sampling import choose_drawn
from models.serving.prompt_cache import Pair, PromptCache

ROWS = "flywheel_rows"
SCREENS = "flywheel_flash_rows"
"""Name of the tower's attention; the library makes one call for all screens if the name contains `flash`."""
TOWERS = ("qwen2_5_vl", "qwen3_vl", "qwen3_5")
"""Beginnings of the kinds of towers that can make one call for all screens."""
ROOM = {"cpu": 64, "cuda": 1024}
"""Slots have room for a multiple of so many tokens; a GPU captures a step again for every other size."""
EVERY = {"cpu": 1, "cuda": 8}
"""Tokens after which the host looks which rows have ended, for which it waits for a GPU."""
DELTANETS = ("qwen3_5_text", "qwen3_5_moe_text")
"""Text stacks whose other layers are gated DeltaNets."""


@contextmanager
def rows_attention_of(model: Any) -> Iterator[None]:
    """Lets a model attend by the keyword `rows` of its forward pass."""
    config = model.config.get_text_config()
    before, config._attn_implementation = config._attn_implementation, ROWS
    try:
        yield
    finally:
        config._attn_implementation = before


def use_one_call_for_screens(model: Any) -> None:
    """Lets the vision tower make one attention call a layer, instead of one for each screen and window."""
    vision = getattr(model.config, "vision_config", None)
    if getattr(vision, "model_type", "").startswith(TOWERS):
        vision._attn_implementation = SCREENS  # type: ignore[union-attr]


def rows_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    rows: "PrefillRows | Slots | None" = None,
    cu_seq_lens_q: Tensor | None = None,
    max_length_q: int | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Computes attention from (n, heads, tokens, width) to (n, tokens, heads, width); the signature is the library's.

    Args:
        module: the layer.
        query, key, value: keys and values may have fewer heads than queries.
        attention_mask: never given.
        scaling: factor of the scores.
        rows: the rows of the language model.
        cu_seq_lens_q: starts of windows or screens, and the end of the last one, for the vision tower.
        max_length_q: length of the longest window or screen.
    """
    if cu_seq_lens_q is None:
        assert rows is not None
        return rows.attend(query, key, value, scaling), None
    q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
    if has_kernel(query):
        starts = cu_seq_lens_q.to(torch.int32)
        longest = int(max_length_q or starts.diff().max())
        return variable_length(q, k, v, starts, longest, scaling, False)[None], None
    return by_length(q, k, v, cu_seq_lens_q.diff().tolist(), scaling, False)[None], None


for _name in (ROWS, SCREENS):
    ALL_ATTENTION_FUNCTIONS.register(_name, rows_attention)


class DeltaState:
    """The states of a gated DeltaNet layer for some rows, with the library's methods of a cache.

    Args:
        pair: inputs of the convolution and recurrent state (`PromptCache.states`); None before the first token.
        fixed: whether states stay at their addresses, for a captured graph.
    """

    def __init__(self, pair: Pair | None, fixed: bool = False) -> None:
        self._inputs, self._recurrent = pair or (None, None)
        self._fixed = fixed

    @property
    def pair(self) -> Pair:
        """Returns both states."""
        assert self._inputs is not None and self._recurrent is not None
        return self._inputs, self._recurrent

    def get_conv_state(self, *_: Any, **__: Any) -> Tensor | None:
        """Returns the last inputs of the convolution, (rows, channels, kernel)."""
        return self._inputs

    def get_recurrent_state(self, *_: Any, **__: Any) -> Tensor | None:
        """Returns the recurrent state, (rows, heads, key width, value width)."""
        return self._recurrent

    def is_recording_past(self, _: int) -> bool:
        """Returns whether earlier states are kept, too."""
        return False

    def update_conv_state(self, new: Tensor, _: int, conv_kernel_size: int) -> Tensor:
        """Keeps the last inputs of several tokens; returns the kept ones and these, (rows, channels, tokens)."""
        both = new if self._inputs is None else torch.cat([self._inputs, new], dim=2)
        both = F.pad(both, (max(0, conv_kernel_size - both.shape[2]), 0))
        self._inputs = both[:, :, -conv_kernel_size:].clone()
        return both

    def update_recurrent_state(self, new: Tensor, _: int) -> None:
        """Keeps the recurrent state after the last token."""
        if self._fixed and self._recurrent is not None:
            self._recurrent.copy_(new)
        else:
            self._recurrent = new


def _copied(pair: Pair) -> Pair:
    """Copies states, which a kernel may change in place."""
    return pair[0].clone(), pair[1].clone()


def separate_rows(model: Any) -> None:
    """Lets gated DeltaNet layers process each row alone, by the keyword `rows` of a forward pass."""
    for module in model.modules():
        if isinstance(mixer := getattr(module, "linear_attn", None), torch.nn.Module):
            mixer.__class__ = _separate(type(mixer))


@cache
def _separate(kind: type[torch.nn.Module]) -> type[torch.nn.Module]:
    return type(f"Separate{kind.__name__}", (_SeparateMixer, kind), {})


class _SeparateMixer(torch.nn.Module):
    """A gated DeltaNet layer for rows, before the library's class among the bases."""

    layer_idx: int

    def forward(  # type: ignore[override]
        self, hidden_states: Tensor, rows: "PrefillRows | Slots | None" = None, **more: Any
    ) -> Tensor:
        """Maps (rows, tokens, width) to the same shape."""
        forward = super().forward
        if rows is None:
            return forward(hidden_states=hidden_states, **more)
        return rows.mix(lambda part, state: forward(hidden_states=part, cache=state), hidden_states, self.layer_idx)


class PrefillRows:
    """The cache of one prefill: what the layers keep of packed rows, each after its kept beginning.

    Args:
        known: what is kept of each row's beginning.
        new: number of packed tokens of each row.
        marks: number of the packed tokens of each row after which states are kept, too; 0 for none.
        device: the model's.
    """

    def __init__(
        self, known: Sequence[PromptCache | None], new: Sequence[int], marks: Sequence[int], device: torch.device
    ) -> None:
        before = [one.tokens if one else 0 for one in known]
        self._all = [old + more for old, more in zip(before, new, strict=True)]
        self.filled = [
            PromptCache(tokens, {}, {at: dict(state) for at, state in old.states.items()} if old else {})
            for tokens, old in zip(self._all, known, strict=True)
        ]
        """What is kept of each row's whole prompt."""
        self._known, self._before, self._new, self._marks = known, before, list(new), marks
        self._starts, self._key_starts = (
            torch.tensor([0, *accumulate(sizes)], dtype=torch.int32, device=device) for sizes in (self._new, self._all)
        )

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Keeps a layer's packed keys and values, (1, heads, tokens, width); returns those of all rows, packed."""
        for row, old, *new in zip(
            self.filled, self._known, keys.split(self._new, dim=2), values.split(self._new, dim=2), strict=True
        ):
            both = [torch.cat(pair, dim=2) for pair in zip(old.keys[layer], new, strict=True)] if old else new
            row.keys[layer] = (both[0].clone(), both[1].clone()) if not old else (both[0], both[1])
        made = [torch.cat([row.keys[layer][part] for row in self.filled], dim=2) for part in (0, 1)]
        return made[0], made[1]

    def mix(self, forward: Callable[[Tensor, DeltaState], Tensor], hidden: Tensor, layer: int) -> Tensor:
        """Runs a gated DeltaNet layer on each row, and keeps its states, also where a row has a mark."""
        made = []
        for row, old, before, mark, part in zip(
            self.filled, self._known, self._before, self._marks, hidden.split(self._new, dim=1), strict=True
        ):
            state, at = DeltaState(_copied(old.state[layer]) if old else None), before
            for piece in part.split([mark, part.shape[1] - mark] if mark else [part.shape[1]], dim=1):
                made.append(forward(piece, state))
                at += piece.shape[1]
                row.states.setdefault(at, {})[layer] = _copied(state.pair)
        return torch.cat(made, dim=1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Attends within each row; a token attends to its row's earlier tokens and itself."""
        if has_kernel(query):
            q, k, v = (part[0].transpose(0, 1) for part in (query, key, value))
            keys = self._key_starts, max(self._all)
            return variable_length(q, k, v, self._starts, max(self._new), scaling, True, keys)[None]
        parts = zip(query.split(self._new, 2), key.split(self._all, 2), value.split(self._all, 2), strict=True)
        return torch.cat([attend(*part, scaling, True) for part in parts], dim=2).transpose(1, 2)

    def get_seq_length(self, _: int = 0) -> int:
        """Returns 0: positions are always given."""
        return 0


@dataclass(slots=True)
class PrefilledRow:
    """A prompt of which all tokens but the last are computed."""

    cache: PromptCache | None
    last: int
    """The prompt's last token."""
    positions: Tensor
    """(axes,) position of the last token."""


@dataclass(slots=True)
class Reply:
    """What a row sampled, with tokens after its end token."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Slots:
    """Memory in which rows are decoded together; it is also the cache of the model.

    Args:
        model: the model.
        count: number of rows.
        axes: axes of positions.
        temperature: divisor of the logits; 0 is greedy.
        reply: maximum tokens of a reply.
        room: tokens of a row, prompt and reply.
        ends: tokens that end a reply.
    """

    def __init__(
        self, model: Any, count: int, axes: int, temperature: float, reply: int, room: int, ends: Sequence[int]
    ) -> None:
        self.count, self.key, self.room = count, (axes, temperature, reply), room
        device = model.device
        self._model, self._temperature, self._graph = model, temperature, None
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._states: dict[int, DeltaState] = {}
        self._columns = torch.arange(room, device=device)
        self._lengths, self._taken = (torch.zeros(count, 1, dtype=torch.long, device=device) for _ in range(2))
        self._ids = torch.zeros(count, 1, dtype=torch.long, device=device)
        self._positions = torch.zeros(axes, count, 1, dtype=torch.long, device=device)
        self._draws, self._logprobs = (torch.zeros(count, reply, dtype=torch.float64, device=device) for _ in range(2))
        self._tokens = torch.zeros(count, reply, dtype=torch.long, device=device)
        self._ended = torch.ones(count, 1, dtype=torch.bool, device=device)
        self._ends = torch.tensor(list(ends), dtype=torch.long, device=device)
        self._mask: Tensor | None = None

    def put(self, slot: int, row: PrefilledRow, draw: random.Random) -> None:
        """Puts a prompt into a slot; its random numbers are drawn at once."""
        kept = row.cache or PromptCache(0)
        if not self._keys:
            self._allocate(kept)
        for layer, (keys, values) in kept.keys.items():
            self._keys[layer][slot, :, : kept.tokens] = keys[0]
            self._values[layer][slot, :, : kept.tokens] = values[0]
        for layer, state in self._states.items():
            for held, new in zip(state.pair, kept.state.get(layer, (0, 0)), strict=True):
                held[slot] = new[0] if isinstance(new, Tensor) else new
        self._lengths[slot], self._ids[slot], self._taken[slot], self._ended[slot] = kept.tokens, row.last, 0, False
        self._positions[:, slot, 0] = row.positions
        if self._temperature:
            reply = self._draws.shape[1]
            self._draws[slot] = torch.tensor([draw.random() for _ in range(reply)], dtype=torch.float64)

    def _allocate(self, like: PromptCache) -> None:
        """Allocates memory for every layer of a prompt."""
        count, room = self.count, self.room
        for layer, pair in like.keys.items():
            made = [one.new_zeros(count, one.shape[1], room, one.shape[3]) for one in pair]
            self._keys[layer], self._values[layer] = made
        for layer, (inputs, recurrent) in like.state.items():
            shaped = inputs.new_zeros(count, *inputs.shape[1:]), recurrent.new_zeros(count, *recurrent.shape[1:])
            self._states[layer] = DeltaState(shaped, fixed=True)

    def grown(self, count: int, room: int) -> "Slots":
        """Returns slots with more rows, or more room in each row, that go on with these replies.

        A GPU captures a step again.
        """
        made = Slots(self._model, count, *self.key, room, self._ends.tolist())
        more = room - self.room, count - self.count
        made._keys, made._values = (
            {layer: F.pad(one, (0, 0, 0, more[0], 0, 0, 0, more[1])) for layer, one in held.items()}
            for held in (self._keys, self._values)
        )
        for layer, state in self._states.items():
            inputs, recurrent = (F.pad(one, (0, 0) * (one.ndim - 1) + (0, more[1])) for one in state.pair)
            made._states[layer] = DeltaState((inputs, recurrent), fixed=True)
        for new, old in zip((*made._rows, made._draws), (*self._rows, self._draws), strict=True):
            new[: self.count] = old
        made._positions[:, : self.count] = self._positions
        return made

    def run(self, held: Sequence[int], stop: Callable[[], bool] = lambda: False) -> list[int]:
        """Samples tokens until a row in one of these slots has ended, or `stop`; returns the slots of all that have."""
        while True:
            for _ in range(EVERY[self._ids.device.type]):
                self._step_all()
            finished = (self._ended | (self._taken >= self._tokens.shape[1])).flatten().tolist()
            ended = [slot for slot in held if finished[slot]]
            if ended or stop():
                return ended

    def _step_all(self) -> None:
        """Samples one token of every row."""
        if self._ids.is_cuda and self._graph is None:
            self._graph = _captured(self._step, self._state)
        if self._graph:
            self._graph.replay()
        else:
            self._step()

    def read(self, slot: int) -> Reply:
        """Reads a row's reply."""
        taken = min(int(self._taken[slot]), self._tokens.shape[1])
        return Reply(self._tokens[slot, :taken].tolist(), self._logprobs[slot, :taken].clamp(max=0.0).tolist())

    def update(self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Adds the keys and values of a token of each row, (rows, heads, 1, width); returns those of all tokens."""
        place = self._lengths[:, :, None, None]
        for held, new in ((self._keys[layer], keys), (self._values[layer], values)):
            held.scatter_(2, place.expand_as(new), new)
        return self._keys[layer], self._values[layer]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Attends from each row's token to its row; heads that share keys are queries of one head."""
        grouped = query.reshape(len(key), key.shape[1], -1, query.shape[3])
        made = F.scaled_dot_product_attention(grouped, key, value, attn_mask=self._mask, scale=scaling)
        return made.reshape(query.shape).transpose(1, 2)

    def mix(self, forward: Callable[[Tensor, DeltaState], Tensor], hidden: Tensor, layer: int) -> Tensor:
        """Runs a gated DeltaNet layer on a token of each row, and updates its states."""
        return forward(hidden, self._states[layer])

    def get_seq_length(self, _: int = 0) -> int:
        """Returns 0: positions are always given."""
        return 0

    @property
    def _rows(self) -> list[Tensor]:
        """What a step changes of each row, (rows, ...)."""
        return [self._lengths, self._ids, self._taken, self._ended, self._tokens, self._logprobs]

    @property
    def _state(self) -> list[Tensor]:
        """All that a step changes but keys and values."""
        states = (one for state in self._states.values() for one in state.pair)
        return [*self._rows, self._positions, *states]

    def _step(self) -> None:
        base = self._model.base_model
        self._mask = (self._columns <= self._lengths)[:, None, None, :]
        hidden = base.language_model(
            inputs_embeds=base.get_input_embeddings()(self._ids),
            position_ids=self._positions,
            cache=self,
            use_cache=True,
            rows=self,
        ).last_hidden_state[:, -1]
        targets = self._draws.gather(1, self._at) if self._temperature else None
        chosen, shares = choose_drawn(self._model.get_output_embeddings()(hidden), targets, self._temperature)
        self._ids.copy_(chosen[:, None])
        self._tokens.scatter_(1, self._at, self._ids)
        self._logprobs.scatter_(1, self._at, shares.gather(1, self._ids))
        self._ended |= torch.isin(self._ids, self._ends)
        self._lengths.add_(1).clamp_(max=len(self._columns) - 1)  # rows that have ended go on until they are replaced
        self._taken.add_(1)
        self._positions.add_(1)

    @property
    def _at(self) -> Tensor:
        return self._taken.clamp(max=self._tokens.shape[1] - 1)


def _captured(step: Any, state: Sequence[Tensor]) -> Any:
    """Captures the launches of a step on a GPU; returns False where that fails.

    The state is restored afterwards. Keys and values beyond a row's length are written again by its next step.
    """
    before = [one.clone() for one in state]
    stream = torch.cuda.Stream()
    try:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries allocate their memory on the first calls
            for _ in range(2):
                step()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as error:
        warnings.warn(f"Decoding runs without a captured graph: {error}".splitlines()[0], stacklevel=2)
        graph = False
    for one, held in zip(state, before, strict=True):
        one.copy_(held)
    return graph
