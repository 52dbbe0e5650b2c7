"""Write the data of both trainers: a model directory, our samples, and the same chats for TRL."""

import hashlib
import io
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from PIL import Image, ImageDraw

from learning.algorithms.method import method_of
from learning.data import sample as files
from learning.data.documents import Document, chat_of, visible_screens
from learning.data.sample import Past, Preference, Screenshots, TrainSample
from learning.job import Job
from models.families.processor import read_processor
from models.families.registry import family_of
from models.families.screen import picture
from models.random_vlm import build_random
from schemas.action import Click, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

NAMES = ("submit", "cancel", "next page", "search the shop", "open the settings")
EQUAL, MIXED = (224, 160), ((160, 224), (320, 256), (640, 480))
SIZE = {
    "kind": "qwen3_vl",
    "hidden": 512,
    "layers": 8,
    "heads": 8,
    "kv_heads": 2,
    "head_width": 64,
    "vision_hidden": 256,
    "vision_layers": 6,
}
"""About 21 million weights."""
SMALL = {"kind": "qwen3_vl", "hidden": 64, "layers": 2}
POLICY = PolicyConfig(history_images=2, max_new_tokens=64)
PREFERENCE_CAP = 8192
"""Tokens of a micro-batch of preferences: sixteen replies at once would hold more than the peer that computes twice."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is trained on what."""

    model: dict[str, Any] = field(default_factory=lambda: dict(SIZE))
    """`models.random_vlm.build_random`'s."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of both trainers, and of the drawing of the weights."""
    batch: int = 8
    steps: int = 8
    whole: int = 0
    """Steps of the training of which these are the first, for settings that depend on them; 0 for no more."""
    mixed: tuple[tuple[int, int], ...] = MIXED
    """Sizes of screens where they differ."""
    group: int = 4
    """Replies to one prompt, for GRPO."""
    at_once: tuple[int, ...] = ()
    """Samples of a pass of TRL's to try, from large to small, of which the first that fits is taken; the batch alone if
    empty. Gradients are accumulated to the batch."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One comparison."""

    name: str
    job: Path
    """Our job, as JSON."""
    chats: Path
    """The same for TRL: the model, the sizes of the training, and every chat with the paths of its pictures."""
    device: str = "cpu"


def write_workload(folder: Path, names: Sequence[str], scale: Scale) -> list[Workload]:
    """Write the comparisons of these names, `sft equal`, `sft mixed`, `dpo`, `grpo`, and the model if it is missing."""
    texts = [f'Click on the "{name}" button.' for name in NAMES] * 8
    if not (folder / "model").exists():
        build_random(texts=texts, seed=0, out=folder / "model", device=scale.device, **scale.model)
    return [_write(folder, name, scale) for name in names]


def _write(folder: Path, name: str, scale: Scale) -> Workload:
    own = folder / name.replace(" ", "-")
    own.mkdir()
    draw, pngs, method = random.Random(0), dict[str, bytes](), name.partition(" ")[0]
    count = scale.batch * scale.steps // (scale.group if method == "grpo" else 1)
    sizes = (EQUAL,) if name == "sft equal" else scale.mixed
    made = [_sample(draw, pngs, sizes, past=name in ("sft mixed", "dpo")) for _ in range(count)]
    if method == "dpo":
        files.write_preferences(own / "samples", [_preference(at, sample) for at, sample in enumerate(made)])
    else:
        files.write_samples(own / "samples", made)
    files.write_screenshots(own / "screenshots", pngs)
    train = TrainConfig.model_validate(
        {
            "method": method, "batch": scale.batch, "warmup": 0, "decay": 0.0, "group": {"size": scale.group, "k": 1},
            "processes": 1, "device": scale.device, "preference": {"batch": scale.batch},
            "token_cap": PREFERENCE_CAP if method == "dpo" else None,
        }
    )  # fmt: skip
    job = Job(
        parent=folder / "model", out=own / "out", samples=own / "samples", screenshots=own / "screenshots",
        steps=scale.whole or scale.steps, learning_rate=1e-5, policy=POLICY, train=train,
    )  # fmt: skip
    (own / "job.json").write_text(job.model_dump_json())
    chats = {
        "model": str(job.parent), "batch": scale.batch, "rate": job.learning_rate, "beta": train.preference.beta,
        "method": method, "device": scale.device, "at_once": list(scale.at_once or (scale.batch,)),
        "group": scale.group, "tokens": POLICY.max_new_tokens,
    }  # fmt: skip
    rows = list(_prompts(job, own) if method == "grpo" else _chats(job, own))
    (own / "chats.json").write_text(json.dumps({**chats, "rows": rows}))
    return Workload(name, own / "job.json", own / "chats.json", scale.device)


def _sample(draw: random.Random, pngs: dict[str, bytes], sizes: Sequence[tuple[int, int]], past: bool) -> TrainSample:
    before = tuple(
        Past(f"Go to {draw.choice(NAMES)}.", ('{"type":"wait"}',)) for _ in range(past * draw.choice((0, 0, 1, 4, 9)))
    )
    size = draw.choice(sizes)
    screens = [drawn_screen(draw, size, pngs) for _ in range(min(2, len(before) + 1))]
    click = to_json(Click(x=round(draw.random(), 2), y=round(draw.random(), 2)))
    name = draw.choice(NAMES) if len(sizes) > 1 else NAMES[0]
    return TrainSample("form/click", tuple(screens), f'Click on the "{name}" button.', before, "Click on it.", (click,))


def _preference(at: int, sample: TrainSample) -> Preference:
    past = tuple(f"Thought: {one.thought}\nAction: wait()" for one in sample.history)
    chosen = f"Thought: Click on it.\nAction: click(start_box='({10 + at},250)')"
    return Preference(
        f"p{at}", sample.task_id, sample.screenshots, sample.instruction, past, chosen, "Thought: Wait.\nAction: wait()"
    )


def drawn_screen(draw: random.Random, size: tuple[int, int], pngs: dict[str, bytes]) -> str:
    """Draw a screen of this size, and add its PNG; return its sha256."""
    image = Image.new("RGB", size, "white")
    left, top = (draw.randrange(side - 60) for side in size)
    ImageDraw.Draw(image).rectangle((left, top, left + 50, top + 20), fill=draw.choice(("navy", "green", "gray")))
    out = io.BytesIO()
    image.save(out, "png")
    digest = hashlib.sha256(out.getvalue()).hexdigest()
    pngs[digest] = out.getvalue()
    return digest


def _prompts(job: Job, folder: Path) -> Iterator[dict[str, object]]:
    """Chats to be answered, as messages without their pictures, and the paths of these."""
    family, screenshots = family_of(job.policy, job.parent), Screenshots(job.screenshots)
    for sample in files.read_samples(job.samples):
        (digest,) = visible_screens(sample, job.policy.context_rule)
        messages, _ = chat_of(sample, family, [screenshots.size(digest)], job.seed)
        path = folder / f"{digest}.png"
        picture(screenshots.png(digest), family.limits).save(path)
        plain = [
            {**one, "content": [{"type": "image"} if part["type"] == "image" else part for part in one["content"]]}
            for one in messages
        ]
        yield {"prompt": plain, "images": [str(path)]}


def _chats(job: Job, folder: Path) -> Iterator[dict[str, object]]:
    """Prompt and replies as text; of preferences both sides, which follow each other among our documents."""
    processor, family = read_processor(job.parent), family_of(job.policy, job.parent)
    screenshots = Screenshots(job.screenshots)
    method = method_of(job.train)
    samples = method.read(job.samples)
    if job.train.method == "dpo":
        from learning.algorithms.dpo import sides_of

        documents: list[list[Document]] = [list(sides_of(pair)) for pair in samples]
    else:
        documents = [[sample] for sample in samples]
    for sides in documents:
        digests = visible_screens(sides[0], job.policy.context_rule)
        sizes = [screenshots.size(digest) for digest in digests]
        asked = [chat_of(side, family, sizes, job.seed) for side in sides]
        paths = [folder / f"{digest}.png" for digest in digests]
        for path, digest in zip(paths, digests, strict=True):
            picture(screenshots.png(digest), family.limits).save(path)
        prompt = processor.apply_chat_template(asked[0][0], add_generation_prompt=True, tokenize=False)
        end = "" if len(sides) == 2 else "<|im_end|>"  # a preference's replies are compared without their end
        yield {"prompt": prompt, "replies": [text + end for _, text in asked], "images": [str(path) for path in paths]}
