"""Runs any image-text-to-text model with `transformers`: processor, chat template, generate.

Prompts are prefilled up to their last token before `generate` continues them. The cache keeps keys and values of the
last prompts, and a new prompt reuses those of its longest common prefix.

A token's keys and values depend only on the tokens and pictures up to it. So two steps' caches are equal for the shared
prefix, except for rounding. Rows of a batch share different prefixes with kept prompts. So each row is prefilled alone
and without padding; `generate` gets the rows together, padded on the left.
"""

import hashlib
import inspect
import random
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from models.completion import Completion
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from models.language_model import LanguageModel
from models.padding import hold_padded
from models.precision import compute_dtype
from models.safe import read_whole
from models.sampling import choose
from models.serving.rows import (
    ROOM,
    Layers,
    PrefilledRow,
    PrefillRows,
    Slots,
    rows_attention_of,
    use_one_call_for_screens,
)
from models.serving.seen import SeenScreens
from schemas.config.policy import PolicyConfig
from schemas.failure import SandboxFailure, UsageError

Prompt = tuple[int, ...]
"""Tokens of a prompt; each token of a picture is the picture's number, which is below 0."""


class Prefixes:
    """Cache of prompts' keys and values, up to a bound.

    Args:
        most_bytes: the bound that `trim` enforces; the least recently used prompts are dropped first.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most, self.held = most_bytes, 0
        self._kept: OrderedDict[Prompt, Layers] = OrderedDict()
        self._sorted: list[Prompt] = []

    def __len__(self) -> int:
        return len(self._kept)

    def longest(self, prompt: Prompt) -> Layers | None:
        """Finds the layers of the longest known prefix and marks it as used; None if no known prompt shares its first
        token."""
        # among sorted prompts, one of the two neighbours shares the longest prefix with this prompt
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
        """Drops the least recently used prompts until the bound holds."""
        while self.held > self._most:
            self._drop(next(iter(self._kept)))

    def _drop(self, prompt: Prompt) -> None:
        self.held -= _bytes(self._kept.pop(prompt))
        del self._sorted[bisect_left(self._sorted, prompt)]


def cut(layers: Layers, tokens: int) -> Layers:
    """Returns the keys and values of the first tokens."""
    return [(keys[:, :, :tokens], values[:, :, :tokens]) for keys, values in layers]


def length(layers: Layers | None) -> int:
    """Counts the tokens of layers."""
    return layers[0][0].shape[2] if layers else 0


def _begins(prompt: Prompt, beginning: Prompt) -> bool:
    return prompt[: len(beginning)] == beginning


def _common(one: Prompt, other: Prompt) -> int:
    """Counts the equal tokens at the beginnings of two prompts."""
    least = min(len(one), len(other))
    return next((at for at in range(least) if one[at] != other[at]), least)


def _bytes(layers: Layers) -> int:
    return sum(part.numel() * part.element_size() for layer in layers for part in layer)


_TEXT = frozenset({"input_ids", "attention_mask", "mm_token_type_ids"})
_PICTURES = frozenset({"pixel_values", "image_grid_thw"})
_PICTURE = 1
"""Value of pictures in `mm_token_type_ids`, where text is 0."""
WAITS = 0.5
"""Share of a prompt's tokens from which it waits for another prompt of the batch that has them, too."""


@dataclass(slots=True)
class _PrefillRow:
    """One prompt of a batch without its last token; the last token is computed with the reply's tokens."""

    number: int
    """Index of the row in the batch."""
    prompt: Prompt
    first: int
    """Column of its first token, after the padding."""
    names: Sequence[int]
    """Names of its pictures."""
    screen: int
    """Index of its first picture among those of the batch."""
    known: Layers | None = None
    """Keys and values of its longest kept beginning, and later of the whole prompt."""

    @property
    def span(self) -> slice:
        """Columns whose keys and values are not known."""
        return slice(self.first + length(self.known), self.first + len(self.prompt))

    @property
    def skipped(self) -> int:
        """Counts its pictures in the kept beginning.

        Equal pictures have equal tokens, and no prompt ends with a picture, so no picture is shared in part.
        """
        return sum(token < 0 for token, _ in groupby(self.prompt[: length(self.known)]))


class Prefill:
    """Prefills prompts, for a model with a plain cache and screens as grids of patches.

    Such models are Qwen2.5-VL and Qwen3-VL; other models are not prefilled.

    Args:
        model: a model of `transformers`.
        seen: cache that gets the names of the screens that are encoded next.
        most_bytes: size of the cache of keys and values, on the model's device; 0 disables prefilling.
    """

    def __init__(self, model: Any, seen: SeenScreens, most_bytes: int) -> None:
        self._model, self._seen = model, seen
        self._kept = Prefixes(most_bytes)
        self._on = most_bytes > 0 and _is_plain(model)
        if self._on:
            use_one_call_for_screens(model)

    def __call__(self, inputs: dict[str, Tensor], pictures: Sequence[Sequence[int]]) -> list[PrefilledRow] | None:
        """Prefills a batch; None if `generate` must compute its prompts.

        Args:
            inputs: inputs of a batch, padded on the left; `input_ids` of shape (rows, columns).
            pictures: numbers below 0 that name each row's pictures.
        """
        rows = _rows(inputs, pictures) if self._on else None
        if rows is None:
            self._seen.next = [name for names in pictures for name in names]
            return None
        given = {name: tensor for name, tensor in inputs.items() if name not in ("input_ids", "pixel_values")}
        # computed on whole prompts: positions of a picture's tokens follow from its grid, and the rest of a prompt may
        # lack it
        positions = self._model._prepare_position_ids_for_generation(inputs["input_ids"], given)
        if positions.ndim == 2:
            positions = positions[None]
        left = list(rows)
        while left:
            left = self._fill(left, inputs, positions)
        self._kept.trim()
        last, ends = inputs["input_ids"][:, -1].tolist(), positions[..., -1]
        return [PrefilledRow(row.known or [], last[row.number], ends[:, row.number]) for row in rows]

    def _fill(self, rows: Sequence[_PrefillRow], inputs: dict[str, Tensor], positions: Tensor) -> list[_PrefillRow]:
        """Computes keys and values of rows in one forward pass; returns rows that wait for the tokens of others.

        Args:
            rows: the rows to fill.
            inputs: inputs of the batch.
            positions: positions of shape (axes, rows, columns).
        """
        now, later = list[_PrefillRow](), list[_PrefillRow]()
        for row in rows:
            row.known = self._kept.longest(row.prompt)
            known = length(row.known)
            if known == len(row.prompt):
                continue
            least = known + WAITS * (len(row.prompt) - known)
            waits = any(_common(row.prompt, other.prompt) > least for other in now)
            (later if waits else now).append(row)
        if now:
            self._pass(now, inputs, positions)
        return later

    def _pass(self, rows: Sequence[_PrefillRow], inputs: dict[str, Tensor], positions: Tensor) -> None:
        """Computes keys and values of packed rows."""

        def packed(name: str) -> Tensor:
            return torch.cat([inputs[name][row.number, row.span] for row in rows])[None]

        given = {"input_ids": packed("input_ids")}
        parts = [(row.screen + row.skipped, row.screen + len(row.names)) for row in rows]
        self._seen.next = [name for row in rows for name in row.names[row.skipped :]]
        if self._seen.next:
            shown = [_screens(inputs, first, last) for first, last in parts if first < last]
            given |= {name: torch.cat([one[name] for one in shown]) for name in _PICTURES}
            given["mm_token_type_ids"] = packed("mm_token_type_ids")
        places = torch.cat([positions[:, row.number, row.span] for row in rows], dim=1)[:, None]
        cache = PrefillRows(
            [row.known for row in rows], [row.span.stop - row.span.start for row in rows], places.device
        )
        with rows_attention_of(self._model):
            # the base model, since the logits of a prompt's inner tokens are not needed
            self._model.base_model(
                **given, position_ids=places if len(places) > 1 else places[0], cache=cache, rows=cache, use_cache=True
            )
        for row, layers in zip(rows, cache.filled, strict=True):
            row.known = layers
            self._kept.keep(row.prompt, layers)


def _is_plain(model: Any) -> bool:
    """Checks whether the cache holds keys and values of every token, so that it can be cut anywhere."""
    config = model.generation_config
    if getattr(model.config, "is_encoder_decoder", False) or not model._supports_default_dynamic_cache():
        return False
    if config.use_cache is False or config.cache_implementation not in (None, "dynamic"):
        return False
    layers = DynamicCache(config=model.config.get_text_config(decoder=True)).layers
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    packs = hasattr(model.base_model, "language_model") and hasattr(model.base_model, "get_rope_index")
    return takes_positions and packs and all(type(layer) is DynamicLayer for layer in layers)


def _rows(inputs: dict[str, Tensor], pictures: Sequence[Sequence[int]]) -> list[_PrefillRow] | None:
    """Lists a batch's prompts; None if the processor's output has an unknown form."""
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
        made.append(_PrefillRow(at, _prompt(tokens, types, names)[:-1], first, names, screen))
        screen += len(names)
    return made


def _prompt(tokens: Sequence[int], types: Sequence[int], names: Sequence[int]) -> Prompt:
    """Returns the tokens, with a picture's name in place of each of its tokens."""
    made, left = list[int](), iter(names)
    for kind, run in groupby(zip(types, tokens, strict=True), key=itemgetter(0)):
        ids = [token for _, token in run]
        made += [next(left)] * len(ids) if kind else ids
    return tuple(made)


def _screens(inputs: dict[str, Tensor], first: int, last: int) -> dict[str, Tensor]:
    """Selects patches and grids of consecutive pictures of a batch, (patches, width)."""
    grids = inputs["image_grid_thw"]
    ends = torch.cat([grids.new_zeros(1), grids.prod(-1).cumsum(0)]).tolist()
    return {"pixel_values": inputs["pixel_values"][ends[first] : ends[last]], "image_grid_thw": grids[first:last]}


class TransformersModel(LanguageModel):
    """A model directory behind `AutoProcessor` and `AutoModelForImageTextToText`, in batches, padded on the left.

    A row's random numbers depend only on its seed. So other rows of its batch and reused prompts change a row's samples
    only by rounding.

    Args:
        directory: the model.
        config: precision, device and batch.
        version: the policy's name, which no result depends on.

    Raises:
        CheckpointError: `transformers` cannot load the model.
        UsageError: the config asks for a GPU that is missing, or for int8 on a GPU.
    """

    def __init__(self, directory: Path, config: PolicyConfig | None = None, version: str = "") -> None:
        from transformers import AutoModelForImageTextToText

        config = config or PolicyConfig()
        device = device_of(config)
        self._batch = config.batch
        self.processor: Any = read_processor(directory)
        self.model: Any = read_whole(AutoModelForImageTextToText, directory).eval()
        if config.precision == "int8":
            from models.tiny.generator import quantized

            self.model = quantized(self.model)
        self.model.to(device)
        if device == "cuda":
            hold_padded(self.model)
        if device == "cpu" and self.model.dtype == torch.bfloat16:
            self.model.to(compute_dtype())
        self._seen = SeenScreens(self.model, config.seen_screens_mb * 1_000_000)
        self._prefill = Prefill(self.model, self._seen, config.prefix_mb * 1_000_000)
        self._slots: Slots | None = None
        ends = _decided_here(self.model)
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])

    @torch.inference_mode()
    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat; temperature 0 is greedy."""
        waiting = iter(zip(chats, seeds, range(len(chats)), strict=True))
        made: dict[int, Completion] = {}
        slots, held = None, dict[int, int]()
        while len(made) < len(chats):
            free = [slot for slot in range(min(self._batch, len(chats))) if slot not in held]
            coming = list(islice(waiting, len(free)))
            if coming:
                inputs = self._inputs([chat for chat, _, _ in coming])
                rows = self._prefill(inputs, [_names(chat) for chat, _, _ in coming])
                if rows is None:  # other rows of this kind of model would not be prefilled either
                    sampler = _Sampler([seed for _, seed, _ in coming], temperature)
                    replies = self._generate(inputs, sampler, max_tokens)
                    made |= {number: reply for (_, _, number), reply in zip(coming, replies, strict=True)}
                    continue
                room = max(row.layers[0][0].shape[2] if row.layers else 0 for row in rows) + max_tokens
                slots = self._roomy(slots, min(self._batch, len(chats)), room, rows[0], temperature, max_tokens)
                for slot, row, (_, seed, number) in zip(free, rows, coming, strict=False):
                    slots.put(slot, row, random.Random(seed))
                    held[slot] = number
            assert slots is not None
            with rows_attention_of(self.model):
                ended = slots.run(sorted(held))
            for slot in ended:
                reply = slots.read(slot)
                made[held.pop(slot)] = self._read(reply.ids, reply.logprobs, max_tokens)
        return [made[number] for number in range(len(chats))]

    def _roomy(
        self, slots: Slots | None, count: int, room: int, row: PrefilledRow, temperature: float, max_tokens: int
    ) -> Slots:
        """Returns slots with room for prompts and replies: these, those of the last batch, or new ones."""
        room = -(-room // ROOM[self.model.device.type]) * ROOM[self.model.device.type]
        if slots is not None and slots.room >= room:
            return slots
        if slots is not None:
            return slots.grown(room)
        key = (count, len(row.positions), temperature, max_tokens)
        if self._slots is None or self._slots.key != key or self._slots.room < room:
            self._slots = Slots(self.model, *key, room, sorted(self._ends))
        return self._slots

    def _generate(self, inputs: Any, sampler: "_Sampler", max_tokens: int) -> list[Completion]:
        out = self.model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens, logits_processor=[sampler])
        replies = out[:, inputs["input_ids"].shape[1] :].tolist()
        return [self._read(ids, logprobs, max_tokens) for ids, logprobs in zip(replies, sampler.by_row(), strict=True)]

    def _inputs(self, chats: Sequence[Sequence[Message]]) -> Any:
        """Makes the processor's tensors; raises SandboxFailure if the processor refuses a chat."""
        try:
            return self.processor.apply_chat_template(
                [[_with_images(message) for message in chat] for chat in chats],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
                processor_kwargs={"padding": True, "padding_side": "left"},
            ).to(self.model.device)
        except (ValueError, TypeError, StopIteration, IndexError, KeyError) as error:
            raise SandboxFailure(f"the checkpoint's processor refuses the chat: {error!r}"[:300]) from error

    def _read(self, ids: list[int], logprobs: list[float], max_tokens: int) -> Completion:
        """Reads a row up to its end token; the rest is padding."""
        end = next((at for at, token in enumerate(ids) if token in self._ends), None)
        ids = ids if end is None else ids[: end + 1]
        text = self.processor.decode(ids, skip_special_tokens=True)
        cut = end is None and len(ids) == max_tokens
        return Completion(text, tuple(ids), tuple(logprobs[: len(ids)]), cut=cut)


def _decided_here(model: Any) -> Any:
    """Clears all sampling settings of the checkpoint's `generation_config.json`; returns its end tokens."""
    ours = type(model.generation_config)()
    for name in ("eos_token_id", "pad_token_id", "bos_token_id"):
        setattr(ours, name, getattr(model.generation_config, name))
    model.generation_config = ours
    return ours.eos_token_id


class _Sampler:
    """Chooses the one token per row that `generate` then takes, from the model's whole distribution.

    No filter of the directory or the library removes a token, since the recorded log probabilities must be those of the
    sampling distribution.
    """

    def __init__(self, seeds: Sequence[int], temperature: float) -> None:
        self._draws, self._temperature = [random.Random(seed) for seed in seeds], temperature
        self._logprobs: list[Tensor] = []

    def __call__(self, _: Tensor, scores: Tensor) -> Tensor:
        chosen, shares = choose(scores, self._draws, self._temperature)
        self._logprobs.append(shares.gather(1, chosen[:, None])[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen[:, None], 0.0)

    def by_row(self) -> list[list[float]]:
        """Returns the log probabilities of the chosen tokens."""
        return torch.stack(self._logprobs, dim=1).clamp(max=0.0).tolist()


def device_of(config: PolicyConfig) -> str:
    """Returns the device of a policy; raises UsageError for a missing GPU, or for int8 on a GPU."""
    precision, device = config.precision, config.device
    if device == "cuda" and precision == "int8":
        raise UsageError("`policy.precision` is int8 and `policy.device` cuda.", "int8 is for the CPU: change one.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("`policy.device` is cuda and there is no GPU here.", "Set policy.device to auto or cpu.")
    return "cpu" if device == "cpu" or precision == "int8" or not torch.cuda.is_available() else "cuda"


def _names(chat: Sequence[Message]) -> list[int]:
    """Names the pictures of a chat: two pictures have the same name if their PNGs and sizes are equal.

    Names are below 0, so that no name equals a token.
    """
    shown = [part for message in chat for part in message["content"] if part["type"] == "image"]
    seen = [repr(part.get("limits")).encode() + part["observation"].png for part in shown]
    return [-1 - int.from_bytes(hashlib.blake2b(one, digest_size=16).digest()) for one in seen]


def _with_images(message: Message) -> Message:
    """Decodes the screens of a turn, in the family's size."""
    parts = []
    for part in message["content"]:
        if part["type"] == "image":
            parts.append({"type": "image", "image": picture(part["observation"].png, part.get("limits"))})
        else:
            parts.append(part)
    return {**message, "content": parts}
