"""The local judge: a small network trained on verified trajectories that runs in this process."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors.torch import load

from models.judges.judge import Judge, JudgeCase, Judgement
from models.judges.local.features import features_of, stacked
from models.judges.local.network import JudgeNet, numbered
from schemas.config.section import Section
from schemas.failure import FlywheelError

CONFIG, WEIGHTS = "judge.json", "model.safetensors"
TOGETHER = 64


class LocalConfig(BaseModel):
    """Config file in the folder of the weights."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kinds: list[str]
    """Kinds of elements that the judge's network distinguishes."""
    numbers: int
    """Length of `Features.numbers`."""
    scale: float
    shift: float
    """Calibration: the probability is sigmoid(scale * logit + shift) (Platt, 1999), fitted on validation
    trajectories."""
    threshold: float
    """Score with the best F1 on validation trajectories."""
    learned: list[str]
    """Tasks and seeds on which the judge was trained or calibrated, as `task_id seed`."""


class LocalOptions(Section):
    """`judge.options` of `judge.kind=local`."""

    checkpoint: str = Field(min_length=1)
    """Folder of a judge from `flywheel judge --train`."""


class LocalJudge(Judge[LocalOptions]):
    """Sees the last screens, the instruction and the actions, as any judge does, and never the page."""

    section = LocalOptions
    reached = frozenset({"checkpoint"})  # the name has the hash of its files

    def __init__(self, options: LocalOptions, tries: int = 1) -> None:
        super().__init__(options, tries)
        config, weights = _read(Path(options.checkpoint).expanduser())
        self.name = f"local-{hashlib.sha256(config + weights).hexdigest()[:12]}"
        try:
            self.config = LocalConfig.model_validate_json(config)
            self._net = JudgeNet(self.config.kinds, self.config.numbers)
            self._net.load_state_dict(load(weights))
        except (ValidationError, RuntimeError, ValueError) as error:
            problem = f"`judge.options.checkpoint`: {options.checkpoint} holds no judge: {str(error).splitlines()[0]}."
            raise FlywheelError(problem, "Train one with `flywheel judge --train NAME`.") from error
        self._net.eval()
        self._learned = set(self.config.learned)

    def knows(self, task_id: str, seed: int) -> bool:
        """Checks whether the judge learned from this task and seed."""
        return page_of(task_id, seed) in self._learned

    def _judge(self, cases: Sequence[JudgeCase]) -> list[Judgement]:
        scores: list[float] = []
        for at in range(0, len(cases), TOGETHER):
            batch = numbered(stacked([features_of(case) for case in cases[at : at + TOGETHER]]))
            with torch.inference_mode():
                logits = self._net(batch)
            scores += torch.sigmoid(self.config.scale * logits + self.config.shift).tolist()
        return [Judgement(score, f"{score:.2f} by instruction, actions and screens") for score in scores]

    def _score(self, case: JudgeCase) -> Judgement:
        return self._judge([case])[0]


def page_of(task_id: str, seed: int) -> str:
    """Names a task with a seed in the form of `learned`."""
    return f"{task_id} {seed}"


def _read(folder: Path) -> tuple[bytes, bytes]:
    try:
        return (folder / CONFIG).read_bytes(), (folder / WEIGHTS).read_bytes()
    except OSError as error:
        raise FlywheelError(
            f"`judge.options.checkpoint`: {folder} holds no judge: {error.strerror}.",
            "Train one with `flywheel judge --train NAME`, which prints its folder.",
        ) from error
