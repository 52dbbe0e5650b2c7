"""Any image-text-to-text model, run as `transformers` runs it: processor, chat template, generate."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from models.completion import Completion
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from models.language_model import LanguageModel
from models.safe import SAFE_WEIGHTS
from schemas.config.sections import PolicyConfig
from schemas.failure import CheckpointError, UsageError


class TransformersModel(LanguageModel):
    """A model directory behind `AutoProcessor` and `AutoModelForImageTextToText`; one chat at a time, so a
    sample depends on its own seed only.

    Args:
        directory: the model.
        config: precision and device.
        version: the policy's name; nothing depends on it.

    Raises:
        CheckpointError: they cannot load it.
        UsageError: a GPU is asked for where there is none, or int8 on one.
    """

    def __init__(self, directory: Path, config: PolicyConfig | None = None, version: str = "") -> None:
        from transformers import AutoModelForImageTextToText

        config = config or PolicyConfig()
        device = _device(config.precision, config.device)
        self.processor: Any = read_processor(directory)
        try:
            self.model: Any = AutoModelForImageTextToText.from_pretrained(directory, **SAFE_WEIGHTS).eval()
        except Exception as error:  # whatever the libraries raise, the directory is what is wrong
            raise CheckpointError(f"{directory}: {error}.", "Name an image-text-to-text model directory.") from error
        if config.precision == "int8":
            from models.tiny.int8 import quantized

            self.model = quantized(self.model)
        self.model.to(device)
        ends = self.model.generation_config.eos_token_id
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])

    @torch.inference_mode()
    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """One completion of at most `max_tokens` tokens per chat; temperature 0 is greedy."""
        return [self._generate(chat, seed, temperature, max_tokens) for chat, seed in zip(chats, seeds, strict=True)]

    def _generate(self, chat: Sequence[Message], seed: int, temperature: float, max_tokens: int) -> Completion:
        inputs = self.processor.apply_chat_template(
            [_with_images(message) for message in chat],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(self.model.device)
        sampling = (
            {"do_sample": True, "temperature": temperature, **_WHOLE} if temperature > 0 else {"do_sample": False}
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            out = self.model.generate(
                **inputs,
                **sampling,
                repetition_penalty=1.0,
                max_new_tokens=max_tokens,
                output_logits=True,
                return_dict_in_generate=True,
            )
        ids = out.sequences[0, inputs["input_ids"].shape[1] :]
        log_shares = (torch.stack(out.logits)[:, 0].double() / (temperature or 1.0)).log_softmax(-1)
        logprobs = log_shares.gather(1, ids[:, None])[:, 0].tolist()
        text = self.processor.decode(ids, skip_special_tokens=True)
        cut = len(ids) == max_tokens and int(ids[-1]) not in self._ends
        return Completion(text, tuple(ids.tolist()), tuple(logprobs), cut=cut)


_WHOLE = {"top_k": 0, "top_p": 1.0}
"""Samples from the model's whole distribution, whatever the directory or the library would cut away: what is trained on
must be sampled with the log probabilities that are recorded."""


def _device(precision: str, device: str) -> str:
    if device == "cuda" and precision == "int8":
        raise UsageError("`policy.precision` is int8 and `policy.device` cuda.", "int8 is for the CPU: change one.")
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError("`policy.device` is cuda and there is no GPU here.", "Set policy.device to auto or cpu.")
    return "cpu" if device == "cpu" or precision == "int8" or not torch.cuda.is_available() else "cuda"


def _with_images(message: Message) -> Message:
    """A turn with its screens decoded, in the size that the family shows them in."""
    parts = []
    for part in message["content"]:
        if part["type"] == "image":
            parts.append({"type": "image", "image": picture(part["observation"].png, part.get("limits"))})
        else:
            parts.append(part)
    return {**message, "content": parts}
