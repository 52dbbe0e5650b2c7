"""Small screens with named boxes, the policy that reads them, and a job that trains it; shared by the tests."""

import hashlib
import io
import random
from pathlib import Path

from PIL import Image, ImageDraw

from learning.data.sample import Past, Question, TrainSample, write_samples, write_screenshots
from learning.job import Job
from models.tiny.build import build_tiny
from schemas.action import Click, Type, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig

WORDS = ("ok", "cancel", "submit", "next")
WIDTH, HEIGHT = 96, 64
POLICY = PolicyConfig(hidden=64, layers=2, vision_hidden=64, vision_layers=1, patch=16, merge=2, max_new_tokens=12)
TRAIN = TrainConfig(batch=8, warmup=2, processes=1, grounding=2, reading=1, shift=4, copying=0.0)


def screen(seed: int) -> tuple[bytes, list[Question]]:
    """A PNG with two coloured boxes, and where they are."""
    draw = random.Random(seed)
    image = Image.new("RGB", (WIDTH, HEIGHT), "white")
    canvas = ImageDraw.Draw(image)
    questions = []
    for index, name in enumerate(draw.sample(WORDS, 2)):
        left, top = 6 + 44 * index + draw.randint(0, 12), draw.randint(6, 40)
        canvas.rectangle((left, top, left + 24, top + 14), fill=("red", "blue", "green", "black")[WORDS.index(name)])
        questions.append(Question(name, (left + 12) / WIDTH, (top + 7) / HEIGHT))
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue(), questions


def samples(count: int) -> tuple[list[TrainSample], dict[str, bytes]]:
    """Samples of three kinds: a click, a second step that types, a screen without an action."""
    made, pngs = [], {}
    for index in range(count):
        png, questions = screen(index)
        sha = hashlib.sha256(png).hexdigest()
        pngs[sha] = png
        first = questions[0]
        click = to_json(Click(x=first.x, y=first.y))
        told = f'Click on the "{first.name}" button.'
        kinds = (
            TrainSample("t/click", (sha,), told, (), "Click it.", (click,), tuple(questions)),
            TrainSample(
                "t/type", (sha,), told, (Past("Click it.", (click,)),), "Type it.", (to_json(Type(content=first.name)),)
            ),
            TrainSample("t/none", (sha,), told, questions=tuple(questions)),
        )
        made.append(kinds[index % 3] if index % 3 < 2 and index >= 4 else kinds[0 if index < 4 else 2])
    return made, pngs


def parent(folder: Path) -> Path:
    """An untrained policy."""
    texts = [f'Click on the "{word}" button.' for word in WORDS] * 8 + list(WORDS) * 4
    build_tiny(POLICY, texts, 0, folder / "parent")
    return folder / "parent"


def job(folder: Path, count: int = 12, steps: int = 3, **train: object) -> Job:
    """A job whose files are in the folder; its parent must be made by `parent`."""
    made, pngs = samples(count)
    write_samples(folder / "samples.parquet", made)
    write_screenshots(folder / "screenshots.parquet", pngs)
    return Job(
        parent=folder / "parent",
        out=folder / "out",
        samples=folder / "samples.parquet",
        screenshots=folder / "screenshots.parquet",
        steps=steps,
        learning_rate=2e-3,
        policy=POLICY,
        train=TRAIN.model_copy(update=train),
    )
