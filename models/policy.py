"""The seam between a policy and whatever rolls it out: contexts in, completions out, in batches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from models.completion import Completion
from schemas.action import Action
from schemas.observation import Observation, PastStep
from schemas.registry import Registry


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy knows when it acts: the instruction, its own past steps, and the screen now."""

    instruction: str
    turns: tuple[PastStep, ...]
    observation: Observation
    seed: int
    """Seeds the sampling, so that a trajectory can be rolled out again."""
    task_id: str = ""
    """Only a proposer of corrections looks at it."""
    thinks: bool = True
    """Whether a thought is asked for before the action."""
    avoid: tuple[Action, ...] = ()
    """Actions that are known to lead nowhere from this screen; only a proposer of corrections looks at them."""


class Policy(ABC):
    """Anything that turns contexts into thoughts and actions."""

    version: str
    dialect: str
    kind: Literal["policy", "explorer"] = "policy"
    """What its steps are recorded as."""
    needs_elements: bool = False
    """Whether it must be shown the page's elements."""
    max_concurrency: int = 0
    """How many calls may run at once, with one context each (a server makes its own batches); 0: batches, in turn."""

    def begin(self) -> None:  # noqa: B027  (most have nothing to do)
        """Is called where it takes over from another policy whose calls may still be under way: from then on calls of
        both are answered by its weights, and completions name them."""

    @abstractmethod
    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """One completion per context, in order; temperature 0 is greedy. Never raises for what a model may generate."""


class Explorer(Policy):
    """A policy without a model, which starts the wheel from nothing; `version` names its code."""

    kind = "explorer"


EXPLORERS = Registry("collect.explorer", Explorer, {"page": "models.explorer:PageExplorer"})
"""Explorers by name; each is made without arguments."""
