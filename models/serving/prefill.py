"""Prefills prompts up to their last token before `generate` continues them, reusing those of earlier prompts.

A token's keys and values depend on the tokens and pictures up to it alone, so a step's cache equals that of the next
one for the part that they share, but for rounding. Rows of a batch share different parts with the kept ones; so each is
filled alone, without padding, and `generate` takes them together, padded on the left.
"""

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from models.serving.prefixes import Layers, Prefixes, Prompt, length
from models.serving.seen import SeenScreens

_TEXT = frozenset({"input_ids", "attention_mask", "mm_token_type_ids"})
_PICTURES = frozenset({"pixel_values", "image_grid_thw"})
_PICTURE = 1
"""Value of pictures in `mm_token_type_ids`, where text is 0."""


@dataclass(frozen=True, slots=True)
class _PrefillRow:
    """One prompt of a batch without its last token, which is computed with the reply's."""

    prompt: Prompt
    first: int
    """Column of its first token, after its padding."""
    names: Sequence[int]
    """Names of its pictures."""
    screen: int
    """Index of its first picture among those of the batch."""


class Prefill:
    """Prefills for `generate` of a model with the plain cache and screens, if any, as grids of patches.

    Such models are Qwen2.5-VL and Qwen3-VL; any other is left alone.

    Args:
        model: of `transformers`.
        seen: gets the names of the screens that are encoded next.
        most_bytes: of keys and values that are kept between calls, on the model's device; 0: nothing is done.
    """

    def __init__(self, model: Any, seen: SeenScreens, most_bytes: int) -> None:
        self._model, self._seen = model, seen
        self._kept = Prefixes(most_bytes)
        self._on = most_bytes > 0 and _is_plain(model)

    def __call__(self, inputs: dict[str, Tensor], pictures: Sequence[Sequence[int]]) -> dict[str, Any]:
        """Returns the inputs of `generate`: the processor's as they are, or tokens, positions and a filled cache.

        Args:
            inputs: of a batch, padded on the left; `input_ids` of shape (rows, columns).
            pictures: the numbers, below 0, that each row's pictures are known by.
        """
        rows = _rows(inputs, pictures) if self._on else None
        if rows is None:
            self._seen.next = [name for names in pictures for name in names]
            return dict(inputs)
        given = {name: tensor for name, tensor in inputs.items() if name not in ("input_ids", "pixel_values")}
        # of whole prompts: the position of a picture's tokens follows from its grid, which the rest of a prompt may
        # lack
        positions = self._model._prepare_position_ids_for_generation(inputs["input_ids"], given)
        filled = [self._fill(row, at, inputs, positions) for at, row in enumerate(rows)]
        self._kept.trim()
        cache = DynamicCache(_together(filled, [row.first for row in rows]))
        text = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        return {**text, "position_ids": positions, "past_key_values": cache}

    def _fill(self, row: _PrefillRow, at: int, inputs: dict[str, Tensor], positions: Tensor) -> Layers:
        """Computes keys and values of a row's prompt.

        Args:
            row: the one to fill.
            at: its place in the batch.
            inputs: of the batch.
            positions: (..., rows, columns).
        """
        known = self._kept.longest(row.prompt)
        if (shared := length(known)) == len(row.prompt):
            return known or []
        # the same picture has the same tokens, and none is the last of a prompt: so none is shared in part
        skipped = sum(token < 0 for token, _ in groupby(row.prompt[:shared]))
        span = slice(row.first + shared, row.first + len(row.prompt))
        given = {"input_ids": inputs["input_ids"][at : at + 1, span]}
        if row.names[skipped:]:
            first, last = row.screen + skipped, row.screen + len(row.names)
            given |= _screens(inputs, first, last)
            given["mm_token_type_ids"] = inputs["mm_token_type_ids"][at : at + 1, span]
        self._seen.next = row.names[skipped:]
        cache = DynamicCache(known)
        # the base model: no logits are wanted of a prompt's inner tokens
        self._model.base_model(
            **given, position_ids=positions[..., at : at + 1, span], past_key_values=cache, use_cache=True
        )
        layers: Layers = [(layer.keys, layer.values) for layer in cache.layers]  # type: ignore[attr-defined]
        self._kept.keep(row.prompt, layers)
        return layers


def _is_plain(model: Any) -> bool:
    """Checks whether the cache holds keys and values of every token: it can then be cut anywhere."""
    config = model.generation_config
    if getattr(model.config, "is_encoder_decoder", False) or not model._supports_default_dynamic_cache():
        return False
    if config.use_cache is False or config.cache_implementation not in (None, "dynamic"):
        return False
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    return takes_positions and all(type(layer) is DynamicLayer for layer in layers)


def _rows(inputs: dict[str, Tensor], pictures: Sequence[Sequence[int]]) -> list[_PrefillRow] | None:
    """Lists a batch's prompts; None for an output of the processor that is not understood here."""
    named = set(inputs)
    if named - _TEXT not in (set(), _PICTURES) or (any(pictures) and not named >= _TEXT | _PICTURES):
        return None
    made, screen = list[_PrefillRow](), 0
    for at, names in enumerate(pictures):
        first = int((inputs["attention_mask"][at] == 0).sum())
        tokens = inputs["input_ids"][at, first:].tolist()
        types = inputs["mm_token_type_ids"][at, first:].tolist() if any(pictures) else [0] * len(tokens)
        if [kind for kind, _ in groupby(types) if kind] != [_PICTURE] * len(names) or types[-1]:
            return None
        made.append(_PrefillRow(_prompt(tokens, types, names)[:-1], first, names, screen))
        screen += len(names)
    return made


def _prompt(tokens: Sequence[int], types: Sequence[int], names: Sequence[int]) -> Prompt:
    """Returns the tokens, with a picture's name in the place of each of its own."""
    made, left = list[int](), iter(names)
    for kind, run in groupby(zip(types, tokens, strict=True), key=itemgetter(0)):
        ids = [token for _, token in run]
        made += [next(left)] * len(ids) if kind else ids
    return tuple(made)


def _screens(inputs: dict[str, Tensor], first: int, last: int) -> dict[str, Tensor]:
    """Selects patches and grids of some of a batch's pictures, which lie one after the other, (patches, width)."""
    grids = inputs["image_grid_thw"]
    ends = torch.cat([grids.new_zeros(1), grids.prod(-1).cumsum(0)]).tolist()
    return {"pixel_values": inputs["pixel_values"][ends[first] : ends[last]], "image_grid_thw": grids[first:last]}


def _together(rows: Sequence[Layers], leads: Sequence[int]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields keys and values of each layer, (rows, heads, columns - 1, width); those of padding are masked."""
    for layers in zip(*rows, strict=True):
        keys, values = (
            torch.cat([pad(layer[part], (0, 0, lead, 0)) for layer, lead in zip(layers, leads, strict=True)])
            for part in (0, 1)
        )
        yield keys, values
