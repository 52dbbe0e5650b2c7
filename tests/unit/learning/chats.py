"""Samples of different length and number of screens, and jobs that train a random model on them; shared by tests."""

import random
from pathlib import Path

from learning.data.sample import Past, TrainSample, write_samples, write_screenshots
from learning.job import Job
from models.random_vlm import build_random
from schemas.config.policy import PolicyConfig
from schemas.config.training import TrainConfig
from tests.unit.learning.samples import WORDS, samples

POLICY = PolicyConfig(history_images=2, max_new_tokens=6)
TRAIN = TrainConfig(batch=8, warmup=1, processes=1, learning_rate=1e-3)


def policy_of(kind: str) -> PolicyConfig:
    """The config of a random policy of a kind. A random Qwen3.5 has no template of its own that would name a family."""
    return POLICY.model_copy(update={"family": "thousandths"}) if kind.startswith("qwen3_5") else POLICY


def varied(count: int, seed: int = 0) -> tuple[list[TrainSample], dict[str, bytes]]:
    """Samples with up to two screens and up to nine past steps."""
    made, pngs = samples(count)
    draw, digests = random.Random(seed), list(pngs)
    longer = []
    for sample in made:
        past = tuple(
            Past(f"Go to {draw.choice(WORDS)}.", ('{"type":"wait"}',)) for _ in range(draw.choice((0, 0, 1, 3, 9)))
        )
        shown = (draw.choice(digests), *sample.screenshots) if past else sample.screenshots
        longer.append(
            TrainSample(
                sample.task_id, shown, sample.instruction, past, sample.thought, sample.actions, sample.questions
            )
        )
    return longer, pngs


def job(
    folder: Path, kind: str, count: int = 12, steps: int = 3, parent: dict[str, int] | None = None, **train: object
) -> Job:
    """A job whose files are in the folder, its parent a random model of a kind."""
    if not (folder / kind).exists():
        build_random(kind, [f'Click on the "{word}" button.' for word in WORDS] * 8, 0, folder / kind, **(parent or {}))  # type: ignore[arg-type]
    made, pngs = varied(count)
    write_samples(folder / "samples.parquet", made)
    write_screenshots(folder / "screenshots.parquet", pngs)
    return Job(
        parent=folder / kind,
        out=folder / "out",
        samples=folder / "samples.parquet",
        screenshots=folder / "screenshots.parquet",
        steps=steps,
        learning_rate=1e-3,
        policy=policy_of(kind),
        train=TRAIN.model_copy(update=train),
    )
