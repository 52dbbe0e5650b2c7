"""Step limits."""

from dataclasses import dataclass
from typing import Any


@dataclass
class RunnerConfig:
    """What a runner is told."""

    agent: str
    model_name: str
    eval_mode: str = "grounded"

    def get_max_steps(self, task: Any = None) -> int:
        """The limit of a task, with more for the answer sheet."""
        return {"L1": 15, "L2": 30}[task.difficulty] + (
            15 if self.eval_mode == "grounded" and task.answer_fields else 0
        )
