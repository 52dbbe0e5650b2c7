"""Encodes documents as tokens of any model directory: the text that an acting policy sees, and the targets.

The policy's family makes the chat and the reply (`learning.data.documents`), and the directory's chat template and
processor encode them. A sampled reply keeps its sampled tokens. Any other reply is encoded separately. It begins as the
template begins a reply: for a model that thinks, the prompt ends with an open `<think>`, which the reply closes. It
ends with the token that ends a turn. The loss covers the reply. The number of tokens of a document follows from its
text and the sizes of its screens. So a plan needs no pixels (`measure`); screens are decoded when they are encoded
(`pixels`).
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from common.picture import rgb_of
from learning.data.documents import Document, chat_of, clip_of_sample, thought_of, visible_screens
from learning.data.files import Rollout
from learning.data.sample import Screenshots, TrainSample
from learning.planning.step_rules import SampleLengths, ScreenSpan
from models.families.outside import as_sent
from models.families.processor import PromptTokens, read_processor
from models.families.prompt import Message, clips_of
from models.families.registry import family_of
from models.families.screen import Size, picture
from models.families.thinking import OPEN
from models.families.video import frame_at
from models.tiny.layout import read_config
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, FlywheelError

_PLACEHOLDERS = ("image_token_id", "video_token_id", "vision_start_token_id")


@dataclass(frozen=True, slots=True)
class FrameGroup:
    """Frames of a video that the vision tower takes as one."""

    digests: tuple[str, ...]
    """SHA-256 of each frame's screenshot."""
    size: Size
    """Width and height in pixels to which the frames are resized."""


Encoded = str | FrameGroup
"""A screen's SHA-256, or frames of a video: the tower encodes either as one grid of patches."""


@dataclass(frozen=True, slots=True)
class Measure:
    """Lengths and screens of a document, for a plan."""

    item: SampleLengths
    """Lengths of the document, without the last token of the reply, which is only a target."""
    reply: tuple[int, ...]
    """Tokens of the reply."""
    digests: tuple[Encoded, ...]
    """The document's screens and frames, in the order of their tokens."""
    thought: int | None = None
    """Number of tokens of the thought; None if the document is no reply to an instruction."""
    temperature: float = 1.0
    """Divisor of the reply's logits."""

    @property
    def targets(self) -> int:
        """Counts the tokens of the reply."""
        return len(self.reply)


@dataclass(frozen=True, slots=True)
class Chat:
    """A document as tokens."""

    ids: Tensor
    """(n,)."""
    targets: Tensor
    """(n,) the token that must follow each token, or -1 without a target."""
    grids: Tensor
    """(screens, 3) patches of each screen, or group of frames, in time, rows, columns."""
    kinds: Tensor
    """(n,) the processor's `mm_token_type_ids`: 0 text, 1 image, 2 video."""
    shapes: Mapping[str, Tensor]
    """Grids of images and videos by the names under which `get_rope_index` accepts them."""
    temperature: float = 1.0
    """Divisor of the logits."""

    @property
    def times(self) -> tuple[float, ...]:
        """Lists the seconds between the groups of frames of each video, on which positions depend."""
        return tuple(self.shapes["second_per_grid_ts"].tolist()) if "second_per_grid_ts" in self.shapes else ()

    def follows(self, earlier: "Chat") -> bool:
        """Checks whether this document's prompt begins with the tokens of another document, reply included."""
        size, prompt = len(earlier.ids), len(self.ids) - int((self.targets >= 0).sum())
        return size <= prompt and torch.equal(self.ids[:size], earlier.ids)


def common(texts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Finds the tokens with which all texts begin."""
    return tuple(each[0] for each in takewhile(lambda each: len(set(each)) == 1, zip(*texts, strict=False)))


def _digest(chat: Chat, pieces: Sequence[ScreenSpan], size: int) -> str:
    """Computes a digest of the first tokens, their screens, and what else determines their positions."""
    shown = [(piece.start, piece.tokens, piece.name) for piece in pieces if piece.start < size]
    return hashlib.sha256(chat.ids[:size].numpy().tobytes() + repr((shown, chat.times)).encode()).hexdigest()


class Chats:
    """Encodes documents for the model of a directory.

    Args:
        directory, policy: the model.
        screenshots: the screens of the documents.
        seed: seed of the training.
        shares: whether measures name the openings and screens that documents have in common.

    Raises:
        CheckpointError: the directory cannot be read, or its processor does not give screens as grids of patches.
    """

    def __init__(
        self, directory: Path, policy: PolicyConfig, screenshots: Screenshots, seed: int, shares: bool = False
    ) -> None:
        self.processor = read_processor(directory)
        self._family = family_of(policy, directory)
        self._directory, self._policy = directory, policy
        self._screenshots, self._seed, self._shares = screenshots, seed, shares
        self.start: tuple[int, ...] | None = None
        """Tokens with which all measured documents begin, before screens; None if none was measured, or none shares."""
        self._tokenizer: Any = self.processor.tokenizer
        config = read_config(directory)
        self._vocabulary = int(config.get("text_config", config).get("vocab_size", len(self._tokenizer)))
        self._placeholders = torch.tensor([config[name] for name in _PLACEHOLDERS if name in config])
        self._merge = int(getattr(self.processor.image_processor, "merge_size", 0))
        if not self._merge:
            raise CheckpointError(
                f"{directory}: its processor does not lay screens out as grids of patches.",
                "The trainer takes models of the Qwen-VL family and those with the same interface (image_grid_thw).",
            )
        self._prompt_tokens = PromptTokens(self.processor, self._family.limits, self._family.video)
        self._opened, self._begin, self._end = self._frame()

    def measure_slice(self, documents: Sequence[Document]) -> tuple[list[Measure | None], dict[int, int]]:
        """Measures the documents of a slice (`learning.data.slices`) without decoding pixels.

        Returns:
            Lengths of each document, None for a document of weight 0; and for each document that follows another one
            (`Chat.follows`, with the same screens), the longest document that it follows.

        Raises:
            FlywheelError: as in `encode`.
        """
        made: list[Measure | None] = []
        known: list[tuple[int, Chat, Measure]] = []
        follows: dict[int, int] = {}
        for number, document in enumerate(documents):
            if not document.weight > 0:
                made.append(None)
                continue
            chat = self.encode(document)
            measure = self._measured(document, chat)
            earlier = [
                (len(other.ids), at)
                for at, other, seen in known
                if seen.digests == measure.digests[: len(seen.digests)] and chat.follows(other)
            ]
            if earlier:
                follows[number] = max(earlier)[1]
            made.append(measure)
            known.append((number, chat, measure))
        return made, follows

    def measure(self, document: Document) -> Measure:
        """Measures a document without decoding pixels; raises as `encode` does."""
        return self._measured(document, self.encode(document))

    def _measured(self, document: Document, chat: Chat) -> Measure:
        pieces, start, shown = list[ScreenSpan](), 0, self._encoded(document)
        for kind, run in groupby(chat.kinds.tolist()):
            end = start + len(list(run))
            while kind and start < end:
                patches = int(chat.grids[len(pieces)].prod())
                name = shown[len(pieces)] if self._shares else None
                pieces.append(ScreenSpan(start, patches // self._merge**2, patches, name))
                start += pieces[-1].tokens
            start = end
        reply = tuple(chat.targets[chat.targets >= 0].tolist())
        thought = thought_of(document, self._family)
        thinks = None if thought is None else len(self._tokenizer(thought, add_special_tokens=False)["input_ids"])
        opening = len(chat.ids) - len(reply)
        begins = _digest(chat, pieces, opening) if self._shares else ""
        if self._shares:
            end = min([opening, *(piece.start for piece in pieces)])
            self.start = common([chat.ids[:end].tolist(), *([] if self.start is None else [self.start])])
        item = SampleLengths(len(chat.ids), tuple(pieces), len(reply), opening, begins)
        return Measure(item, reply, shown, thinks, chat.temperature)

    def _encoded(self, document: Document) -> tuple[Encoded, ...]:
        """Lists the screens of a document, or the groups of frames of its video."""
        digests = visible_screens(document, self._family.rule)
        if not isinstance(document, TrainSample) or document.kind != "video":
            return digests
        sampled = self._family.video_rule().sampled(clip_of_sample(document, self._sizes(document)))
        return tuple(
            FrameGroup(tuple(digests[frame_at(document.times, at / document.rate)] for at in group), sampled.size)
            for group in sampled.pairs
        )

    def encode(self, document: Document) -> Chat:
        """Encodes the chat and the reply.

        Raises:
            FlywheelError: the document has no target, a missing screenshot, or tokens that the model does not have.
            UsageError: the document has a video, and the model takes none.
        """
        sizes = self._sizes(document)
        if isinstance(document, TrainSample) and document.kind == "video":
            self._family.video_rule()
        messages, text = chat_of(document, self._family, sizes, self._seed)
        if isinstance(document, Rollout):
            return self._given(document, messages, text, sizes)
        return self._chat(messages, sizes, [*self._written(text), self._end])

    def _given(self, rollout: Rollout, messages: list[Message], text: str, sizes: Sequence[tuple[int, int]]) -> Chat:
        """Encodes a given reply: its sampled tokens, or its text if no model of this kind sampled it."""
        drawn = list(rollout.token_ids)
        if not drawn:
            drawn = [*self._written(text), *([self._end] if rollout.ended else [])]
        where = f"step {rollout.step} of {rollout.trajectory_id} ({rollout.task_id})"
        if not drawn:
            raise FlywheelError(f"{where}: an empty reply.", "Delete that trajectory.")
        if max(drawn) >= self._vocabulary:
            raise FlywheelError(
                f"{where}: token {max(drawn)} of a model with {self._vocabulary} tokens.",
                "The reply was drawn with another tokenizer; train the model that acted.",
            )
        return self._chat(messages, sizes, drawn, rollout.temperature)

    def without_placeholders(self, chat: Chat) -> Tensor:
        """Returns the tokens, with the end of a turn in place of a reply's placeholders.

        A model may draw the placeholder of a picture. No picture belongs to it, so it is a token like any other.
        """
        ids, begun = chat.ids.clone(), int((chat.targets < 0).sum()) + 1
        ids[begun:][torch.isin(ids[begun:], self._placeholders)] = self._end
        return ids

    def _chat(
        self, messages: list[Message], sizes: Sequence[tuple[int, int]], reply: Sequence[int], temperature: float = 1.0
    ) -> Chat:
        """Encodes the chat that ends with a reply of these tokens.

        Args:
            messages: a chat that shows screens, or one video.
            sizes: sizes of the screens, or of the video's frames.
            reply: tokens.
            temperature: divisor of the reply's logits.
        """
        prompt = self._prompt_tokens(as_sent(messages, self._directory, self._policy))
        ids = [*prompt, *reply[:-1]]
        targets = [-1] * (len(prompt) - 1) + list(reply)
        kinds = [*self.processor.create_mm_token_type_ids([prompt])[0], *[0] * (len(reply) - 1)]
        clips = clips_of(messages)
        images = [self._prompt_tokens.laid_out(size)[0] for size in sizes] if not clips else []
        sampled = [self._family.video_rule().sampled(clip) for clip in clips]
        shapes = {"image_grid_thw": torch.stack(images)} if images else {}
        if sampled:
            shapes["video_grid_thw"] = torch.tensor([one.grid for one in sampled])
            shapes["second_per_grid_ts"] = torch.tensor([one.grid_seconds for one in sampled])
        frames = [torch.tensor([1, *one.grid[1:]]) for one in sampled for _ in range(one.grid[0])]
        grids = torch.stack([*images, *frames])
        return Chat(torch.tensor(ids), torch.tensor(targets), grids, torch.tensor(kinds), shapes, temperature)

    def _sizes(self, document: Document) -> list[tuple[int, int]]:
        """Lists width and height of a document's screens."""
        try:
            return [self._screenshots.size(digest) for digest in visible_screens(document, self._family.rule)]
        except KeyError as error:
            raise FlywheelError(
                f"sample of {document.task_id}: no screenshot {error}.", "Write the sample's screenshots too."
            ) from error

    def _written(self, reply: str) -> list[int]:
        """Encodes a reply's text, with the template's beginning of a reply if the text lacks it, and without the text
        with which the prompt opens the reply."""
        reply = reply.removeprefix(self._opened)
        whole = reply if self._begin.strip() in reply else self._begin + reply
        return self._tokenizer(whole, add_special_tokens=False)["input_ids"]

    def pixels(self, digest: Encoded) -> tuple[Tensor, Tensor]:
        """Converts a screen, or a group of frames, for the vision tower: patches (n, width of a patch) and its grid
        (3,)."""
        if isinstance(digest, FrameGroup):
            return self._frames(digest)
        image = picture(self._screenshots.png(digest), self._family.limits)
        made = self.processor.image_processor(images=[image], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0]

    def _frames(self, group: FrameGroup) -> tuple[Tensor, Tensor]:
        """Converts the frames of a group: the image processor repeats each frame in time, so that of frame t only the
        patches at t are taken."""
        rule = self._family.video_rule()
        shown = [rgb_of(self._screenshots.png(digest)) for digest in group.digests]
        sized = [one if one.size == group.size else one.resize(group.size, Image.Resampling.BICUBIC) for one in shown]
        colours = {"image_mean": list(rule.mean), "image_std": list(rule.std)}
        made = self.processor.image_processor(images=sized, do_resize=False, return_tensors="pt", **colours)
        grid = made["image_grid_thw"][0]
        parts = made["pixel_values"].view(len(sized), int(grid.prod()), 3, rule.temporal, -1)
        return torch.stack([part[:, :, at] for at, part in enumerate(parts)], 2).flatten(1), grid

    def blank(self) -> tuple[Tensor, Tensor]:
        """Makes the smallest screen, for a rank without screens, which still joins the vision tower's collectives."""
        side = self._merge * int(self.processor.image_processor.patch_size)
        made = self.processor.image_processor(images=[Image.new("RGB", (side, side))], return_tensors="pt")
        return made["pixel_values"], made["image_grid_thw"][0]

    def _template(self, messages: Sequence[Message], prompt: bool) -> str:
        return self.processor.apply_chat_template(messages, add_generation_prompt=prompt, tokenize=False)

    def _frame(self) -> tuple[str, str, int]:
        """Finds the thinking that the prompt opens, the template's text between the prompt and a reply, and the token
        that ends the turn."""
        chat: list[Message] = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]
        before = self._template(chat, prompt=True)
        chat.append({"role": "assistant", "content": [{"type": "text", "text": "!"}]})
        after = self._template(chat, prompt=False)
        begin, _, rest = after.removeprefix(before).partition("!") if after.startswith(before) else ("", "", "")
        ids = self._tokenizer(rest, add_special_tokens=False)["input_ids"] if rest else []
        opened = OPEN + before.rpartition(OPEN)[2] if before.rstrip().endswith(OPEN) else ""
        return opened, begin, ids[0] if ids else self._tokenizer.eos_token_id
