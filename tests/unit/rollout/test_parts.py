"""A call that stands for several actions: all are performed, each in a step of its own, and one reply is remembered."""

import asyncio
from collections.abc import Sequence

from environments.pool import SandboxPool
from learning.algorithms.groups import GroupStep, members_of
from models.completion import Completion
from models.families.dialects import parse_reply
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas import action as act
from schemas.action import from_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig
from schemas.context import ContextRule
from tests.parts import FAKE

REPLIES = (
    "Thought: I type.\nAction: type(content='x', start_box='(5,5)', delay=3)",
    "Thought: Over.\nAction: call_user()",
)


class Typing(Policy):
    """Types at a place, then calls the user; remembers what it was shown."""

    version, dialect = "s", "box_v1"

    def __init__(self) -> None:
        self.shown = list[Context]()

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        (context,) = contexts
        self.shown.append(context)
        text = REPLIES[len(self.shown) - 1]
        return [parse_reply(Completion(text, token_ids=(1, 2), logprobs=(-0.1, -0.2)).text)]


def rolled(policy: Policy) -> FinishedTrajectory:
    planned = PlannedTrajectory("lake", "run", 0, FAKE.task("two-steps"), 5, "policy", "s")

    async def run() -> FinishedTrajectory:
        with Actor(policy) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(2))

    return asyncio.run(run())


def test_a_click_and_typing_of_one_call_are_performed_as_steps_and_remembered_as_one_reply() -> None:
    policy = Typing()
    found = rolled(policy)
    actions = [from_json(step.action or "") for step in found.steps]
    assert actions == [act.Click(x=0.005, y=0.005), act.Type(content="x"), act.CallUser()]
    assert found.trajectory.n_steps == 3
    assert [step.raw_text for step in found.steps] == [REPLIES[0], "", REPLIES[1]]
    assert [step.thought for step in found.steps] == ["I type.", "", "Over."]
    assert [step.unused_arguments for step in found.steps] == ["delay=3", None, None]
    (turn,) = policy.shown[1].turns
    assert turn.thought == "I type." and turn.action_text.startswith("type(content='x'")
    assert len(policy.shown) == 2 and found.trajectory.termination == "call_user"


def test_group_methods_train_on_replies_and_not_on_the_parts_of_their_calls() -> None:
    steps = [("a", "c", (1,), (-0.1,)), ("", "t", None, None), ("b", "d", (2,), (-0.2,))]
    rows = [
        GroupStep(
            trajectory_id="t", task_id="k", seed=1, instruction="Do it.", step=number, screenshot=str(number),
            thought="", action=action, group_id="g",
            attempt=0, success=True, sampling='{"temperature": 1.0}', reward=1.0,
            raw_text=text, token_ids=tokens, logprobs=logprobs, policy_version="p",
        )
        for number, (text, action, tokens, logprobs) in enumerate(steps)
    ]  # fmt: skip
    (member,) = members_of(rows, PolicyConfig(history_images=2), GroupConfig())["g"]
    assert [one.reply for one in member.rollouts] == ["a", "b"]
    assert member.rollouts[1].past_replies == ("a",) and member.rollouts[1].screenshots == ("0", "2")
