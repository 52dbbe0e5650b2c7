"""Convert recorded steps to replies that are performed again."""

from collections.abc import Callable
from dataclasses import replace

from models.completion import Completion
from models.families.dialects import format_reply
from models.thoughts import reflective_thought, templated_thought
from rollout.oversight import PERSON, by_person
from rollout.trajectory import StepReply
from schemas.action import Action, from_json
from schemas.tables.step import Step

Write = Callable[[Action, tuple[int, int]], str]
"""Function that formats an action for a screen of a given width and height."""


def recorded(step: Step, write: Write) -> StepReply:
    """Return the recorded reply of a step with an action. The reply keeps its author."""
    action = from_json(step.action or "")
    completion = Completion(
        step.raw_text,
        tuple(step.token_ids or ()),
        tuple(step.logprobs or ()),
        version=step.policy_version,
        thought=step.thought,
        action_text=write(action, (step.screen_width, step.screen_height)),
        action=action,
        family=step.family or "",
    )
    return StepReply(completion, step.actor, step.dialect)


def corrected(step: Step, person: str, thought: str, action: Action, write: Write) -> StepReply:
    """Return a reviewer's reply that replaces a recorded step."""
    completion = by_person(person, thought, action, step.dialect)
    return StepReply(
        replace(completion, action_text=write(action, (step.screen_width, step.screen_height))), PERSON, step.dialect
    )


def admitting(reply: StepReply) -> StepReply:
    """Return a copy of a reply for use after an error. Its thought first admits the error, and it has no tokens."""
    completion = reply.completion
    assert completion.action is not None
    thought = reflective_thought(completion.thought or templated_thought(completion.action))
    text = format_reply(thought, completion.action_text)
    shown = replace(completion, text=text, thought=thought, token_ids=(), logprobs=())
    return replace(reply, completion=shown)
