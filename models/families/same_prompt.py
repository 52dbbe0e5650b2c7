"""That a server reads a chat as the trainer does: the tokens that it says it read, beside those of the checkpoint's own
processor. A changed chat template, other limits of pictures, a default system turn: each would train a policy on
another prompt than it acts on, and show in nothing else."""

from collections.abc import Sequence
from pathlib import Path

from models.families.outside import sent, tokens_of
from models.families.processor import read_processor
from models.families.prompt import Message
from models.families.screen import picture
from schemas.failure import FlywheelError

AROUND = 8
"""Tokens that are shown before and after the first that differs."""


def prompt_tokens(directory: Path, chat: Sequence[Message]) -> list[int]:
    """The tokens of a chat as a server is sent it, pictures included, by the directory's own processor.

    Raises:
        CheckpointError: it has none for images and text.
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
    """Compares.

    Args:
        directory: the checkpoint that acts and is trained.
        chat: what was sent.
        read: the tokens that the server says it read (`prompt_token_ids`).

    Raises:
        FlywheelError: they are others; names the first that differs, and what stands there.
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
    """A turn with its screens as pictures, in the size that the family shows them in."""
    parts = [
        {"type": "image", "image": picture(part["observation"].png, part.get("limits"))}
        if part["type"] == "image"
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}
