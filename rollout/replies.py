"""Make replies that no policy samples: a reviewer's, and recorded ones.

Under a reviewer's control: a policy proposes each step, and a reviewer decides (UI-TARS-2, arXiv 2509.02544).

The sandbox performs the reviewer's decision. The trajectory is rolled out and recorded like any other trajectory.

Recorded steps are converted to replies that are performed again.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from models.completion import Completion
from models.families.dialects import DIALECTS, format_action, format_reply
from models.policy import Context
from models.thoughts import reflective_thought, templated_thought
from rollout.actor import Acts
from rollout.trajectory import StepReply
from schemas.action import Action, from_json_list
from schemas.tables.step import Step

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
        self.kind, self.dialect = actor.kind, actor.dialect
        self.needs_elements, self.needs_hints = actor.needs_elements, actor.needs_hints
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
        text=format_reply(thought, text),
        version=name,
        actor=PERSON,
        thought=thought,
        action_text=text,
        actions=(action,),
    )


Write = Callable[[Sequence[Action], tuple[int, int]], str]
"""Function that formats the actions of a reply for a screen of a given width and height."""


def recorded(step: Step, write: Write) -> StepReply:
    """Return the recorded reply of a step with an action. The reply keeps its author."""
    actions = from_json_list(step.actions)
    completion = Completion(
        step.raw_text,
        tuple(step.token_ids or ()),
        tuple(step.logprobs or ()),
        version=step.policy_version,
        thought=step.thought,
        action_text=write(actions, (step.screen_width, step.screen_height)),
        actions=tuple(actions),
        family=step.family or "",
    )
    return StepReply(completion, step.actor, step.dialect)


def corrected(step: Step, person: str, thought: str, action: Action, write: Write) -> StepReply:
    """Return a reviewer's reply that replaces a recorded step."""
    completion = by_person(person, thought, action, step.dialect)
    return StepReply(
        replace(completion, action_text=write([action], (step.screen_width, step.screen_height))), PERSON, step.dialect
    )


def admitting(reply: StepReply) -> StepReply:
    """Return a copy of a reply for use after an error. Its thought first admits the error.

    No model wrote the copy, so it has no tokens and no family.
    """
    completion = reply.completion
    assert completion.first is not None
    thought = reflective_thought(completion.thought or templated_thought(completion.first))
    text = format_reply(thought, completion.action_text)
    shown = replace(completion, text=text, thought=thought, token_ids=(), logprobs=(), family="")
    return replace(reply, completion=shown)
