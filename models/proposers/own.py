"""Proposers from the project's own policies: the explorer, and the policy at a higher temperature."""

from collections.abc import Sequence
from dataclasses import replace

from models.completion import Completion
from models.policy import Context
from models.proposers.proposer import Proposer, ProposerResources
from schemas.config.section import Positive, Section


class ExplorerProposer(Proposer[Section]):
    """The configured explorer, which draws again where it would repeat a failed action."""

    kind = "explorer"

    def __init__(self, options: Section, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self._explorer = resources.explorer()
        self.version, self.dialect = self._explorer.version, self._explorer.dialect
        self.needs_elements = self._explorer.needs_elements

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Returns the explorer's completions."""
        return self._explorer.act([redrawn(context, draw) for context in contexts], 1.0)


class ProposerPolicyOptions(Section):
    """`reflect.options.policy`."""

    temperature: Positive = 1.0
    """Temperature of the first draw on a screen; it rises by a tenth with each action to be avoided."""


class PolicyProposer(Proposer[ProposerPolicyOptions]):
    """The champion; as everywhere it sees pixels alone."""

    section = ProposerPolicyOptions

    def __init__(self, options: ProposerPolicyOptions, resources: ProposerResources) -> None:
        super().__init__(options, resources)
        self._policy = resources.champion()
        self.version, self.dialect = self._policy.version, self._policy.dialect
        self.max_concurrency = self._policy.max_concurrency

    def propose(self, contexts: Sequence[Context], temperature: float, draw: int) -> list[Completion]:
        """Samples the champion's completions."""
        hotter = self.options.temperature * (1 + 0.1 * draw)
        return self._policy.act([redrawn(context, draw) for context in contexts], hotter)


def redrawn(context: Context, draw: int) -> Context:
    """Returns the context with another seed for another draw."""
    return replace(context, seed=context.seed + 1_000_003 * draw)
