"""The `think` section of the config: thoughts of steps that have none, and their cost."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from schemas.config.section import Count, Section, Share
from schemas.registry import seam


class ThinkConfig(Section):
    """Thoughts of accepted steps that have none of their own (docs/thoughts.md)."""

    thinkers: tuple[str, ...] = ("template",)
    """The thinkers, in order: the first whose thought is kept. `policy` (the champion, which is not shown the action: a
    thought is kept where it led to the same one), `endpoint` (a served model, which is shown the action or not),
    `rules` (from the page's elements), `template` (a few words for each kind of action), or
    `my_package.my_thinker:MyThinker`. None: steps stay without."""
    options: dict[str, dict[str, Any]] = {}  # noqa: RUF012  (pydantic copies it)
    """Each thinker's own keys, under its name: `think.options.endpoint.url`."""
    tries: Count = 4
    """How often a model is asked about a step, until a thought is kept."""
    most: Count = 20_000
    """Maximum requests to models in an iteration, all tries counted; the remaining steps then go to the next
    thinker."""
    longest: Annotated[int, Field(ge=20)] = 800
    """Characters of a thought; a longer one is turned away."""
    keep_without: Share = 0.0
    """Share of the trajectories that supervised training reads without their thoughts, under the prompt that asks for
    the action alone: a policy trained so can act either way (`policy.thoughts`)."""

    @model_validator(mode="after")
    def _of_their_thinkers(self) -> "ThinkConfig":
        if self.model_fields_set:
            seam("models.thinkers.thinker:THINKERS").options(self.thinkers, self.options)
        return self
