"""Trajectories whose screens fold, and jobs that train a random model on them; shared by tests."""

from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa

from learning.data.files import Rollout, write_rollouts
from learning.data.sample import _SAMPLES, Past, Screenshots, TrainSample, write_sample_batches, write_screenshots
from learning.engines.fsdp.chats import Chats
from learning.job import Job
from models.families.registry import family_of
from schemas.action import Action, Type, Wait, to_json
from schemas.config.training import GroupConfig, PpoConfig
from tests.unit.learning.chats import POLICY, TRAIN
from tests.unit.learning.replies import model
from tests.unit.learning.samples import HEIGHT, WIDTH, WORDS, samples

FOLD: dict[str, Any] = {"context": "fold", "live_images": 3, "fold_images": 2, "history_images": 1}
LENGTHS = (6, 5)
"""Steps of the trajectories."""
SLICES = ([0, 1, 2], [3, 4], [5], [6, 7, 8], [9, 10])
"""Numbers of the replies between two folds."""
OTHERWISE = 7
"""Number of a reply that a model gave in other tokens than its text has."""


def steps(number: int) -> list[tuple[str, Action]]:
    """Thoughts and actions of a trajectory."""
    words = [WORDS[(number + at) % len(WORDS)] for at in range(LENGTHS[number])]
    return [(f"Go to {word}.", Wait() if at % 2 else Type(content=word)) for at, word in enumerate(words)]


def folded_job(folder: Path, kind: str, method: str, **train: Any) -> Job:
    """A job on two trajectories, with samples to imitate for `sft` and rollouts for other methods."""
    directory = model(folder, kind)
    policy = POLICY.model_copy(update={"family": "thousandths", **FOLD})
    family, rule = family_of(policy, directory), policy.context_rule
    _, pngs = samples(max(LENGTHS))
    write_screenshots(folder / "folded-screenshots", pngs)
    digests = list(pngs)
    imitated, rollouts, places = list[TrainSample](), list[Rollout](), list[int]()
    for number, length in enumerate(LENGTHS):
        done = steps(number)
        replies = [family.reply(thought, [action], (WIDTH, HEIGHT)) for thought, action in done]
        for at in range(length):
            shown = tuple(digests[rule.folded(at + 1) : at + 1])
            history = tuple(Past(thought, (to_json(action),)) for thought, action in done[:at])
            imitated.append(TrainSample("t/a", shown, "Do it.", history, done[at][0], (to_json(done[at][1]),)))
            places.append(10 * number + rule.folded(at + 1))
            rollouts.append(Rollout(f"t{number}", at, "t/a", shown, "Do it.", tuple(replies[:at]), replies[at]))
    file = folder / f"folded-{method}"
    if method == "sft":
        positions = {place: order for order, (place, _) in enumerate(groupby(places))}
        rows = [asdict(one) | {"positions": [positions[place]]} for one, place in zip(imitated, places, strict=True)]
        write_sample_batches(file, [pa.RecordBatch.from_pylist(rows, _SAMPLES)])
    else:
        chats = Chats(directory, policy, Screenshots(folder / "folded-screenshots"), 0)
        write_rollouts(file, [_given(chats, one, at) for at, one in enumerate(rollouts)])
    chosen = {
        "ppo": PpoConfig(value_steps=0, positive=0.3, most_mismatch=None),
        "group": GroupConfig(most_mismatch=None),
    }
    settings = TRAIN.model_copy(update={"method": method, "batch": 2, "warmup": 0, "decay": 0.0, **chosen, **train})
    return Job(
        parent=directory,
        out=folder / f"folded-out-{method}",
        samples=file,
        screenshots=folder / "folded-screenshots",
        steps=3,
        learning_rate=1e-3,
        policy=policy,
        train=settings,
    )


def _given(chats: Chats, rollout: Rollout, at: int) -> Rollout:
    """The reply with its tokens, as a model gave it."""
    targets = chats.encode(rollout).targets
    tokens = targets[targets >= 0].tolist()
    if at == OTHERWISE:
        encode = chats.processor.tokenizer.encode
        tokens = [one for sign in rollout.reply for one in encode(sign, add_special_tokens=False)] + tokens[-1:]
    first = rollout.trajectory_id == "t0"
    ended = rollout.step + 1 == LENGTHS[int(rollout.trajectory_id[1:])]
    return replace(
        rollout,
        token_ids=tuple(tokens),
        logprobs=tuple(-4.0 - 0.1 * (number % 3) for number in range(len(tokens))),
        temperature=0.8,
        advantage=1.0 if first else -1.0,
        reward=float(first and ended),
        correct=first,
        group_id="g",
    )
