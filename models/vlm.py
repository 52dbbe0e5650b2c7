"""The vision-language policy: any Hugging Face image-text-to-text directory.

The small one runs by its fast path, any other by `transformers`, or a server is asked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import torch

from models.families.dialects import parse_reply
from models.families.prompt import Message, messages_of
from models.policy import Context, Policy, Reply
from models.tiny.layout import is_tiny, read_config
from models.tiny.speaker import Spoken, TinySpeaker
from schemas.config.sections import PolicyConfig


class Speaker(Protocol):
    """A model that goes on with chats."""

    def speak(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, limit: int
    ) -> list[Spoken]:
        """One answer of at most `limit` tokens per chat; temperature 0 is greedy."""
        ...


class VlmPolicy(Policy):
    """A checkpoint that plays.

    Args:
        directory: what `transformers` calls a pretrained model; `AutoProcessor` must load it too.
        config: dialect, screens shown, tokens per answer.
        version: the name it is recorded under.
        stock: run it by `transformers`' own generate even where there is a fast path.

    Raises:
        CheckpointError: the directory is missing, broken, or of an architecture that cannot be run.
    """

    def __init__(self, directory: Path, config: PolicyConfig, version: str = "", stock: bool = False) -> None:
        self.version = version or directory.name
        self.dialect = config.dialect
        self.config = config
        self.speaker: Speaker
        architecture = read_config(directory)
        if config.server.url:
            from models.serving.server import ServerSpeaker

            self.speaker = ServerSpeaker(config.server, directory, self.version)
            self.side_by_side = config.server.concurrency
        elif is_tiny(architecture) and not stock:
            self.speaker = _tiny_speaker(directory, config.precision)
        else:
            from models.serving.stock import StockSpeaker

            self.speaker = StockSpeaker(directory, config.precision, config.device)
        self.absolute = architecture.get("model_type") == "qwen2_5_vl"

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Reply]:
        """One reply per context, each drawn by its context's own seed."""
        if not contexts:
            return []
        chats = [messages_of(context, self.config.history_images, self.dialect) for context in contexts]
        seeds = [context.seed for context in contexts]
        spoken = self.speaker.speak(chats, seeds, temperature, self.config.max_new_tokens)
        return [self._reply(context, answer) for context, answer in zip(contexts, spoken, strict=True)]

    def _reply(self, context: Context, answer: Spoken) -> Reply:
        screen = (context.observation.width, context.observation.height)
        parsed = parse_reply(answer.text, screen if self.absolute else None)
        return Reply(
            answer.text,
            parsed.thought,
            parsed.action_text,
            parsed.action,
            parsed.error,
            answer.token_ids or None,
            answer.logprobs or None,
            answer.failure,
        )


def _tiny_speaker(directory: Path, precision: str) -> TinySpeaker:
    if precision == "full":
        return TinySpeaker(directory, torch.bfloat16)
    from models.tiny.int8 import Int8Net

    return TinySpeaker(directory, net=Int8Net.load(directory, torch.float32))
