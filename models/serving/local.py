"""Runs any image-text-to-text model with `transformers`: processor, chat template, generate.

Prompts are prefilled up to their last token, and decoded in slots (`models.serving.rows`). What was computed of recent
prompts is kept, and a new prompt continues its longest common beginning with one of them.

A token's keys and values depend only on the tokens and pictures up to it. So two steps' caches are equal for the shared
prefix, except for rounding. Models of other kinds are prefilled and decoded by `generate`, in rows padded on the left.
"""

import hashlib
import inspect
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, LinearAttentionLayer

from models.completion import Completion
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from models.language_model import LanguageModel
from models.padding import hold_padded
from models.precision import compute_dtype
from models.safe import read_whole
from models.sampling import choose
from models.serving.prompt_cache import Prefixes, Prompt, PromptCache, common
from models.serving.rows import (
    DELTANETS,
    ROOM,
    PrefilledRow,
    PrefillRows,
    Slots,
    rows_attention_of,
    separate_rows,
    use_one_call_for_screens,
)
from models.serving.seen import SeenScreens
from schemas.config.policy import PolicyConfig
from schemas.failure import SandboxFailure, UsageError

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
        """Columns that are not known."""
        return slice(self.first + self.tokens, self.first + len(self.prompt))

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
        self._on = most_bytes > 0 and _is_known(model)
        if self._on:
            use_one_call_for_screens(model)
            separate_rows(model)

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
        return [PrefilledRow(row.known, last[row.number], ends[:, row.number]) for row in rows]

    def _fill(self, rows: Sequence[_PrefillRow], inputs: dict[str, Tensor], positions: Tensor) -> list[_PrefillRow]:
        """Computes keys and values of rows in one forward pass; returns rows that wait for the tokens of others.

        Args:
            rows: the rows to fill.
            inputs: inputs of the batch.
            positions: positions of shape (axes, rows, columns).
        """
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
                room = max(row.cache.tokens if row.cache else 0 for row in rows) + max_tokens
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
