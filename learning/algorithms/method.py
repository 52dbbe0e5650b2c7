"""Defines the record of a training method: its data source, config section, objective and learning rates.

A built-in record is in the module of its method (`learning.algorithms.grpo:METHOD`). The config names a custom record
by its dotted path (`train.method = "my_package.my_method:METHOD"`), with its settings in `train.options`. Code reads
properties of a method from its record, never from its name.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schemas.config.training import EpochSection, StepSection, TrainConfig
from schemas.failure import UsageError
from schemas.registry import Registry, options_of

if TYPE_CHECKING:  # so that a config can name methods without loading torch
    from learning.algorithms.objective import Objective
    from learning.engines.engine import Engine
    from learning.job import Job

Optimizer = Literal["muon", "adamw"]
"""Optimiser: `muon` for the small policy, `adamw` for other models; each has learning rates of its own."""
LORA_RATE = 10.0
"""Factor from the learning rate of all weights to that of adapters (Schulman et al., LoRA Without Regret, 2025)."""


class DataSource(StrEnum):
    """Kinds of data that a method reads from the lake."""

    ACCEPTED = "accepted"
    """Samples: the steps of accepted trajectories, and screens of failures for grounding."""
    FAILURES = "failures"
    """Samples: screens and actions of failed trajectories, learned without imitating them."""
    GROUPS = "groups"
    """Rollouts of the iteration's groups, with advantages from the rewards of their group."""
    TRAJECTORIES = "trajectories"
    """Rollouts of the same groups, with a reward for every reply."""
    PAIRS = "pairs"
    """Preferences: two replies to one context."""
    REPLIES = "replies"
    """The policy's own replies of the iteration, with the log probabilities of a teacher."""
    PAGES = "pages"
    """Rendered pages, for a base (`tasks.pretrain.train`)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Number of steps, learning rate and trainer settings of a training."""

    steps: int
    learning_rate: float
    train: TrainConfig
    """The trainer's settings, with the method's batch, warmup and decay."""

    @property
    def positions(self) -> int:
        """Counts all samples of the training, with repetitions."""
        return self.steps * self.train.batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Record of a training method."""

    source: DataSource | Callable[..., Any]
    """Data source, or a function of config, lake and recipe that returns a `tasks.shared.material.TrainingMaterial`."""
    read: Callable[[Path], Sequence[Any]]
    """Reads the samples that were written for the trainer; each has a `weight`."""
    objective: "Callable[[Job, Engine], Objective]"
    section: str = ""
    """The section of `train` with the method's settings; empty for `train` itself or, with `options`, for
    `train.options`."""
    options: type[EpochSection] | type[StepSection] | None = None
    """Type of the section `train.options`, for a custom method."""
    rates: Mapping[Optimizer, float] = field(default_factory=dict)
    """Learning rates by optimiser, used if the config names none."""
    first_rate: float | None = None
    """Learning rate of an untrained small policy in its first training."""
    alone: str = "the method takes each reply by itself"
    """Reason why each reply is trained in a sequence of its own; empty if the method trains on the slices of
    trajectories with `policy.context=fold` (`learning.data.slices`)."""
    in_groups: bool = False
    """Whether the method needs several trajectories of the same task and seed."""

    streams: bool = False
    """Whether the samples may come as a stream while the method trains."""
    networks: Callable[[TrainConfig], int] = lambda train: 1
    """Counts the networks that are trained; `flywheel plan` computes their memory."""

    @property
    def compares(self) -> bool:
        """Whether each step compares log-probs with those of the start, which takes an additional forward pass."""
        return self.source in (DataSource.GROUPS, DataSource.TRAJECTORIES, DataSource.PAIRS)

    @property
    def reads_logprobs(self) -> bool:
        """Whether the method trains on the behaviour log probabilities of sampled tokens."""
        return self.streams or self.source is DataSource.REPLIES

    @property
    def corrects(self) -> bool:
        """Whether the method learns from corrections of failed trajectories; a method with its own material may."""
        return not isinstance(self.source, DataSource) or self.source in (DataSource.ACCEPTED, DataSource.PAIRS)

    def settings(self, train: TrainConfig) -> EpochSection | StepSection:
        """Returns the method's section of the config.

        Raises:
            UsageError: `train.options` has an unknown key, or any key for a method without options.
        """
        if self.options is not None:
            return options_of(self.options, train.options, "train.options")
        if train.options:
            raise UsageError(f"`train.options`: method {train.method} has none.", "Remove them.")
        return getattr(train, self.section) if self.section else train

    def schedule(
        self, train: TrainConfig, samples: int, optimizer: Optimizer, first: bool = False, random: bool = False
    ) -> Schedule:
        """Plans a training on a number of samples.

        The small policy takes more steps in a lake's first training (`first`), and another rate too if it then has
        `random` weights.

        A method that counts epochs makes few steps, and the next training continues from its result. So its rate stays
        constant, as in DAPO.
        """
        chosen = self.settings(train)
        first = first and optimizer == "muon" and chosen is train
        rate = self.rate(train, optimizer, first and random)
        if isinstance(chosen, EpochSection):
            steps = max(1, math.ceil(samples * chosen.epochs / chosen.batch))
            steady = {"batch": chosen.batch, "warmup": steps // 10, "decay": 0.0}
            return Schedule(steps, rate, train.model_copy(update=steady))
        return Schedule(train.first if first else chosen.steps, rate, train)

    def rate(self, train: TrainConfig, optimizer: Optimizer, first: bool = False) -> float:
        """Returns the configured learning rate, or else the method's rate for this optimiser.

        Raises:
            UsageError: there is no rate.
        """
        chosen = self.settings(train)
        if first and (found := train.learning_rate_first or self.first_rate):
            return found
        if chosen.learning_rate is not None:
            return chosen.learning_rate
        if optimizer not in self.rates:
            key = "train.options" if self.options else f"train.{self.section}".rstrip(".")
            raise UsageError(
                f"`{key}.learning_rate`: {train.method} has no rate for {optimizer}.", "Name one in the config."
            )
        return self.rates[optimizer] * (LORA_RATE if train.lora.rank else 1.0)


METHODS = Registry(
    "train.method",
    Method,
    {
        name: f"learning.algorithms.{name}:METHOD"
        for name in ("sft", "ct", "rft", "grpo", "ppo", "dpo", "opd", "pretrain")
    },
)


def method_of(train: TrainConfig) -> Method:
    """Returns the record of the configured method; raises UsageError that lists the known methods."""
    return METHODS.instance_of(train.method)
