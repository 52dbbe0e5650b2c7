"""Prefills prompts up to their last token, and keeps what was computed of recent prompts.

A new prompt continues its longest common beginning with a kept one. A token's keys and values depend only on the tokens
and pictures up to it. So two steps' caches are equal for the shared prefix, except for rounding.
"""

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from models.serving.prompt_cache import Prefixes, Prompt, PromptCache, common
from models.serving.rows import (
    DELTANETS,
    PrefilledRow,
    PrefillRows,
    rows_attention_of,
    separate_rows,
    use_one_call_for_screens,
)
from models.serving.seen import SeenScreens

_TEXT = frozenset({"input_ids", "attention_mask", "mm_token_type_ids"})
_PICTURES = frozenset({"pixel_values", "image_grid_thw"})
_PICTURE = 1
"""Value of pictures in `mm_token_type_ids`, where text is 0."""
WAITS = 0.5
"""Share of a prompt's tokens from which it waits for another prompt of the batch that has them, too."""


@dataclass(slots=True)
class _PrefillRow:
    """One prompt without its last token; the last token is computed with the reply's tokens."""

    inputs: Mapping[str, Tensor]
    """The processor's tensors, one row."""
    prompt: Prompt
    names: Sequence[int]
    """Names of its pictures."""
    positions: Tensor
    """(axes, tokens)."""
    known: PromptCache | None = None
    """What is kept of its longest kept beginning, and later of the whole prompt."""
    branch: int = 0
    """Tokens that it has in common with another prompt, which cannot continue from `known`."""

    @property
    def tokens(self) -> int:
        """Counts the known tokens."""
        return self.known.tokens if self.known else 0

    @property
    def span(self) -> slice:
        """Tokens that are not known."""
        return slice(self.tokens, len(self.prompt))

    @property
    def skipped(self) -> int:
        """Counts its pictures in the kept beginning.

        Equal pictures have equal tokens, and no prompt ends with a picture, so no picture is shared in part.
        """
        return sum(token < 0 for token, _ in groupby(self.prompt[: self.tokens]))


class Prefill:
    """Prefills prompts, for a model with known layers and screens as grids of patches.

    Such models are Qwen2.5-VL, Qwen3-VL and Qwen3.5; other models are not prefilled.

    Args:
        model: a model of `transformers`.
        seen: cache that gets the names of the screens that are encoded next.
        most_bytes: size of the cache of keys and values, on the model's device; 0 disables prefilling.
    """

    def __init__(self, model: Any, seen: SeenScreens, most_bytes: int) -> None:
        self._model, self._seen = model, seen
        self._kept = Prefixes(most_bytes)
        self.on = most_bytes > 0 and _is_known(model)
        """Whether prompts are prefilled; otherwise, `generate` of the library must compute them."""
        if self.on:
            use_one_call_for_screens(model)
            separate_rows(model)

    def __call__(
        self, prompts: Sequence[Mapping[str, Tensor]], pictures: Sequence[Sequence[int]]
    ) -> list[PrefilledRow | None]:
        """Prefills prompts together; None for a prompt that `generate` of the library must compute.

        Args:
            prompts: the processor's tensors of each prompt, one row each.
            pictures: numbers below 0 that name each prompt's pictures.
        """
        rows = [self._row(inputs, names) for inputs, names in zip(prompts, pictures, strict=True)]
        left = [row for row in rows if row is not None]
        while left:
            left = self._fill(left)
        self._kept.trim()
        return [
            row and PrefilledRow(row.known, int(row.inputs["input_ids"][0, -1]), row.positions[:, -1]) for row in rows
        ]

    def forget(self) -> None:
        """Forgets all prompts and screens, since other weights compute something else of them."""
        self._kept.clear()
        self._seen.clear()

    def _row(self, inputs: Mapping[str, Tensor], names: Sequence[int]) -> _PrefillRow | None:
        """Reads a prompt; None if the processor's output has an unknown form."""
        named = set(inputs)
        if named - _TEXT not in (set(), _PICTURES) or (names and not named >= _TEXT | _PICTURES):
            return None
        tokens = inputs["input_ids"][0].tolist()
        types = inputs["mm_token_type_ids"][0].tolist() if names else [0] * len(tokens)
        if [kind for kind, _ in groupby(types) if kind] != [_PICTURE] * len(names) or types[-1]:
            return None
        given = {name: tensor for name, tensor in inputs.items() if name not in ("input_ids", "pixel_values")}
        # of the whole prompt: positions of a picture's tokens follow from its grid, and the rest of a prompt may lack
        # it
        positions = self._model._prepare_position_ids_for_generation(inputs["input_ids"], given)
        return _PrefillRow(inputs, _prompt(tokens, types, names)[:-1], names, positions.reshape(-1, len(tokens)))

    def _fill(self, rows: Sequence[_PrefillRow]) -> list[_PrefillRow]:
        """Computes keys and values of rows in one forward pass; returns rows that wait for the tokens of others."""
        now, later = list[_PrefillRow](), list[_PrefillRow]()
        for row in rows:
            row.known, row.branch = self._kept.longest(row.prompt)
            if row.tokens == len(row.prompt):
                continue
            least = row.tokens + WAITS * (len(row.prompt) - row.tokens)
            waits_for = next((other for other in now if common(row.prompt, other.prompt) > least), None)
            if waits_for is None:
                now.append(row)
            else:
                waits_for.branch = max(waits_for.branch, common(row.prompt, waits_for.prompt))
                later.append(row)
        if now:
            self._pass(now)
        return later

    def _pass(self, rows: Sequence[_PrefillRow]) -> None:
        """Computes keys and values of packed rows."""

        def packed(name: str) -> Tensor:
            return torch.cat([row.inputs[name][0, row.span] for row in rows])[None]

        given = {"input_ids": packed("input_ids")}
        self._seen.next = [name for row in rows for name in row.names[row.skipped :]]
        if self._seen.next:
            shown = [_screens(row.inputs, row.skipped) for row in rows if row.skipped < len(row.names)]
            given |= {name: torch.cat([one[name] for one in shown]) for name in _PICTURES}
            given["mm_token_type_ids"] = packed("mm_token_type_ids")
        places = torch.cat([row.positions[:, row.span] for row in rows], dim=1)[:, None]
        sizes = [row.span.stop - row.span.start for row in rows]
        marks = [max(0, min(row.branch - row.tokens, size)) % size for row, size in zip(rows, sizes, strict=True)]
        cache = PrefillRows([row.known for row in rows], sizes, marks, places.device)
        with rows_attention_of(self._model):
            # the base model, since the logits of a prompt's inner tokens are not needed
            self._model.base_model(
                **given, position_ids=places if len(places) > 1 else places[0], cache=cache, rows=cache, use_cache=True
            )
        for row, kept in zip(rows, cache.filled, strict=True):
            row.known = kept
            self._kept.keep(row.prompt, kept)


def _is_known(model: Any) -> bool:
    """Checks whether the cache holds keys and values of every token, or a gated DeltaNet's state."""
    config = model.generation_config
    if getattr(model.config, "is_encoder_decoder", False) or not model._supports_default_dynamic_cache():
        return False
    if config.use_cache is False or config.cache_implementation not in (None, "dynamic"):
        return False
    text = model.config.get_text_config(decoder=True)
    kinds = {DynamicLayer, LinearAttentionLayer} if text.model_type in DELTANETS else {DynamicLayer}
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    packs = hasattr(model.base_model, "language_model") and hasattr(model.base_model, "get_rope_index")
    return takes_positions and packs and {type(layer) for layer in DynamicCache(config=text).layers} <= kinds


def _prompt(tokens: Sequence[int], types: Sequence[int], names: Sequence[int]) -> Prompt:
    """Returns the tokens, with a picture's name in place of each of its tokens."""
    made, left = list[int](), iter(names)
    for kind, run in groupby(zip(types, tokens, strict=True), key=itemgetter(0)):
        ids = [token for _, token in run]
        made += [next(left)] * len(ids) if kind else ids
    return tuple(made)


def _screens(inputs: Mapping[str, Tensor], first: int) -> dict[str, Tensor]:
    """Selects patches and grids of a prompt's pictures from one on, (patches, width)."""
    grids = inputs["image_grid_thw"]
    start = int(grids[:first].prod(-1).sum())
    return {"pixel_values": inputs["pixel_values"][start:], "image_grid_thw": grids[first:]}
