"""Runs any image-text-to-text model with `transformers`: processor, chat template, generate.

Prompts are prefilled (`models.serving.prefill`) and continued together (`models.serving.batching`). Models of other
kinds are run by `generate` of the library, in rows padded on the left.
"""

import copy
import hashlib
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common import log
from models.attention import find_kernel
from models.completion import Completion
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from models.fused import find_compiler, fuse
from models.language_model import LanguageModel
from models.padding import hold_padded, replace_weights
from models.precision import compute_dtype
from models.safe import read_whole
from models.sampling import choose
from models.serving.batching import ContinuousBatch, ReplyRequest
from models.serving.prefill import Prefill
from models.serving.rows import Reply
from models.serving.seen import SeenScreens
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, SandboxFailure, UsageError

AHEAD = 2
"""Requests per slot that are taken at once, so that the next prompts are ready when replies end."""


class TransformersModel(LanguageModel):
    """A model directory behind `AutoProcessor` and `AutoModelForImageTextToText`.

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
        self._config = config = config or PolicyConfig()
        self._directory, self._version = directory, version
        device = device_of(config)
        self.processor: Any = read_processor(directory)
        self.model: Any = _read(directory).eval()
        self._about = _about(directory, self.model)
        if config.precision == "int8":
            from models.tiny.generator import quantized

            self.model = quantized(self.model)
        self.model.to(device)
        if device == "cuda":
            hold_padded(self.model)
            fuse(self.model)
            for line in filter(None, (find_kernel(self.model.device), find_compiler(self.model.device))):
                log.write("warning", line)
        if device == "cpu" and self.model.dtype == torch.bfloat16:
            self.model.to(compute_dtype())
        ends = _decided_here(self.model)
        self.prefill = Prefill(
            self.model, SeenScreens(self.model, config.seen_screens_mb * 1_000_000), config.prefix_mb * 1_000_000
        )
        ends = ends if isinstance(ends, list) else [ends]
        self.batch = ContinuousBatch(self.model, self.prefill, self._alone, config.batch, ends, version)
        """Shared with the models that take over from this one."""
        if self.prefill.on:
            self.max_concurrency = AHEAD * config.batch

    def renewed(self, directory: Path, config: PolicyConfig, version: str) -> LanguageModel:
        """Returns a model of other weights, which replace these ones in place at its `begin`.

        Memory, captured graphs and running requests stay. Rounded weights (int8) cannot be replaced in place.
        """
        if config != self._config or config.precision == "int8":
            return type(self)(directory, config, version)
        made = copy.copy(self)
        made._directory, made._version = directory, version
        return made

    def begin(self) -> None:
        """Loads these weights in place of those of the model that this one takes over from.

        Raises:
            CheckpointError: they are broken, or of a model with another config or processor. The other weights then go
                on.
        """
        with self.batch.changing:
            if self._version == self.batch.version:
                return
            read = _read(self._directory)  # while the model answers
            if other := differing(self._about, _about(self._directory, read)):
                problem = f"{self._directory}: its {other} is not that of the model that runs."
                raise CheckpointError(problem, "Start a policy of its own for that checkpoint.")
            with self.batch.paused():
                self.batch.broken = CheckpointError(
                    f"{self._directory}: its weights were loaded only in part.", "Load the policy again."
                )
                replace_weights(self.model, read.state_dict())
                self.prefill.forget()
                self.batch.version, self.batch.broken = self._version, None

    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat; temperature 0 is greedy."""
        if not self.prefill.on:
            return self._in_turn(chats, seeds, temperature, max_tokens)
        prompts = [partial(self._inputs, [chat]) for chat in chats]
        if len(prompts) == 1:  # its pictures are resized while the model answers others
            inputs = prompts[0]()
            prompts = [lambda: inputs]
        asked = [
            ReplyRequest(prompt, _names(chat), seed, temperature, max_tokens)
            for prompt, chat, seed in zip(prompts, chats, seeds, strict=True)
        ]
        self.batch.answer(asked)
        return [self._read(one.reply, max_tokens, one.version) for one in asked if one.reply]

    @torch.inference_mode()
    def _in_turn(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Generates with the library, one batch after the other."""
        made, size = list[Completion](), self._config.batch
        for start in range(0, len(chats), size):
            sampler = _Sampler(seeds[start : start + size], temperature)
            replies = self._generate(self._inputs(chats[start : start + size]), sampler, max_tokens)
            made += [self._read(reply, max_tokens) for reply in replies]
        return made

    def _alone(self, request: ReplyRequest, inputs: Mapping[str, Tensor]) -> Reply:
        """Generates with the library a reply to a prompt of a form that cannot be prefilled."""
        return self._generate(inputs, _Sampler([request.seed], request.temperature), request.most)[0]

    def _generate(self, inputs: Mapping[str, Any], sampler: "_Sampler", max_tokens: int) -> list[Reply]:
        out = self.model.generate(**inputs, do_sample=False, max_new_tokens=max_tokens, logits_processor=[sampler])
        replies = out[:, inputs["input_ids"].shape[1] :].tolist()
        return [Reply(ids, logprobs) for ids, logprobs in zip(replies, sampler.by_row(), strict=True)]

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

    def _read(self, reply: Reply, max_tokens: int, version: str = "") -> Completion:
        """Reads a reply up to its end token; the rest is padding."""
        ids = reply.ids
        end = next((at for at, token in enumerate(ids) if token in self.batch.ends), None)
        ids = ids if end is None else ids[: end + 1]
        text = self.processor.decode(ids, skip_special_tokens=True)
        cut = end is None and len(ids) == max_tokens
        return Completion(text, tuple(ids), tuple(reply.logprobs[: len(ids)]), cut=cut, version=version)


ABOUT = (
    "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json",
    "preprocessor_config.json", "processor_config.json",
)  # fmt: skip
"""Files of a model directory that shape prompts and the ends of replies."""
UNNAMED = ("_name_or_path", "dtype", "torch_dtype", "transformers_version")
"""Keys of a config that do not change what a model of given weights computes."""


def _about(directory: Path, model: Any) -> dict[str, Any]:
    """Returns what two models must have in common if one continues with the weights of the other, by its name."""
    texts = {name: (directory / name).read_bytes() for name in ABOUT if (directory / name).is_file()}
    digests = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    return {"config.json": _without(model.config.to_dict(), UNNAMED), **digests}


def _without(config: Any, names: Sequence[str]) -> Any:
    if not isinstance(config, dict):
        return config
    return {name: _without(value, names) for name, value in config.items() if name not in names}


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Names the first entry that two mappings do not have in common; empty if there is none."""
    return next((name for name in sorted({*one, *other}) if one.get(name) != other.get(name)), "")


def _read(directory: Path) -> Any:
    from transformers import AutoModelForImageTextToText

    return read_whole(AutoModelForImageTextToText, directory)


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
