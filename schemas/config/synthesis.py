"""The `synthesis` section of the config: production of new tasks, and their rollouts."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from schemas.config.section import Count, Section, Share, Whole
from schemas.registry import seam


class SynthesisConfig(Section):
    """New tasks, made of existing ones and verified before any training on them (docs/synthesis.md)."""

    on: bool = False
    """Whether every iteration begins with it; `flywheel tasks synthesize` does it once. Made tasks that were accepted
    are rolled out either way."""
    makers: Annotated[tuple[str, ...], Field(min_length=1)] = ("compose", "vary", "harden", "obfuscate", "chain")
    """The makers of tasks: those, `endpoint` (a served model), or `my_package.my_maker:MyMaker`. All but `compose` need
    an environment with linked pages, such as `site`."""
    proposals: Count = 20
    """Proposals of each maker in an iteration, for each environment."""
    reward: str = "reader"
    """Author of rewards from the words alone: `reader` (it reads the sentences of our own makers), `endpoint`, or
    `my_package.my_reward:MyReward`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each maker's own keys, under its name, and the reward maker's under `reward`."""
    near_misses: Count = 3
    """A reward counts only if it turns away at least so many states that nearly are the golden one."""
    max_steps: Annotated[int, Field(ge=1, le=1000)] = 100
    """The highest limit that a made task may have. A task is turned away if a player that does not know where to look
    needs more steps, with a margin, in any of several trajectories."""
    solver: Literal["explorer", "champion"] = "explorer"
    """The policy that tries accepted tasks."""
    tries: Whole = 8
    """Number of tries; 0 rolls nothing out, and success is not required."""
    solved_above: Share = 0.0
    """A task is turned away if at most this share of the tries succeeds: nothing would be learned from it yet."""
    solved_below: Share = 1.0
    """A task is turned away if at least this share succeeds: there is nothing left to learn."""

    @model_validator(mode="after")
    def _of_their_makers(self) -> "SynthesisConfig":
        if self.solved_above >= self.solved_below:
            raise ValueError(f"solved_above is {self.solved_above}, not below solved_below, {self.solved_below}")
        if self.model_fields_set:
            seam("curation.synthesis.makers:makers_of")(self)
        return self
