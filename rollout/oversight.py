"""Interactive annotation (UI-TARS-2, arXiv 2509.02544): a policy proposes each step, a person decides on it.

The sandbox performs the person's decision, so the visited states are those of the policy under the person's control.
The trajectory is rolled out, recorded and ended as any other.
"""

from collections.abc import Awaitable, Callable

from models.completion import Completion
from models.families.dialects import DIALECTS, format_action, format_reply
from models.policy import Context
from rollout.actor import Acts
from schemas.action import Action

PERSON = "person"
"""Actor of a step that a person chose, and kind of a trajectory that a person took part in."""

Decide = Callable[[Context, Completion], Awaitable[Completion]]


class Overseen:
    """An actor whose every step a person decides on.

    Args:
        actor: proposes the step.
        decide: returns the step for a context and a proposal; raises TrajectoryFailure to end the trajectory.
    """

    def __init__(self, actor: Acts, decide: Decide) -> None:
        self.kind, self.dialect, self.needs_elements = actor.kind, actor.dialect, actor.needs_elements
        self._actor, self._decide = actor, decide

    async def act(self, context: Context) -> Completion:
        """Return the decided step."""
        return await self._decide(context, await self._actor.act(context))


def by_person(name: str, thought: str, action: Action, dialect: str) -> Completion:
    """Turn a person's choice into a completion that replaces a proposal.

    Args:
        name: the person's name.
        thought, action: the person's thought and action.
        dialect: dialect of the proposing policy; a dialect whose replies are not UI-TARS text becomes the first of
            `DIALECTS`.
    """
    text = format_action(action, dialect if dialect in DIALECTS else DIALECTS[0])
    return Completion(
        text=format_reply(thought, text), version=name, actor=PERSON, thought=thought, action_text=text, action=action
    )
