"""Roll out under a reviewer's control: a policy proposes each step, and a reviewer decides (UI-TARS-2, arXiv
2509.02544).

The sandbox performs the reviewer's decision. The trajectory is rolled out and recorded like any other trajectory.
"""

from collections.abc import Awaitable, Callable

from models.completion import Completion
from models.families.dialects import DIALECTS, format_action, format_reply
from models.policy import Context
from rollout.actor import Acts
from schemas.action import Action

PERSON = "person"
"""Actor of steps that a reviewer chose, and policy of trajectories of live sessions."""

Decide = Callable[[Context, Completion], Awaitable[Completion]]


class Overseen:
    """An actor whose steps a reviewer accepts or replaces.

    Args:
        actor: the actor that proposes each step.
        decide: returns the step for a context and a proposal. It raises TrajectoryFailure to end the trajectory.
    """

    def __init__(self, actor: Acts, decide: Decide) -> None:
        self.kind, self.dialect, self.needs_elements = actor.kind, actor.dialect, actor.needs_elements
        self._actor, self._decide = actor, decide

    async def act(self, context: Context) -> Completion:
        """Return the step that the reviewer decided on."""
        return await self._decide(context, await self._actor.act(context))


def by_person(name: str, thought: str, action: Action, dialect: str) -> Completion:
    """Convert a reviewer's choice to a completion that replaces a proposal.

    Args:
        name: name of the reviewer.
        thought: the reviewer's thought.
        action: the reviewer's action.
        dialect: dialect of the proposing policy. The first of `DIALECTS` replaces a dialect whose replies are not
            UI-TARS text.
    """
    text = format_action(action, dialect if dialect in DIALECTS else DIALECTS[0])
    return Completion(
        text=format_reply(thought, text), version=name, actor=PERSON, thought=thought, action_text=text, action=action
    )
