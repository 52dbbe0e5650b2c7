"""Compare the small policy's network with `transformers` on the same weights: samples per second.

Acting: one batch of chats from PNG to text, greedy, `TOKENS` tokens each; the peer's `generate` with its cache, on the
left-padded batch. Training: forward, backward and update over the same rows, with the same loss (it is compared). Ours
steps with Muon on fp32 weights, the peer with fused AdamW on its own weights, which is less work. The peer runs in bf16
and in fp32, and the faster counts. All in turn in one run, by the wall clock; medians.
"""

import hashlib
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch.nn.functional import cross_entropy

from benchmarks.harness import Bar, finish, options
from learning.data.files import Rollout
from learning.engines.tiny.batches import ForwardBatch, outputs_of
from learning.engines.tiny.engine import ReplyEncoder
from learning.engines.tiny.optimizer import FlatOptimizer
from models.families.dialects import format_reply
from models.families.family import TinyFamily
from models.families.prompt import Message
from models.policy import Context
from models.precision import compute_dtype
from models.tiny.build import build_tiny
from models.tiny.generator import TinyModel
from models.tiny.network import TinyNet
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig
from schemas.observation import Observation, PastStep

SCREEN = (160, 224)
"""A MiniWoB++ screen in whole patches: others the library scales, and we lay on a white canvas."""
BATCH = 32
TOKENS = 24
"""Tokens of a completion, about those of a thought and a click."""
FAMILY = TinyFamily(PolicyConfig())
NAMES = ("ok", "cancel", "submit", "next", "search", "open")
REPLY = "Thought: I click on it.\nAction: click(start_box='<|box_start|>(0.5,0.5)<|box_end|>')"


def contexts(count: int) -> list[Context]:
    """So many steps of small screens, each after none to two others."""
    draw = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        image = Image.new("RGB", SCREEN, "white")
        left, top = (int(torch.randint(0, side - 50, (), generator=draw)) for side in SCREEN)
        ImageDraw.Draw(image).rectangle((left, top, left + 40, top + 20), fill="navy")
        out = io.BytesIO()
        image.save(out, "png")
        screen = Observation(out.getvalue(), *SCREEN, "")
        turns = (PastStep("Wait.", "wait()", screen),) * (number % 3)
        made.append(Context(f'Click on the "{NAMES[number % len(NAMES)]}" button.', turns, screen, number))
    return made


def _past(context: Context) -> tuple[str, ...]:
    return tuple(format_reply(turn.thought, turn.action_text) for turn in context.turns)


def stock(directory: Path, dtype: torch.dtype) -> Any:
    """The library's own model of a directory."""
    from transformers import AutoModelForImageTextToText

    return AutoModelForImageTextToText.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa")


class Acting:
    """One batch of chats, by each arm."""

    def __init__(self, directory: Path) -> None:
        from transformers import AutoProcessor

        asked = contexts(BATCH)
        self._chats = [FAMILY.messages(context) for context in asked]
        self._seeds = [context.seed for context in asked]
        self._ours = TinyModel(directory)
        self._processor: Any = AutoProcessor.from_pretrained(directory)
        self._peers = {dtype: stock(directory, dtype).eval() for dtype in (torch.bfloat16, torch.float32)}

    @torch.inference_mode()
    def alike(self, directory: Path) -> float:
        """The share of completions that are the peer's, word by word, both in fp32 (bf16 breaks ties by rounding)."""
        made = TinyModel(directory, dtype=torch.float32).generate(self._chats, self._seeds, 0.0, TOKENS)
        pairs = zip([completion.text for completion in made], self._peer(torch.float32), strict=True)
        return sum(ours == theirs for ours, theirs in pairs) / BATCH

    def arms(self) -> dict[str, Callable[[], object]]:
        """What is timed."""
        peers = {f"transformers, {_name(dtype)}": lambda dtype=dtype: self._peer(dtype) for dtype in self._peers}
        return {"ours": self._own, **peers}

    def _own(self) -> None:
        self._ours.generate(self._chats, self._seeds, 0.0, TOKENS)

    @torch.inference_mode()
    def _peer(self, dtype: torch.dtype) -> list[str]:
        chats = [[_with_image(message) for message in chat] for chat in self._chats]
        inputs = self._processor.apply_chat_template(
            chats, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt",
            processor_kwargs={"padding": True},
        ).to(dtype)  # fmt: skip
        made = self._peers[dtype].generate(**inputs, do_sample=False, max_new_tokens=TOKENS)
        ids = made[:, inputs["input_ids"].shape[1] :]
        return self._processor.batch_decode(ids, skip_special_tokens=True)


class Training:
    """One optimiser step over the same rows, by each arm."""

    def __init__(self, directory: Path) -> None:
        asked = contexts(BATCH)
        pngs = {hashlib.sha256(one.observation.png).hexdigest(): one.observation.png for one in asked}
        rollouts = [
            Rollout(f"t{at}", 0, "", (sha,), context.instruction, _past(context), REPLY)
            for at, (sha, context) in enumerate(zip(pngs, asked, strict=True))
        ]
        self._net = TinyNet.load(directory)
        self._gradient = self._net.gradients()
        self._optimizer = FlatOptimizer(self._net, TrainConfig())
        encoder = ReplyEncoder(directory, PolicyConfig(), self._net, pngs)
        self._pieces = encoder.encode(rollouts, range(BATCH), [0] * BATCH)
        self._targets = sum(len(piece.targets) for piece in self._pieces)
        self._peers = {dtype: stock(directory, dtype).train() for dtype in (torch.bfloat16, torch.float32)}
        self._steppers = {
            dtype: torch.optim.AdamW(peer.parameters(), lr=0.0, fused=True) for dtype, peer in self._peers.items()
        }
        self.losses: dict[str, float] = {}

    def arms(self) -> dict[str, Callable[[], object]]:
        """What is timed; at a learning rate of 0, so that every repeat has the same loss."""
        peers = {f"transformers, {_name(dtype)}": lambda dtype=dtype: self._peer(dtype) for dtype in self._peers}
        return {"ours": self._own, **peers}

    def _own(self) -> None:
        self._gradient.zero_()
        total = torch.zeros(())
        for piece in self._pieces:
            loss = -outputs_of(self._net, piece).logprobs.sum() / self._targets
            loss.backward()
            total += loss.detach()
        self._optimizer.step(self._gradient, 0.0)
        self.losses["ours"] = float(total)

    def _peer(self, dtype: torch.dtype) -> None:
        self._steppers[dtype].zero_grad()
        total = torch.zeros(())
        for piece in self._pieces:
            logits = self._peers[dtype](**stock_inputs(piece, self._net, dtype)).logits
            lead = logits.shape[1] - piece.packed.tokens.shape[1]
            wanted = logits[piece.rows, piece.columns + lead].float()
            loss = cross_entropy(wanted, piece.targets, reduction="sum") / self._targets
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(self._peers[dtype].parameters(), 1.0)
        self._steppers[dtype].step()
        self.losses[_name(dtype)] = float(total)


def stock_inputs(piece: ForwardBatch, net: TinyNet, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """A piece as the library takes it."""
    tokens = piece.packed.tokens
    lead = piece.packed.segments.shape[1] - tokens.shape[1]
    ids = torch.cat([torch.full((len(tokens), lead), net.image_token), tokens], dim=1)
    return {
        "input_ids": ids,
        "attention_mask": (piece.packed.segments >= 0).long(),
        "mm_token_type_ids": (ids == net.image_token).int(),
        "pixel_values": piece.patches.flatten(0, 1).to(dtype),
        "image_grid_thw": torch.tensor([[1, *piece.grid]] * len(piece.patches)),
    }


def timed(arms: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each arm, in turn, after a first round that is not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for repeat in range(repeats + 1):
        for name, work in arms.items():
            started = time.perf_counter()
            work()
            if repeat:
                seconds[name].append(time.perf_counter() - started)
    return {name: median(taken) for name, taken in seconds.items()}


def _with_image(message: Message) -> Message:
    parts = []
    for part in message["content"]:
        if part["type"] == "image":
            part = {"type": "image", "image": Image.open(io.BytesIO(part["observation"].png)).convert("RGB")}
        parts.append(part)
    return {**message, "content": parts}


def _name(dtype: torch.dtype) -> str:
    return {torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]


def main() -> int:
    """Prints the table; exit code 1 if a bar is missed."""
    chosen = options(__doc__ or "")
    repeats = 3 if chosen.short else 9
    rows: list[dict[str, Any]] = []
    bars = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name) / "policy"
        build_tiny(PolicyConfig(), [context.instruction for context in contexts(BATCH)], 0, directory)
        acting, training = Acting(directory), Training(directory)
        alike = acting.alike(directory)
        for doing, arms in (("act", acting.arms()), ("train", training.arms())):
            seconds = timed(arms, repeats)
            rows += [
                {"doing": doing, "arm": arm, "samples_per_s": BATCH / taken, "over_ours": taken / seconds["ours"]}
                for arm, taken in seconds.items()
            ]
            best = min(taken for arm, taken in seconds.items() if arm != "ours")
            bar = 2.0 if doing == "train" and compute_dtype() == torch.bfloat16 else 1.0
            bars.append(Bar(f"{doing}: ours / transformers, samples per second", best / seconds["ours"], bar, "higher"))
    bars.append(Bar("act: completions as the peer's, both in fp32", alike, 0.95, "higher"))
    off = max(abs(loss - training.losses["ours"]) for loss in training.losses.values())
    bars.append(Bar("train: losses apart, nats a token", off, 0.02, "lower"))
    return finish("small_policy", rows, bars, chosen)


if __name__ == "__main__":
    raise SystemExit(main())
