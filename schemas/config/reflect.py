"""The `reflect` section of the config: corrections of failed trajectories, and their cost."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from schemas.config.section import Count, Section
from schemas.registry import seam


class ReflectConfig(Section):
    """Corrections of failed trajectories, each seen to succeed before it is learned from (docs/reflect.md)."""

    on: bool = False
    """Whether an iteration goes back to its failures; for methods that imitate or prefer: `sft`, `rft`, `dpo`."""
    trajectories: Count = 100
    """How many failed trajectories of an iteration are gone back to at most: the policy's own before the explorer's,
    the tasks in turn."""
    steps: Count = 1500
    """How many sandbox steps that may take in an iteration, replayed ones included."""
    attempts: Count = 8
    """How often a state is tried before an earlier one is. More finds rarer corrections, and costs steps."""
    ahead: Count = 3
    """How many steps a correction may take, itself the first: one that needs many more corrects another step."""
    people: bool = True
    """Whether people's corrections are tried in a sandbox, `attempts` times at most, before they are used for training.
    It costs sandbox steps only where there is something to try, and needs no `reflect.on`."""
    recover: bool = True
    """Whether the error itself is performed again and recovered from, where it did not end the trajectory."""
    proposers: Annotated[tuple[str, ...], Field(min_length=1)] = ("policy", "precedent")
    """Proposers of corrections, in turn: `policy` (the champion at a higher temperature, once there is a trained one),
    `precedent` (successful actions of the task on other seeds, done to the like elements; else the explorer),
    `explorer` (untried elements of the page), `endpoint` (a served model), or `my_package.my_proposer:MyProposer`."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each proposer's own keys, under its name: `reflect.options.endpoint.url`."""

    @model_validator(mode="after")
    def _of_their_proposers(self) -> "ReflectConfig":
        if self.model_fields_set:
            seam("models.proposers.proposer:PROPOSERS").options(self.proposers, self.options)
        return self
