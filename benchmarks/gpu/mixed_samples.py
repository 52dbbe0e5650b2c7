"""Make training samples like trajectories: some with one small screen, some with many, texts with a heavy tail."""

import hashlib
import io
import random
from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from learning.data.sample import Past, TrainSample, write_samples, write_screenshots
from learning.job import Job
from schemas.action import Click, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

SIZES = ((96, 64), (192, 160), (320, 256))
NAMES = ("ok", "cancel", "submit", "next", "search", "open")
MOST_SCREENS = 6


def mixed_samples(
    count: int, seed: int, sizes: Sequence[tuple[int, int]] = SIZES
) -> tuple[list[TrainSample], dict[str, bytes]]:
    """Samples and their screenshots: a third show one small screen, the others up to `MOST_SCREENS` of any size."""
    draw = random.Random(seed)
    pngs: dict[str, bytes] = {}
    samples = []
    for number in range(count):
        single = draw.random() < 0.35
        screens = 1 if single else min(MOST_SCREENS, 1 + int(draw.lognormvariate(0.9, 0.7)))
        size = sizes[0] if single else draw.choice(sizes)
        shown = [_screen(draw, size, pngs) for _ in range(screens)]
        past = tuple(Past(f"Look for {draw.choice(NAMES)}.", ('{"type":"wait"}',)) for _ in shown[1:])
        x, y = draw.random(), draw.random()
        hints = 0 if single else 4 * int(draw.lognormvariate(1.0, 0.9))
        instruction = f'Click on the "{draw.choice(NAMES)}" button.' + f" Look for {draw.choice(NAMES)}." * hints
        click = to_json(Click(x=x, y=y))
        samples.append(TrainSample(f"mix/{number}", tuple(shown), instruction, past, "Click it.", (click,)))
    return samples, pngs


def mixed_job(
    folder: Path, samples: tuple[list[TrainSample], dict[str, bytes]], steps: int, rate: float, train: TrainConfig
) -> Job:
    """The training of the model in `folder/model` on samples and their screenshots, which are written beside it."""
    write_samples(folder / "samples.parquet", samples[0])
    write_screenshots(folder / "screenshots.parquet", samples[1])
    return Job(
        parent=folder / "model",
        out=folder / "out",
        samples=folder / "samples.parquet",
        screenshots=folder / "screenshots.parquet",
        steps=steps,
        learning_rate=rate,
        policy=PolicyConfig(history_images=MOST_SCREENS),
        train=train,
    )


def _screen(draw: random.Random, size: tuple[int, int], pngs: dict[str, bytes]) -> str:
    image = Image.new("RGB", size, "white")
    canvas = ImageDraw.Draw(image)
    for _ in range(3):
        left, top = draw.randint(0, size[0] - 40), draw.randint(0, size[1] - 30)
        canvas.rectangle((left, top, left + 30, top + 20), fill=draw.choice(("red", "blue", "green", "black")))
    out = io.BytesIO()
    image.save(out, "png")
    digest = hashlib.sha256(out.getvalue()).hexdigest()
    pngs[digest] = out.getvalue()
    return digest
