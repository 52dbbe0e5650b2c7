"""Runs the small policy fast on two cores: the `transformers` model's weights with fewer and larger operations.

The policy is a small Qwen3-VL or, if its patches attend within windows, a small Qwen2.5-VL.

Questions about the same screen are packed into rows of tokens that share one encoded screen. A row has one question, or
several in training. Every question attends to the screen and to itself, never to another question or its answer, and
has the positions that it would have alone. So packing changes the cost of an answer, not the answer.

The stock forward pass is slow on a CPU. In this network, the patch embedding is one matrix product, since the backward
pass of a Conv3d takes a third of a step. The matrices q, k and v are one product, and so are the two halves of the
gated layer. Attention is plain products and a softmax, since the fused kernel's backward pass is slower at short
lengths. Only causal attention within screens is fused, in fp32 and for many tokens. All screens of a batch share one
grid, and logits are computed only where they are needed. All weights are in one flat tensor, so that an optimiser step
or an all-reduce is one operation. Logits equal the stock model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from models.precision import compute_dtype
from models.safe import weights_of
from models.tiny.layout import (
    ATTENTION,
    MERGERS,
    MLP,
    TEXT,
    VISION,
    check_architecture,
    check_state,
    head_width,
    is_windowed,
    kind_of,
    parts_of,
    read_config,
    start_tokens,
    stored,
)
from schemas.failure import CheckpointError

MULTIPLE = 16
"""Lengths are padded to multiples of this: the CPU library compiles a new kernel for every new shape."""
HIDDEN = -1e9
FUSED_FROM = 512
"""Number of tokens from which the fused kernel of causal attention is faster in bf16; in fp32 it always is."""


@dataclass(frozen=True, slots=True)
class PackedRows:
    """Rows of text, padded to one length L, after `lead` tokens of screens."""

    tokens: Tensor
    """(B, L) ids."""
    positions: Tensor
    """(3, B, lead + L): time, row, column."""
    segments: Tensor
    """(B, lead + L): 0 for screens, 1, 2, ... for questions, -1 for padding."""
    lengths: tuple[int, ...]
    """Text tokens per row."""


def pack(
    rows: Sequence[Sequence[Sequence[int]]], blocks: tuple[int, int], screens: int, pad: int, starts: int
) -> PackedRows:
    """Packs rows of questions (each a sequence of ids) after `screens` screens of (rows, columns) blocks each, and each
    screen after `starts` tokens of text (`TinyNet.starts`)."""
    lead_positions, start = _screen_positions(blocks, screens, starts)
    lead = lead_positions.shape[1]
    lengths = tuple(sum(map(len, row)) for row in rows)
    length = -(-max(lengths) // MULTIPLE) * MULTIPLE
    tokens = torch.full((len(rows), length), pad)
    segments = torch.full((len(rows), lead + length), -1)
    segments[:, :lead] = 0
    places = torch.zeros(len(rows), length, dtype=torch.long)
    for index, row in enumerate(rows):
        flat = [token for question in row for token in question]
        tokens[index, : len(flat)] = torch.tensor(flat)
        segments[index, lead : lead + len(flat)] = torch.tensor([k for k, q in enumerate(row, 1) for _ in q])
        places[index, : len(flat)] = torch.tensor([start + place for q in row for place in range(len(q))])
    head = lead_positions[:, None].expand(3, len(rows), lead)
    return PackedRows(tokens, torch.cat([head, places.expand(3, -1, -1)], dim=2), segments, lengths)


def visible(segments: Tensor, dtype: torch.dtype, first: int = 0) -> Tensor:
    """Makes an additive attention mask (B, 1, L - first, L) of the tokens from `first` on: causal; all tokens attend to
    screens, and a question only to itself."""
    queries, keys = segments[:, first:, None], segments[:, None, :]
    order = torch.arange(segments.shape[1])
    seen = ((keys == 0) | (keys == queries)) & (order[first:, None] >= order)
    return torch.where(seen, 0.0, HIDDEN).to(dtype).unsqueeze(1)


def _screen_positions(blocks: tuple[int, int], screens: int, starts: int) -> tuple[Tensor, int]:
    """Computes positions (3, screens * (starts + rows * columns)) of the screens, and the position of the first text
    token."""
    rows, columns = blocks
    step = starts + max(blocks)
    grid = torch.stack(torch.meshgrid(torch.zeros(1).long(), torch.arange(rows), torch.arange(columns), indexing="ij"))
    one = torch.cat([torch.arange(starts).expand(3, -1), grid.reshape(3, -1) + starts], dim=1)
    return torch.cat([one + step * screen for screen in range(screens)], dim=1), step * screens


class Grid(NamedTuple):
    """Patches of a screen: rows and columns, both multiples of the merge size."""

    rows: int
    columns: int


class TextRead(NamedTuple):
    """Results of the text stack for the text after screens."""

    hidden: Tensor
    """(B, L, hidden), normed."""
    queries: Tensor
    """(B, heads, L, head) of the text, in the last layer."""
    keys: Tensor
    """(B, heads, S, head) of the screens, in the last layer."""
    screens: Tensor
    """(B, S, hidden) input of the last layer."""
    values: Tensor
    """(B, heads, S, head) of the screens, in the last layer."""


class Cache:
    """Keys and values of every layer, with room for `length` tokens."""

    def __init__(self, layers: int, batch: int, heads: int, length: int, width: int, dtype: torch.dtype) -> None:
        self.keys = torch.zeros(layers, batch, heads, length, width, dtype=dtype)
        self.values = torch.zeros(layers, batch, heads, length, width, dtype=dtype)
        self.filled = 0


class TinyNet:
    """The small policy's network, whose weights are the flat tensor `flat`.

    Leaves of the autograd graph are views of `flat`; its parts are in the order of `sections`.

    Args:
        config: the checkpoint's `config.json`.
        state: its tensors by their `transformers` names.
        dtype: number type of the network; `compute_dtype()` if None.

    Raises:
        CheckpointError: the architecture differs, or a tensor is missing or has another shape.
    """

    def __init__(self, config: dict[str, Any], state: dict[str, Tensor], dtype: torch.dtype | None = None) -> None:
        check_architecture(config)
        self.config = config
        self.dtype = dtype = dtype or compute_dtype()
        self.text, self.vision = config["text_config"], config["vision_config"]
        self.windowed = is_windowed(config)
        self.heads, self.head = self.text["num_attention_heads"], head_width(self.text)
        self.image_token: int = config["image_token_id"]
        self.start = torch.tensor(start_tokens(config), dtype=torch.long)
        """Ids of the text tokens before each screen."""
        parts = parts_of(config)
        state = stored(config, state)
        check_state(parts, state)
        names = sorted(parts, key=lambda name: kind_of(name, parts[name]))
        fused = {name: torch.cat([state[part].to(dtype).flatten() for part in parts[name]]) for name in names}
        self.flat = torch.cat([fused[name] for name in names])
        sizes = [sum(fused[name].numel() for name in names if kind_of(name, parts[name]) == kind) for kind in range(3)]
        self.sections = (sizes[0], sizes[1], sizes[2])
        """Numbers of elements of `flat` in matrices, in tables (embeddings, positions) and in vectors, in this
        order."""
        self._parts = parts
        self.leaves: dict[str, Tensor] = {}
        offset = 0
        for name in names:
            shapes = list(parts[name].values())
            rows = sum(shape[0] for shape in shapes)
            size = fused[name].numel()
            self.leaves[name] = self.flat[offset : offset + size].view(rows, *shapes[0][1:])
            offset += size
        self._grids: dict[Grid, _GridTables] = {}
        self._tables = self._text_tables(1024)

    @classmethod
    def load(cls, directory: Path, dtype: torch.dtype | None = None) -> TinyNet:
        """Reads a checkpoint directory; raises `CheckpointError` for unreadable files and in the cases of the
        constructor."""
        return cls(*_read_checkpoint(directory), dtype)

    def state(self) -> dict[str, Tensor]:
        """Returns the tensors by their `transformers` names."""
        offset = 0
        tensors = {}
        for name in self.leaves:
            for part, shape in self._parts[name].items():
                size = math.prod(shape)
                tensors[part] = self.flat[offset : offset + size].view(shape).detach()
                offset += size
        return tensors

    @property
    def text_parameters(self) -> int:
        """Counts the weights of the text stack that every token uses."""
        return self._matrix_elements(f"{TEXT}layers.")

    @property
    def vision_parameters(self) -> int:
        """Counts the weights of the vision tower that every patch uses."""
        return self._matrix_elements(f"{VISION}blocks.") + self.leaves[f"{VISION}patch_embed.proj.weight"].numel()

    def _matrix_elements(self, start: str) -> int:
        return sum(leaf.numel() for name, leaf in self.leaves.items() if name.startswith(start) and leaf.ndim > 1)

    @property
    def starts(self) -> int:
        """Counts the text tokens before each screen."""
        return len(self.start)

    def matrix_shapes(self) -> list[tuple[int, ...]]:
        """Lists the shapes of the matrices in the order of `flat`."""
        kinds = [(name, self._parts[name]) for name in self.leaves]
        return [shape for name, parts in kinds if kind_of(name, parts) == 0 for shape in parts.values()]

    def layout(self) -> list[tuple[str, tuple[int, ...]]]:
        """Lists name and shape of every tensor in the order of `flat`."""
        return [part for name in self.leaves for part in self._parts[name].items()]

    def gradients(self, vision: bool = True) -> Tensor:
        """Makes all leaves accumulate their gradients in one flat tensor, and returns this tensor; without `vision`,
        the gradient of the vision tower and its merger stays 0."""
        flat, offset = torch.zeros_like(self.flat), 0
        for name, leaf in self.leaves.items():
            leaf.requires_grad_(vision or not name.startswith(VISION))
            leaf.grad = flat[offset : offset + leaf.numel()].view_as(leaf)
            offset += leaf.numel()
        return flat

    def vision_ranges(self) -> list[slice]:
        """Lists the parts of `flat` that hold the vision tower and its merger."""
        found, offset = [], 0
        for name, leaf in self.leaves.items():
            if name.startswith(VISION):
                found.append(slice(offset, offset + leaf.numel()))
            offset += leaf.numel()
        return found

    def see(self, patches: Tensor, grid: Grid) -> Tensor:
        """Encodes screens: (B, rows * columns, 3 * patch ** 2) to (B, tokens, hidden), one token per merged block.

        Equal windows, such as those of a plain background, are encoded once.
        """
        w, vision = self.leaves, self.vision
        tables, activate = self._grid(grid), _activation(vision["hidden_act"])
        x, mask, numbers = patches.to(self.dtype), None, None
        if self.windowed:
            x, mask, numbers = self._different_windows(x, grid)
        kernel = w[f"{VISION}patch_embed.proj.weight"].flatten(1)
        x = F.linear(x, kernel, w.get(f"{VISION}patch_embed.proj.bias"))
        if tables.spread is not None:
            x = x + tables.spread @ w[f"{VISION}pos_embed.weight"]
        for layer in range(vision["depth"]):
            at = f"{VISION}blocks.{layer}."
            qkv = self.product(self._vision_norm(x, f"{at}norm1"), f"{at}attn.qkv")
            qk, v = qkv.unflatten(-1, (3, vision["num_heads"], -1)).split([2, 1], dim=2)
            qk = rotate(qk, tables.cosine, tables.sine)
            q, k, v = torch.cat([qk, v], dim=2).permute(2, 0, 3, 1, 4).contiguous().unbind()
            x = x + self.product(attend(q, k, v, mask), f"{at}attn.proj")
            y = self._vision_norm(x, f"{at}norm2")
            if self.windowed:
                gate, up = self.product(y, f"{at}{MLP}gate_up").chunk(2, dim=-1)
                x = x + self.product(activate(gate) * up, f"{at}{MLP}down_proj")
            else:
                x = x + self.product(activate(self.product(y, f"{at}{MLP}linear_fc1")), f"{at}{MLP}linear_fc2")
        norm, first, second = (f"{VISION}merger.{part}" for part in MERGERS[self.config["model_type"]])
        x = self._vision_norm(x, norm)
        x = x.reshape(len(x), -1, x.shape[-1] * vision["spatial_merge_size"] ** 2)
        x = self.product(F.gelu(self.product(x, first)), second)
        if numbers is not None:
            x = repeated(x, numbers)
        return self._out_of_windows(x, grid) if self.windowed else x

    def lead(self, screens: Tensor, rows: int) -> Tensor:
        """Joins the screens of each row, each after its start tokens: (rows * n, tokens, hidden) to (rows, n *
        (`starts` + tokens), hidden)."""
        if self.starts:
            screens = torch.cat([self.embed(self.start).expand(len(screens), -1, -1), screens], dim=1)
        return screens.reshape(rows, -1, screens.shape[-1])

    def _vision_norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.leaves[f"{name}.weight"]
        if self.windowed:
            return F.rms_norm(x, weight.shape, weight, 1e-6)
        return F.layer_norm(x, weight.shape, weight, self.leaves[f"{name}.bias"], 1e-6)

    def _windows(self, grid: Grid) -> tuple[int, int, int, int]:
        """Computes rows and columns of a grid's windows, and height and width of a window in image tokens."""
        merge = self.vision["spatial_merge_size"]
        side = self.vision["window_size"] // merge // self.vision["patch_size"]
        high, wide = min(side, grid.rows // merge), min(side, grid.columns // merge)
        return -(-grid.rows // merge // high), -(-grid.columns // merge // wide), high, wide

    def _into_windows(self, x: Tensor, grid: Grid) -> Tensor:
        """Orders patches (B, rows * columns, width) by window, (B * windows, patches of a window, width); windows at
        the right and lower edge are filled with zeros."""
        merge, (down, across, high, wide) = self.vision["spatial_merge_size"], self._windows(grid)
        rows, columns = grid.rows // merge, grid.columns // merge
        x = x.view(len(x), rows, columns, -1)
        x = F.pad(x, (0, 0, 0, across * wide - columns, 0, down * high - rows))
        x = x.view(len(x), down, high, across, wide, -1).transpose(2, 3)
        return x.reshape(len(x) * down * across, high * wide * merge**2, -1)

    def _different_windows(self, patches: Tensor, grid: Grid) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Selects the windows of screens that differ in their patches or their padding.

        Returns:
            Patches of these n windows, as by `_into_windows`; their mask, if any window is padded; and the number of
            each of the B * windows windows among them, or None if all are selected.
        """
        x, mask = self._into_windows(patches, grid), self._grid(grid).mask
        contents = x.flatten(1)
        if mask is not None:
            mask = mask.repeat(len(patches), 1, 1, 1)
            contents = torch.cat([contents, mask.flatten(1)], dim=1)
        known: dict[bytes, int] = {}
        numbers = [known.setdefault(row.tobytes(), len(known)) for row in contents.view(torch.uint8).numpy()]
        count = -(-len(known) // MULTIPLE) * MULTIPLE
        if count >= len(x):
            return x, mask, None
        chosen = torch.zeros(count, dtype=torch.long)  # window 0 fills the rest
        places = torch.tensor(numbers)
        chosen[places] = torch.arange(len(x))  # any of equal windows
        return x[chosen], None if mask is None else mask[chosen], places

    def _out_of_windows(self, x: Tensor, grid: Grid) -> Tensor:
        """Orders tokens by screen, (B * windows, tokens of a window, hidden) to (B, tokens, hidden), without those of
        the windows' padding."""
        merge, (down, across, high, wide) = self.vision["spatial_merge_size"], self._windows(grid)
        x = x.view(-1, down, across, high, wide, x.shape[-1]).transpose(2, 3)
        x = x.reshape(len(x), down * high, across * wide, -1)
        return x[:, : grid.rows // merge, : grid.columns // merge].flatten(1, 2)

    def read(self, x: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None = None) -> Tensor:
        """Runs the text stack.

        Args:
            x: embedded tokens and screens, (B, L, hidden).
            positions: time, row and column of every token, (3, B, L).
            mask: added to the attention scores, (B or 1, 1, L, keys).
            cache: gets the keys and values from position `filled` on, if given.

        Returns:
            Normed hidden states, (B, L, hidden).
        """
        cosine, sine = self._turns(positions)
        for layer in range(self.text["num_hidden_layers"]):
            q, k, v = self._queries(x, layer, cosine, sine, cache)
            x = self._mixed(x, attend(q, k, v, mask), layer)
        if cache is not None:
            cache.filled += positions.shape[2]
        return self._norm(x, f"{TEXT}norm.weight")

    def read_after(
        self, seen: Tensor, x: Tensor, positions: Tensor, mask: Tensor, cache: Cache | None = None
    ) -> TextRead:
        """Runs the text stack on screens and text, of which only the text's results are computed.

        The last layer takes keys and values of the screens, and no more; the results equal those of `read`.

        Args:
            seen: screens, (B, S, hidden).
            x: embedded text, (B, L, hidden).
            positions, cache: as in `read`, of screens and text, (3, B, S + L).
            mask: added to the attention scores of the text, (B or 1, 1, L, S + L). Screens see what comes before.
        """
        lead, last = seen.shape[1], self.text["num_hidden_layers"] - 1
        cosine, sine = self._turns(positions)
        both = torch.cat([seen, x], dim=1)
        for layer in range(last):
            q, k, v = self._queries(both, layer, cosine, sine, cache)
            found = attend_before(*(part[:, :, :lead] for part in (q, k, v))), attend(q[:, :, lead:], k, v, mask)
            both = self._mixed(both, torch.cat(found, dim=1), layer)
        q, k, v = self._queries(both, last, cosine, sine, cache)
        if cache is not None:
            cache.filled += both.shape[1]
        q = q[:, :, lead:]
        x = self._mixed(both[:, lead:], attend(q, k, v, mask), last)
        return TextRead(self._norm(x, f"{TEXT}norm.weight"), q, k[:, :, :lead], both[:, :lead], v[:, :, :lead])

    def _queries(
        self, x: Tensor, layer: int, cosine: Tensor, sine: Tensor, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Computes queries, keys and values (B, heads, L, head) of a layer; with a cache, keys and values since its
        beginning."""
        w, (batch, length) = self.leaves, x.shape[:2]
        at = f"{TEXT}layers.{layer}."
        y = self._norm(x, f"{at}input_layernorm.weight")
        qkv = self.product(y, f"{at}{ATTENTION}qkv").view(batch, length, 3, self.heads, self.head)
        qk, v = qkv.split([2, 1], dim=2)
        names = [f"{at}{ATTENTION}{part}_norm.weight" for part in "qk"]
        scale = None if self.windowed else torch.stack([w[name] for name in names])[:, None]
        qk = self._placed(qk, scale, cosine, sine)
        q, k, v = torch.cat([qk, v], dim=2).permute(2, 0, 3, 1, 4).contiguous().unbind()
        if cache is None:
            return q, k, v
        end = cache.filled + length
        cache.keys[layer, :, :, cache.filled : end] = k
        cache.values[layer, :, :, cache.filled : end] = v
        return q, cache.keys[layer, :, :, :end], cache.values[layer, :, :, :end]

    def _placed(self, x: Tensor, scale: Tensor | None, cosine: Tensor, sine: Tensor) -> Tensor:
        """Norms queries or keys (B, L, n, heads, head) if there is a scale, and rotates them by their positions."""
        if scale is not None:
            x = F.rms_norm(x, (self.head,), eps=self.text["rms_norm_eps"]) * scale
        return rotate(x, cosine, sine)

    def _mixed(self, x: Tensor, attended: Tensor, layer: int) -> Tensor:
        """Computes a layer's output from its input and its attention."""
        at = f"{TEXT}layers.{layer}."
        x = x + self.product(attended, f"{at}{ATTENTION}o_proj")
        y = self.product(self._norm(x, f"{at}post_attention_layernorm.weight"), f"{at}{MLP}gate_up")
        gate, up = y.chunk(2, dim=-1)
        return x + self.product(F.silu(gate) * up, f"{at}{MLP}down_proj")

    def embed(self, tokens: Tensor) -> Tensor:
        """Maps token ids to their embeddings."""
        return F.embedding(tokens, self.leaves[f"{TEXT}embed_tokens.weight"])

    def logits(self, hidden: Tensor) -> Tensor:
        """Computes next-token logits of normed hidden states."""
        return F.linear(hidden, self.leaves[f"{TEXT}embed_tokens.weight"])

    def word_logits(self, x: Tensor) -> Tensor:
        """Computes logits of vectors without normalisation: the words to which they are close."""
        return self.logits(self._norm(x, f"{TEXT}norm.weight"))

    def head_logits(self, values: Tensor, heads: Tensor) -> Tensor:
        """Computes logits of what one head of the last text layer adds to a token that looks only at one other token.

        Args:
            values: the other token's values in this head, (n, head). heads: number of each head, (n,).
        """
        x = values.new_zeros(len(values), self.heads, self.head)
        x[torch.arange(len(values)), heads] = values
        last = self.text["num_hidden_layers"] - 1
        return self.word_logits(self.product(x.flatten(1), f"{TEXT}layers.{last}.{ATTENTION}o_proj"))

    def product(self, x: Tensor, name: str) -> Tensor:
        """Multiplies vectors by the matrix of this name, and adds its bias if it has one."""
        return F.linear(x, self.leaves[f"{name}.weight"], self.leaves.get(f"{name}.bias"))

    def new_cache(self, batch: int, length: int) -> Cache:
        """Makes an empty cache for `batch` rows of up to `length` tokens."""
        return Cache(self.text["num_hidden_layers"], batch, self.heads, length, self.head, self.dtype)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.leaves[name], self.text["rms_norm_eps"])

    def _turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Makes the rotations (B, L, 1, 1, head) of multi-axis positions."""
        cosine, sine, axis = self._tables
        if int(positions.max()) >= len(cosine):
            cosine, sine, axis = self._tables = self._text_tables(2 * int(positions.max()))
        chosen = positions[axis].permute(1, 2, 0)
        column = torch.arange(len(axis))
        return turns(cosine[chosen, column], sine[chosen, column])

    def _text_tables(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        rope = self.text["rope_parameters"]
        half = self.head // 2
        if rope.get("mrope_interleaved"):  # frequencies 1, 4, ... by row, 2, 5, ... by column
            axis = torch.zeros(half, dtype=torch.long)
            for dimension in (1, 2):
                axis[dimension : 3 * rope["mrope_section"][dimension] : 3] = dimension
        else:
            sections = torch.tensor(rope["mrope_section"])
            axis = (torch.arange(len(sections)) % 3).repeat_interleave(sections)
        rates = rope["rope_theta"] ** -(torch.arange(half) / half)
        angles = torch.arange(length)[:, None] * rates
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype), axis

    def _grid(self, grid: Grid) -> _GridTables:
        if grid not in self._grids:
            rows, columns = block_order(grid, self.vision["spatial_merge_size"])
            spread = mask = None
            if self.windowed:
                places = torch.stack([torch.ones_like(rows), rows, columns], dim=1).float()
                inside, rows, columns = self._into_windows(places[None], grid).unbind(-1)
                mask = None if inside.all() else torch.where(inside > 0, 0.0, HIDDEN).to(self.dtype)[:, None, None]
            else:
                side = math.isqrt(self.vision["num_position_embeddings"])
                spread = _bilinear(rows, grid.rows, side)[:, :, None] * _bilinear(columns, grid.columns, side)[:, None]
                spread = spread.flatten(1).to(self.dtype)
            head = self.vision["hidden_size"] // self.vision["num_heads"]
            theta = (self.vision.get("rope_parameters") or {}).get("rope_theta", 10000.0)
            rates = theta ** -(torch.arange(0, head // 2, 2) / (head // 2))
            if self.windowed:  # only distances within a window count, and all windows have those of the first
                rows, columns = rows[0], columns[0]
            angles = torch.cat([rows[:, None] * rates, columns[:, None] * rates], dim=1)
            cosine, sine = turns(angles.cos().to(self.dtype), angles.sin().to(self.dtype))
            self._grids[grid] = _GridTables(spread, cosine, sine, mask)
        return self._grids[grid]


class _GridTables(NamedTuple):
    """Tables of a grid of patches."""

    spread: Tensor | None
    """(patches, positions): interpolates the position table, if there is one."""
    cosine: Tensor
    """Rotations of the patches or, with windows, of the patches of a window."""
    sine: Tensor
    mask: Tensor | None
    """(windows, 1, 1, patches of a window): hides the padding of windows; None without padding."""


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        ctx.save_for_backward(cosine, sine)
        return (x * cosine).addcmul_(x.roll(x.shape[-1] // 2, -1), sine)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        gradient = gradients[0]
        return (gradient * cosine).add_((gradient * sine).roll(gradient.shape[-1] // 2, -1)), None, None


class _Repeat(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, numbers: Tensor) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.count = len(x)
        return x[numbers]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (numbers,) = ctx.saved_tensors
        summed = gradients[0].new_zeros(ctx.count, *gradients[0].shape[1:], dtype=torch.float32)
        return summed.index_add_(0, numbers, gradients[0].float()).to(gradients[0].dtype), None


def repeated(x: Tensor, numbers: Tensor) -> Tensor:
    """Returns the rows of these numbers; gradients of a row that is taken several times are summed in fp32."""
    return _Repeat.apply(x, numbers)  # type: ignore[return-value]


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates (..., L, 2, heads, width) by the results of `turns`; rolling the last axis by half swaps the pairs."""
    return _Rotate.apply(x, cosine, sine)  # type: ignore[return-value]


def turns(cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Makes cosine and signed sine (..., L, 1, 1, width) for `rotate` from the cosine and sine of angles (..., L, width
    / 2)."""
    return torch.cat([cosine, cosine], -1)[..., None, None, :], torch.cat([-sine, sine], -1)[..., None, None, :]


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Computes attention of (B, heads, L, width) as plain products; returns (B, L, heads * width)."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def attend_before(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Computes causal attention as `attend`, by the fused kernel where it is faster."""
    length = q.shape[2]
    if q.dtype == torch.float32 or length >= FUSED_FROM:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
    return attend(q, k, v, torch.full((length, length), HIDDEN, dtype=q.dtype).triu(1))


def block_order(grid: Grid, merge: int) -> tuple[Tensor, Tensor]:
    """Lists row and column of every patch in the model's order: block by block of merge x merge patches."""
    rows = torch.arange(grid.rows).view(-1, 1, merge, 1)
    columns = torch.arange(grid.columns).view(1, -1, 1, merge)
    rows, columns = torch.broadcast_tensors(
        rows.expand(grid.rows // merge, 1, merge, 1), columns.expand(1, grid.columns // merge, 1, merge)
    )
    return rows.reshape(-1), columns.reshape(-1)


def _bilinear(index: Tensor, length: int, side: int) -> Tensor:
    """Computes interpolation weights (n, side) of a table's cells at positions 0 to length-1, with aligned ends."""
    place = index * ((side - 1) / max(length - 1, 1))
    return (1 - (place[:, None] - torch.arange(side)).abs()).clamp(min=0)


def _read_checkpoint(directory: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Reads a checkpoint's `config.json` and tensors.

    Raises:
        CheckpointError: a file is missing or cannot be read.
    """
    config = read_config(directory)
    try:
        files = {*weights_of(directory).values()}
        return config, {name: tensor for file in files for name, tensor in load_file(file).items()}
    except (OSError, ValueError, SafetensorError) as error:
        raise CheckpointError(f"{directory}: {error}.", "The checkpoint is broken.") from error


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    """Finds one of `ACTIVATIONS` by its name in a `config.json`."""
    return partial(F.gelu, approximate="tanh") if name == "gelu_pytorch_tanh" else getattr(F, name)
