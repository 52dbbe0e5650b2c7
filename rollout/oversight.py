"""Interactive annotation (UI-TARS-2, arXiv 2509.02544): a policy proposes each step, a person decides on it.

What is performed is what was decided, so the states that are visited are those of the policy under the person's hand;
the trajectory is rolled out, recorded and ended as any other.
"""

from collections.abc import Awaitable, Callable

from models.completion import Completion
from models.families.dialects import DIALECTS, format_action, format_reply
from models.policy import Context
from rollout.actor import Acts
from schemas.action import Action

PERSON = "person"
"""The actor of a step that a person chose, and the kind of a trajectory that a person had a hand in."""

Decide = Callable[[Context, Completion], Awaitable[Completion]]


class Overseen:
    """An actor each of whose steps somebody decides on.

    Args:
        actor: who proposes.
        decide: what is done at a context, given what was proposed; raises TrajectoryFailure to end the trajectory.
    """

    def __init__(self, actor: Acts, decide: Decide) -> None:
        self.kind, self.dialect, self.needs_elements = actor.kind, actor.dialect, actor.needs_elements
        self._actor, self._decide = actor, decide

    async def act(self, context: Context) -> Completion:
        """What was decided."""
        return await self._decide(context, await self._actor.act(context))


def by_person(name: str, thought: str, action: Action, dialect: str) -> Completion:
    """What a person does in the place of a proposal, as a completion.

    Args:
        name: whose it is.
        thought, action: what they thought and do.
        dialect: of the policy that proposed; of one whose replies are no text of UI-TARS, the first is taken.
    """
    text = format_action(action, dialect if dialect in DIALECTS else DIALECTS[0])
    return Completion(
        text=format_reply(thought, text), version=name, actor=PERSON, thought=thought, action_text=text, action=action
    )
