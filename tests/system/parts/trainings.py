"""Small trainings that are started as a stage starts them, in any of the ways there are."""

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from learning.job import Job, TrainerReport
from schemas.config.training import TrainConfig
from tasks.launching.trainer_process import TrainerProcess

HUNG_S = 3.0
PAGE = Path(__file__).parents[3] / "docs" / "launchers.md"


def on(plan: Job, out: str, **train: object) -> Job:
    """The same training, started otherwise."""
    fields = {**plan.train.model_dump(), "hung_s": HUNG_S, **train}
    return plan.model_copy(update={"out": plan.out.with_name(out), "train": TrainConfig.model_validate(fields)})


def trained(
    plan: Job, meanwhile: Callable[[TrainerReport], None] = lambda message: None
) -> tuple[TrainerReport, list[TrainerReport]]:
    """What a training came to, and all it said; what happens meanwhile is done at every message."""
    folder, heard = plan.out.with_name(f"{plan.out.name}-work"), list[TrainerReport]()
    folder.mkdir()

    def hear(message: TrainerReport) -> None:
        heard.append(message)
        meanwhile(message)

    with TrainerProcess(plan, folder) as trainer:
        return trainer.listen(hear), heard


def same(one: Job, two: Job) -> bool:
    """Whether two trainings ended with the same weights, bit for bit."""
    weights = [load_file(plan.out / "model.safetensors") for plan in (one, two)]
    return all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def template(holding: str, **replaced: str) -> dict[str, Any]:
    """The `train.machines` of the documents whose command holds some words, with parts of its commands replaced."""
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if holding in block]
    machines = tomllib.loads(found)["train"]["machines"]
    for key in ("command", "cancel"):
        for old, new in replaced.items():
            machines[key] = machines[key].replace(old, new)
    return machines
