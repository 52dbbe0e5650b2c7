"""Defines the interface between a policy and rollouts: contexts in, completions out, in batches."""

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
    """Input of a policy when it acts: the instruction, the policy's past steps, and the current screen."""

    instruction: str
    turns: tuple[PastStep, ...]
    observation: Observation
    seed: int
    """Seeds the sampling, so that a rollout can be repeated."""
    task_id: str = ""
    """Id of the task; only a proposer of corrections reads it."""
    thinks: bool = True
    """Whether the policy thinks before the action."""
    avoid: tuple[Action, ...] = ()
    """Actions that are known to fail on this screen; only a proposer of corrections reads them."""
    hint: Action | None = None
    """Next action of the environment's own script; only for policies that need hints."""


class Policy(ABC):
    """Anything that turns contexts into thoughts and actions."""

    version: str
    dialect: str
    kind: Literal["policy", "explorer"] = "policy"
    """Kind of actor that is recorded with the policy's steps."""
    needs_elements: bool = False
    """Whether the policy needs the page's elements."""
    needs_hints: bool = False
    """Whether the policy needs the actions of the environment's own scripts. A trained policy never gets them."""
    max_concurrency: int = 0
    """Maximum calls at once, with one context each (a server makes its own batches); 0 means one batch at a time."""
    remote: bool = False
    """Whether another process answers, so that an ending actor does not wait for it."""

    def begin(self) -> None:  # noqa: B027  (most have nothing to do)
        """Takes over from another policy whose calls may still be in flight.

        From then on, this policy's weights answer the calls of both policies, and completions name these weights.
        """

    @abstractmethod
    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        """Returns one completion per context, in order; temperature 0 is greedy. No text of a model makes it raise."""


class Explorer(Policy):
    """A policy without a model, which starts the first iteration from nothing; `version` names its code."""

    kind = "explorer"


EXPLORERS = Registry(
    "collect.explorer",
    Explorer,
    {"page": "models.explorer:PageExplorer", "scripted": "models.explorer:ScriptedExplorer"},
)
"""Explorers by name; each is made without arguments."""
