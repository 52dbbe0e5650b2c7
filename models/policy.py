"""The seam between a policy and whatever plays it: contexts in, replies out, in batches."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.action import Action
from schemas.observation import Observation, Turn


@dataclass(frozen=True, slots=True)
class Context:
    """What a policy knows when it acts: the instruction, its own past steps, and the screen now."""

    instruction: str
    turns: tuple[Turn, ...]
    observation: Observation
    seed: int
    """Seeds the draw, so that a play can be played again."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a policy answered. `action` is None if the text held none; then `error` says why."""

    text: str
    thought: str
    action_text: str
    action: Action | None
    error: str | None = None
    token_ids: tuple[int, ...] | None = None
    logprobs: tuple[float, ...] | None = None
    failure: str = ""
    """Why there is no answer, through no fault of the policy; then the rest is empty."""
    version: str | None = None
    """The policy version that answered, where it may change between two replies."""


class Policy(ABC):
    """Anything that turns contexts into thoughts and actions."""

    version: str
    dialect: str
    needs_elements: bool = False
    """Whether it must be shown the page's elements (the explorer)."""
    side_by_side: int = 0
    """How many calls may run at once, with one context each (a server makes its own batches); 0: batches, in turn."""

    @abstractmethod
    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Reply]:
        """One reply per context, in order; temperature 0 is greedy. Never raises for what a model may say."""
