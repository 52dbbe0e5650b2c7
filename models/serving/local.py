"""Any image-text-to-text model, run as `transformers` runs it: processor, chat template, generate."""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from models.completion import Completion
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from models.language_model import LanguageModel
from models.precision import compute_dtype
from models.safe import read_whole
from models.sampling import choose
from models.serving.prefill import Prefill
from models.serving.seen import SeenScreens
from schemas.config.policy import PolicyConfig
from schemas.failure import SandboxFailure, UsageError


class TransformersModel(LanguageModel):
    """A model directory behind `AutoProcessor` and `AutoModelForImageTextToText`, in batches, padded on the left.

    A row's random numbers are its seed's own, so its samples depend on the other rows of its batch, and on earlier
    prompts whose beginning is reused, only as far as rounding does.

    Args:
        directory: the model.
        config: precision, device and batch.
        version: the policy's name; nothing depends on it.

    Raises:
        CheckpointError: they cannot load it.
        UsageError: a GPU is asked for where there is none, or int8 on one.
    """

    def __init__(self, directory: Path, config: PolicyConfig | None = None, version: str = "") -> None:
        from transformers import AutoModelForImageTextToText

        config = config or PolicyConfig()
        device = device_of(config)
        self._batch = config.batch
        self.processor: Any = read_processor(directory)
        self.model: Any = read_whole(AutoModelForImageTextToText, directory).eval()
        if config.precision == "int8":
            from models.tiny.int8 import quantized

            self.model = quantized(self.model)
        self.model.to(device)
        if device == "cpu" and self.model.dtype == torch.bfloat16:
            self.model.to(compute_dtype())
        self._seen = SeenScreens(self.model, config.seen_screens_mb * 1_000_000)
        self._prefill = Prefill(self.model, self._seen, config.prefix_mb * 1_000_000)
        ends = _decided_here(self.model)
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])

    @torch.inference_mode()
    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat; temperature 0 is greedy."""
        made = []
        for at in range(0, len(chats), self._batch):
            some = slice(at, at + self._batch)
            made += self._generate(chats[some], _Sampler(seeds[some], temperature), max_tokens)
        return made

    def _generate(self, chats: Sequence[Sequence[Message]], sampler: "_Sampler", max_tokens: int) -> list[Completion]:
        inputs = self._inputs(chats)
        given = self._prefill(inputs, [_names(chat) for chat in chats])
        out = self.model.generate(**given, do_sample=False, max_new_tokens=max_tokens, logits_processor=[sampler])
        replies = out[:, inputs["input_ids"].shape[1] :].tolist()
        return [self._read(ids, logprobs, max_tokens) for ids, logprobs in zip(replies, sampler.by_row(), strict=True)]

    def _inputs(self, chats: Sequence[Sequence[Message]]) -> Any:
        """Makes the processor's tensors; raises SandboxFailure for a chat that the processor refuses."""
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

    Whatever the directory or the library would cut away stays: training data must be sampled with the log probabilities
    that are recorded.
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
    """Returns the device of a policy; raises UsageError for a GPU where there is none, or int8 on one."""
    precision, device = config.precision, config.device
    if device == "cuda" and precision == "int8":
        raise UsageError("`policy.precision` is int8 and `policy.device` cuda.", "int8 is for the CPU: change one.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("`policy.device` is cuda and there is no GPU here.", "Set policy.device to auto or cpu.")
    return "cpu" if device == "cpu" or precision == "int8" or not torch.cuda.is_available() else "cuda"


def _names(chat: Sequence[Message]) -> list[int]:
    """Names the pictures of a chat: two have one name where PNG and shown size are the same.

    Names are below 0, so that none is a token's.
    """
    shown = [part for message in chat for part in message["content"] if part["type"] == "image"]
    seen = [repr(part.get("limits")).encode() + part["observation"].png for part in shown]
    return [-1 - int.from_bytes(hashlib.blake2b(one, digest_size=16).digest()) for one in seen]


def _with_images(message: Message) -> Message:
    """Decodes the screens of a turn, in the size that the family shows them in."""
    parts = []
    for part in message["content"]:
        if part["type"] == "image":
            parts.append({"type": "image", "image": picture(part["observation"].png, part.get("limits"))})
        else:
            parts.append(part)
    return {**message, "content": parts}
