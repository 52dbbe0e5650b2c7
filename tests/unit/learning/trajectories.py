"""Trajectories of the untrained small policy, for tests of learners that take whole trajectories."""

from dataclasses import replace
from pathlib import Path

from learning.data.files import Rollout, write_rollouts
from learning.data.sample import write_screenshots
from learning.job import Job
from models.families.family import ModelFamily
from models.policy import Context
from models.tiny.generator import TinyModel
from schemas.config.training import PpoConfig
from schemas.observation import Observation
from tests.unit.learning.samples import HEIGHT, POLICY, TRAIN, WIDTH, samples


def trajectories(folder: Path, count: int) -> tuple[list[Rollout], dict[str, bytes]]:
    """Trajectories of two steps, two to a group: those that are asked for one of two names succeed."""
    made, pngs = samples(3 * count)
    shown = [made[at] for at in range(0, len(made), 3)][:count]
    model = TinyModel(folder / "parent")
    screens = [Observation(pngs[sample.screenshots[0]], WIDTH, HEIGHT, "") for sample in shown]
    family = ModelFamily(POLICY)
    chats = [family.messages(Context(one.instruction, (), seen, 0)) for one, seen in zip(shown, screens, strict=True)]
    completions = model.generate(chats, list(range(count)), 1.0, POLICY.max_new_tokens)
    rollouts = []
    for at, (sample, made_of) in enumerate(zip(shown, completions, strict=True)):
        won = won_by(sample.instruction)
        first = Rollout(
            f"t{at}", 0, sample.task_id, sample.screenshots, sample.instruction, (),
            made_of.text, made_of.token_ids, made_of.logprobs, group_id=str(at // 2), correct=won,
        )  # fmt: skip
        rollouts += [first, replace(first, step=1, reward=float(won))]
    return rollouts, pngs


def won_by(instruction: str) -> bool:
    """Whether a trajectory with this instruction succeeds."""
    return '"ok"' in instruction or '"submit"' in instruction


def ppo_job(
    folder: Path, out: Path, steps: int = 4, count: int = 16, train: dict[str, object] | None = None, **ppo: float | str
) -> Job:
    """A job whose files are in `out`; the parent of `samples.parent` must be in `folder`."""
    out.mkdir(parents=True, exist_ok=True)
    rollouts, pngs = trajectories(folder, count)
    write_rollouts(out / "samples.parquet", rollouts)
    write_screenshots(out / "screenshots.parquet", pngs)
    config = PpoConfig.model_validate({"batch": 8, "learning_rate": 2e-3, **ppo})
    wanted = {"method": "ppo", "ppo": config, "batch": config.batch, "warmup": 0, "decay": 0.0, **(train or {})}
    return Job(
        parent=folder / "parent",
        out=out / "out",
        samples=out / "samples.parquet",
        screenshots=out / "screenshots.parquet",
        steps=steps,
        learning_rate=config.learning_rate,
        policy=POLICY,
        train=TRAIN.model_copy(update=wanted),
    )
