"""Replies that a random model of a real architecture said, and jobs that train it on them; shared by tests."""

from dataclasses import replace
from pathlib import Path

from learning.data.files import Rollout, write_rollouts
from learning.data.sample import Preference, write_preferences, write_screenshots
from learning.data.stream import StreamFolder
from learning.job import Job
from models.families.registry import family_of
from models.language_model import LanguageModel
from models.policy import Context
from models.random_vlm import build_random
from models.serving.local import TransformersModel
from schemas.config.training import GroupConfig, PpoConfig, PreferenceConfig
from schemas.observation import Observation, PastStep
from tests.unit.learning.chats import TRAIN, policy_of
from tests.unit.learning.samples import HEIGHT, WIDTH, WORDS, samples

SAID = "Thought: Wait.\nAction: wait()"
TEMPERATURE = 0.8


def model(folder: Path, kind: str) -> Path:
    """A random model of a kind."""
    if not (folder / kind).exists():
        build_random(kind, [f'Click on the "{word}" button.' for word in WORDS] * 8, 0, folder / kind)  # type: ignore[arg-type]
    return folder / kind


def rolled_out(
    directory: Path, count: int = 6, runner: LanguageModel | None = None, temperature: float = TEMPERATURE
) -> tuple[list[Rollout], dict[str, bytes]]:
    """What the model says of some screens; every second one follows a first step, whose screen is shown too."""
    made, pngs = samples(count)
    digests = list(pngs)
    if runner is None:
        runner = TransformersModel(directory)
        runner.model.float()
    policy, rollouts = policy_of(directory.name), list[Rollout]()
    family = family_of(policy, directory)
    for at, sample in enumerate(made):
        shown = (digests[at - 1], digests[at]) if at % 2 else (digests[at],)
        screens = [Observation(pngs[digest], WIDTH, HEIGHT, "") for digest in shown]
        turns = (PastStep("Wait.", "wait()", screens[0]),) if at % 2 else ()
        chat = family.chat(Context(sample.instruction, turns, screens[-1], at))
        (completion,) = runner.generate([chat], [at], temperature, policy.max_new_tokens)
        said = (SAID,) * len(turns)
        rollouts.append(
            Rollout(
                f"t{at}",
                len(turns),
                sample.task_id,
                shown,
                sample.instruction,
                said,
                completion.text,
                completion.token_ids,
                completion.logprobs,
                temperature,
                (-1.0) ** at,
            )
        )
    return rollouts, pngs


def valued(rollout: Rollout, at: int) -> Rollout:
    """The step of a trajectory of its own, of which every second one succeeded; two to a group."""
    won = at % 2 == 0
    return replace(rollout, step=0, group_id=str(at // 2), reward=float(won), correct=won, advantage=0.0)


def preferences(rollouts: list[Rollout]) -> list[Preference]:
    """A preferred click and a rejected one for each context."""
    return [
        Preference(
            f"p{at}",
            rollout.task_id,
            rollout.screenshots,
            rollout.instruction,
            rollout.past_replies,
            f"Thought: Here.\nAction: click(start_box='({100 * at},250)')",
            "Action: wait()",
        )
        for at, rollout in enumerate(rollouts)
    ]


def streamed(folder: Path, kind: str, method: str = "grpo", batches: int = 3) -> tuple[Job, StreamFolder]:
    """A job that takes one step on each batch of a stream; later batches hold replies of age 1, too."""
    ppo = PpoConfig(epochs=1.0, value_steps=3, policy_lambda=1.0, most_mismatch=None)
    group = GroupConfig(epochs=1.0, most_mismatch=None)  # all replies are the parent's, those of age 0, too
    plan = job(folder, kind, method, steps=1, group=group, ppo=ppo)
    rollouts, pngs = rolled_out(plan.parent)
    if method == "ppo":
        rollouts = [valued(rollout, at) for at, rollout in enumerate(rollouts)]
    stream = StreamFolder(folder / "stream")
    for number in range(batches):
        aged = [replace(rollout, age=min(number, at % 2)) for at, rollout in enumerate(rollouts)]
        stream.put(aged[number:], pngs, {})
    first = {"samples": stream.rollouts(1), "screenshots": stream.screenshots(1)}
    return plan.model_copy(update={"stream": folder / "stream", **first}), stream


def job(folder: Path, kind: str, method: str, steps: int = 3, count: int = 6, **train: object) -> Job:
    """A job whose files are in the folder, all samples in every batch unless told otherwise."""
    rollouts, pngs = rolled_out(model(folder, kind), count)
    write_screenshots(folder / "screenshots.parquet", pngs)
    samples_file = folder / f"{method}.parquet"
    if method == "grpo":
        write_rollouts(samples_file, rollouts)
    elif method == "ppo":
        write_rollouts(samples_file, [valued(rollout, at) for at, rollout in enumerate(rollouts)])
    else:
        write_preferences(samples_file, preferences(rollouts))
    wanted = {"method": method, "batch": 6, "warmup": 0, "decay": 0.0, "group": GroupConfig(), **train}
    return Job(
        parent=folder / kind,
        out=folder / f"out-{method}",
        samples=samples_file,
        screenshots=folder / "screenshots.parquet",
        steps=steps,
        learning_rate=2e-3,
        policy=policy_of(kind),
        train=TRAIN.model_copy(update={"preference": PreferenceConfig(), **wanted}),
    )
