"""From training samples to the tokens of any model directory: the text that is played, and its targets.

A sample (or a reply that was played, `learning.engines.fsdp.reply_chats`) becomes the chat that the policy would be
asked to go on with (`models.families.prompt`), written by the directory's own chat template and processor; the reply is
encoded apart and ends with the token that ends a turn. The loss covers the reply. How many tokens a sample has follows
from its text and the sizes of its screens, so a plan needs no pixels (`measure`); screens are decoded where they are
encoded (`pixels`).
"""

import io
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from PIL import Image
from torch import Tensor

from learning.data.sample import Screenshots
from learning.planning.step_plan import Item, Piece
from models.families.dialects import format_action, format_reply
from models.families.processor import read_processor
from models.families.prompt import WHAT_CHANGED, WHAT_WAS_DONE, Message, messages_of, question_of
from models.policy import Context
from models.tiny.layout import read_config
from schemas.action import Click, from_json
from schemas.config.sections import PolicyConfig
from schemas.failure import CheckpointError, FlywheelError
from schemas.observation import Observation, Turn
from schemas.sample import Question, TrainSample

ABSOLUTE = ("qwen2_5_vl",)
"""Architectures that write coordinates as pixels of the smart-resized screen."""


class Document(Protocol):
    """Whatever is encoded."""

    @property
    def task_id(self) -> str:
        """What it is named by."""
        ...


D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Measure:
    """What a plan must know of a sample."""

    item: Item
    """Its lengths; the last token of the reply is left out, as it is only a target."""
    targets: int
    """Tokens of the reply."""
    digests: tuple[str, ...]
    """Its screens."""


@dataclass(frozen=True, slots=True)
class Chat:
    """A sample as tokens."""

    ids: Tensor
    """(n,)."""
    targets: Tensor
    """(n,) the token to be said after each, or -1 where nothing is asked."""
    grids: Tensor
    """(screens, 3) patches of each screen in time, rows, columns."""
    kinds: Tensor
    """(n,) the processor's `mm_token_type_ids`: 0 text, 1 image."""
    temperature: float = 1.0
    """What logits are divided by."""


class Encoder(ABC, Generic[D]):
    """Encodes documents for the model of a directory.

    Raises:
        CheckpointError: the directory cannot be read, or its processor does not give screens as grids of patches.
    """

    def __init__(self, directory: Path, policy: PolicyConfig, screenshots: Screenshots, seed: int) -> None:
        self.processor = read_processor(directory)
        self._policy, self._screenshots, self._seed = policy, screenshots, seed
        self._config = read_config(directory)
        self._absolute = self._config.get("model_type") in ABSOLUTE
        self._tokenizer: Any = self.processor.tokenizer
        self._merge = int(getattr(self.processor.image_processor, "merge_size", 0))
        if not self._merge:
            raise CheckpointError(
                f"{directory}: its processor does not lay screens out as grids of patches.",
                "The trainer takes models of the Qwen-VL family and those with the same interface (image_grid_thw).",
            )
        self._shape = lru_cache(maxsize=256)(self._shape_of)
        self._end = self._end_token()

    def measure(self, sample: D) -> Measure:
        """Counts; no pixel is looked at.

        Raises:
            FlywheelError: there is nothing to learn from the sample, or a screenshot of it is missing.
        """
        chat = self.encode(sample)
        pieces, start = [], 0
        for kind, run in groupby(chat.kinds.tolist()):
            end = start + len(list(run))
            while kind and start < end:
                patches = int(chat.grids[len(pieces)].prod())
                pieces.append(Piece(start, patches // self._merge**2, patches))
                start += pieces[-1].tokens
            start = end
        return Measure(Item(len(chat.ids), tuple(pieces)), int((chat.targets >= 0).sum()), tuple(self._shown(sample)))

    @abstractmethod
    def encode(self, sample: D) -> Chat:
        """The chat and what is to be said in it."""

    @abstractmethod
    def _shown(self, sample: D) -> Sequence[str]:
        """Its screens."""

    def _chat(self, messages: list[Message], sizes: Sequence[tuple[int, int]], said: Sequence[int]) -> Chat:
        """The chat that ends with a reply of these tokens; `sizes` are those of its screens."""
        shapes = [self._shape(size) for size in sizes]
        prompt = self._ids(self._template(messages, prompt=True), [written for _, written in shapes])
        ids = [*prompt, *said[:-1]]
        targets = [-1] * (len(prompt) - 1) + list(said)
        kinds = [*self.processor.create_mm_token_type_ids([prompt])[0], *[0] * (len(said) - 1)]
        grids = torch.stack([grid for grid, _ in shapes])
        return Chat(torch.tensor(ids), torch.tensor(targets), grids, torch.tensor(kinds))

    def _sizes(self, sample: D) -> list[tuple[int, int]]:
        """Width and height of its screens."""
        try:
            return [self._screenshots.size(digest) for digest in self._shown(sample)]
        except KeyError as error:
            raise FlywheelError(
                f"sample of {sample.task_id}: no screenshot {error}.", "Write the sample's screenshots beside it."
            ) from error

    def _words(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    def pixels(self, digest: str) -> tuple[Tensor, Tensor]:
        """A screen as the vision tower takes it: patches (n, width of a patch) and its grid (3,)."""
        image = Image.open(io.BytesIO(self._screenshots.png(digest))).convert("RGB")
        made = self.processor.image_processor(images=[image], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0]

    def blank(self) -> tuple[Tensor, Tensor]:
        """The smallest screen, for a rank that has none and still takes part in the vision tower's collectives."""
        side = self._merge * int(self.processor.image_processor.patch_size)
        made = self.processor.image_processor(images=[Image.new("RGB", (side, side))], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0]

    def _template(self, messages: list[Message], prompt: bool) -> str:
        return self.processor.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=False)

    def _ids(self, text: str, written: list[str]) -> list[int]:
        """Token ids of a chat, as the processor makes them of text and screens."""
        texts, _ = self.processor.get_text_with_replacements([text], written, [], [])
        bos = self._tokenizer.bos_token
        special = {"add_special_tokens": False} if bos is not None and text.startswith(bos) else {}
        return self._tokenizer(texts, **special)["input_ids"][0]

    def _shape_of(self, size: tuple[int, int]) -> tuple[Tensor, str]:
        """The grid of a screen of this size, and the text that stands for it in a chat."""
        made = self.processor.image_processor(images=[Image.new("RGB", size)], return_tensors="pt")
        return made["image_grid_thw"][0], self.processor.replace_image_token(made, 0)

    def _end_token(self) -> int:
        """The token that ends a turn: what the template writes after a reply."""
        said: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]
        before = self._template(said, prompt=True) + "!"
        said.append({"role": "assistant", "content": [{"type": "text", "text": "!"}]})
        after = self._template(said, prompt=False)
        rest: Any = after[len(before) :] if after.startswith(before) else ""
        ids = self._tokenizer(rest, add_special_tokens=False)["input_ids"] if rest else []
        return ids[0] if ids else self._tokenizer.eos_token_id


class Chats(Encoder[TrainSample]):
    """Encodes what is imitated: a sample's thought and action, or where an element is."""

    def encode(self, sample: TrainSample) -> Chat:
        """The chat and what is to be said in it."""
        sizes = self._sizes(sample)
        messages, reply = self._messages(sample, sizes[-1])
        return self._chat(messages, sizes, [*self._words(reply), self._end])

    def _shown(self, sample: TrainSample) -> Sequence[str]:
        return sample.shown(self._policy.history_images)

    def _messages(self, sample: TrainSample, size: tuple[int, int]) -> tuple[list[Message], str]:
        """The chat that ends before the reply, and the reply. A screen without an action asks where one element is."""
        absolute = size if self._absolute else None
        if sample.kind != "step":
            return self._question(sample, size, absolute)
        instruction, thought, action = sample.instruction, sample.thought, sample.action
        if action is None:
            asked = self._drawn(sample)
            instruction, thought, target = f'Click on "{asked.name}".', "", Click(x=asked.x, y=asked.y)
        else:
            target = from_json(action)
        shown = [Observation(b"", *size, digest) for digest in self._shown(sample)]
        past = [shown[0]] * (len(sample.history) - len(shown) + 1) + shown[:-1]
        turns = tuple(
            Turn(step.thought, format_action(from_json(step.action), self._policy.dialect, absolute=absolute), screen)
            for step, screen in zip(sample.history, past[len(past) - len(sample.history) :], strict=True)
        )
        context = Context(instruction, turns if action is not None else (), shown[-1], 0)
        messages = messages_of(context, len(shown), self._policy.dialect)
        reply = format_reply(thought, format_action(target, self._policy.dialect, absolute=absolute))
        return messages, reply

    def _question(
        self, sample: TrainSample, size: tuple[int, int], absolute: tuple[int, int] | None
    ) -> tuple[list[Message], str]:
        """What continual training asks about screens, and the answer: no instruction, no history."""
        dialect = self._policy.dialect
        screens = [Observation(b"", *size, digest) for digest in self._shown(sample)]
        if sample.kind == "transition":
            return question_of(WHAT_CHANGED, screens), sample.thought
        if sample.kind == "naming":
            asked = self._drawn(sample)
            place = format_action(Click(x=asked.x, y=asked.y), dialect, absolute=absolute)
            return question_of(f"What is at the place of {place}?", screens), asked.name
        done = format_action(from_json(sample.action or ""), dialect, absolute=absolute)
        return question_of(WHAT_WAS_DONE, screens, dialect), format_reply("", done)

    def _drawn(self, sample: TrainSample) -> Question:
        """One of the sample's questions, the same in every run of the job."""
        if not sample.questions:
            raise FlywheelError(
                f"sample of {sample.task_id}: neither an action nor a question.", "Give it one or leave it out."
            )
        return random.Random(f"{self._seed} {sample.screenshots[-1]}").choice(sample.questions)
