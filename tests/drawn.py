"""Pages of drawn text in the form of the table `pages`, for tests that need no browser."""

import hashlib
import io
import json
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from learning.data.pages import PageSample, write_pages
from learning.data.sample import write_screenshots
from learning.job import Job
from models.tiny.build import build_tiny
from schemas.action import Click, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import PretrainConfig, TrainConfig
from schemas.tables.page import PageScreen, PageSplit
from schemas.tables.screenshot import Screenshot

SYLLABLES = ("ka", "lo", "mi", "ter", "su", "pon", "vi", "dre", "ga", "hul")
SETTINGS = PretrainConfig(
    steps=6, letters_steps=2, batch=2, crop_width=96, crop_height=64, whole_share=0.2, validate_every=3, validation=4,
    hidden=64, layers=2, vision_hidden=16, vision_layers=1, phrases=20,
)  # fmt: skip
TRAIN = TrainConfig(method="pretrain", batch=2, warmup=2, processes=1, shift=4, pretrain=SETTINGS)
POLICY = PolicyConfig(
    hidden=64, layers=2, vision_hidden=16, vision_layers=1, patch=4, merge=4, window=32, max_new_tokens=12
)


def drawn(
    seed: int, split: PageSplit = "train", size: tuple[int, int] = (96, 64), words: int = 3
) -> tuple[list[PageScreen], dict[str, bytes]]:
    """One page of two screens: a click on the first of some words checks it."""
    draw = random.Random(f"{seed} {split}")
    names = ["".join(draw.choices(SYLLABLES, k=2)) for _ in range(words)]
    places = [(draw.randint(4, size[0] - 60), 4 + number * (size[1] - 8) // words) for number in range(words)]
    font = ImageFont.load_default(size=11)
    rows: list[PageScreen] = []
    pngs: dict[str, bytes] = {}
    for step in range(2):
        image = Image.new("RGB", size, "white")
        pen = ImageDraw.Draw(image)
        elements, lines = [], []
        for number, (name, (left, top)) in enumerate(zip(names, places, strict=True)):
            pen.text((left, top), name, font=font, fill="black")
            edges = [left + pen.textlength(name[:at], font=font) for at in range(len(name) + 1)]
            box = (left, top, edges[-1], top + 14)
            if step and not number:
                pen.rectangle((0, top, 3, top + 12), fill="red")
            share = [round(edge / side, 4) for edge, side in zip(box, size * 2, strict=True)]
            elements.append([name, "checkbox" if not number else "text", share, 1, ""])
            centres = [round((a + b) / 2, 1) for a, b in pairwise(edges)]
            lines.append([name, box, 11, centres])
        out = io.BytesIO()
        image.save(out, "png")
        digest = hashlib.sha256(out.getvalue()).hexdigest()
        pngs[digest] = out.getvalue()
        left, top, right, bottom = elements[0][2]
        rows.append(
            PageScreen(
                page_id=f"{split}-{seed:04d}", step=step, split=split, layout="list", theme="plain", font="default",
                font_px=11, widgets=["checkbox"], width=size[0], height=size[1], sha256=digest,
                elements=json.dumps(elements), states=json.dumps({"0": {"checked": bool(step)}}),
                lines=json.dumps(lines),
                instruction=f'Check "{names[0]}".',
                action="" if step else to_json(Click(x=(left + right) / 2, y=(top + bottom) / 2)), target=step - 1,
                change="" if step else f'"{names[0]}" is now checked.', reward=1.0 if step else None, generator="drawn",
            )
        )  # fmt: skip
    return rows, pngs


def screenshots(pngs: dict[str, bytes], size: tuple[int, int] = (96, 64)) -> list[Screenshot]:
    """Rows of the table `screenshots`."""
    return [
        Screenshot(sha256=digest, png=png, width=size[0], height=size[1], phash="0" * 16, iteration=-1)
        for digest, png in pngs.items()
    ]


def samples(
    pages: int, split: PageSplit = "train", size: tuple[int, int] = (96, 64)
) -> tuple[list[PageSample], dict[str, bytes]]:
    """Samples of the trainer, without their positions."""
    made, pngs = [], {}
    for seed in range(pages):
        rows, pictures = drawn(seed, split, size)
        pngs |= pictures
        for before, row in zip((None, *rows), rows, strict=False):
            made.append(
                PageSample(
                    page_id=row.page_id, step=row.step, split=row.split,
                    screenshots=(*((before.sha256,) if before else ()), row.sha256), width=row.width, height=row.height,
                    elements=row.elements, states=row.states, lines=row.lines, instruction=row.instruction,
                    history=(before.action,) if before else (), action=row.action,
                    change=before.change if before else "",
                    perceived=json.dumps([["How many checkboxes are there?", "1.", None, None]]),
                )
            )  # fmt: skip
    return made, pngs


def parent(folder: Path, hidden: int = POLICY.hidden) -> Path:
    """An untrained base of this width."""
    build_tiny(POLICY.model_copy(update={"hidden": hidden}), (), 0, folder / "parent", words=0)
    return folder / "parent"


def job(folder: Path, pages: int = 4, settings: Mapping[str, object] | None = None, **train: object) -> Job:
    """A job whose files are in the folder; its parent must be made by `parent`."""
    pretrain = SETTINGS.model_copy(update=settings or {})
    made, pngs = samples(pages)
    held_out, others = samples(2, "validation")
    count, total = len(made), pretrain.steps * pretrain.batch
    placed = [replace(one, positions=tuple(range(at, total, count))) for at, one in enumerate(made)]
    write_pages(folder / "samples.arrow", [*(one for one in placed if one.positions), *held_out])
    write_screenshots(folder / "screenshots.arrow", pngs | others)
    return Job(
        parent=folder / "parent",
        out=folder / "out",
        samples=folder / "samples.arrow",
        screenshots=folder / "screenshots.arrow",
        steps=pretrain.steps,
        learning_rate=3e-3,
        policy=POLICY,
        train=TRAIN.model_copy(update={"pretrain": pretrain, "batch": pretrain.batch, **train}),
    )
