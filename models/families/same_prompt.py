"""Computes the tokens of prompts, and checks that a server reads a chat as the trainer does.

The server's reported tokens are compared with the tokens of the checkpoint's own processor. A changed chat template,
other limits of pictures, or a default system turn would make the prompts of acting and training differ. No other check
would notice this.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from PIL import Image

from models.families.outside import sent, tokens_of
from models.families.processor import read_processor
from models.families.prompt import Message, screens_of
from models.families.screen import ImageLimits, Size, picture
from schemas.failure import FlywheelError

AROUND = 8
"""Number of tokens that the message shows before and after the first difference."""


class PromptTokens:
    """Makes the tokens of chats from their texts and the sizes of their screens, without pixels.

    Each size of a screen is processed once.

    Args:
        processor: the checkpoint's processor.
        limits: the family's limits for screens.
    """

    def __init__(self, processor: Any, limits: ImageLimits | None) -> None:
        self._processor, self._tokenizer, self._limits = processor, processor.tokenizer, limits
        self.laid_out = lru_cache(maxsize=256)(self._laid_out)

    def __call__(self, chat: Sequence[Message]) -> list[int]:
        """Computes the tokens of the prompt, including the tokens of its screens."""
        text = self._processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        written = [self.laid_out((screen.width, screen.height))[1] for screen in screens_of(list(chat))]
        texts, _ = self._processor.get_text_with_replacements([text], written, [], [])
        bos = self._tokenizer.bos_token
        special = {"add_special_tokens": False} if bos is not None and text.startswith(bos) else {}
        return self._tokenizer(texts, **special)["input_ids"][0]

    def _laid_out(self, size: Size) -> tuple[Any, str]:
        """Computes a screen's grid of patches (None if the processor makes none) and its text in a chat."""
        blank = Image.new("RGB", self._limits.resized(size) if self._limits else size)
        made = self._processor.image_processor(images=[blank], return_tensors="pt")
        grid = made["image_grid_thw"][0] if "image_grid_thw" in made else None
        return grid, self._processor.replace_image_token(made, 0)


def prompt_tokens(directory: Path, chat: Sequence[Message]) -> list[int]:
    """Computes the tokens of a chat as a server receives it, pictures included, by the directory's own processor.

    Raises:
        CheckpointError: the directory has no processor for images and text.
    """
    processor = read_processor(directory)
    made = processor.apply_chat_template(
        [_decoded(message) for message in sent(chat, tokens_of(directory))],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
    )
    return list(made["input_ids"][0])


def require_same_prompt(directory: Path, chat: Sequence[Message], read: Sequence[int]) -> None:
    """Compares the server's tokens with those of the checkpoint.

    Args:
        directory: the checkpoint that acts and is trained.
        chat: the chat that was sent.
        read: the tokens that the server reports (`prompt_token_ids`).

    Raises:
        FlywheelError: the tokens differ; the message shows the first difference and the tokens around it.
    """
    ours = prompt_tokens(directory, chat)
    if list(read) == ours:
        return
    shared = zip(ours, read, strict=False)
    at = next((place for place, (one, other) in enumerate(shared) if one != other), min(len(ours), len(read)))
    tokenizer = read_processor(directory).tokenizer
    here, there = (tokenizer.decode(list(ids[max(0, at - AROUND) : at + AROUND])) for ids in (ours, read))
    raise FlywheelError(
        f"`policy.server`: the server reads another prompt than the trainer, from token {at} on ({len(read)} tokens, "
        f"not {len(ours)}): {there!r}, not {here!r}.",
        f"Serve {directory} with its own chat template and image processor, without options that change them.",
    )


def _decoded(message: Message) -> Message:
    """Decodes the screens of a turn into pictures, in the family's size."""
    parts = [
        {"type": "image", "image": picture(part["observation"].png, part.get("limits"))}
        if part["type"] == "image"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
