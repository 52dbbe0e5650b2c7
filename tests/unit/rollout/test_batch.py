"""A reply with several actions: one step, performed in order until an action is refused or the trajectory ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from environments.fake import FakeSandbox
from environments.pool import SandboxPool
from learning.algorithms.groups import GroupStep, members_of
from models.completion import Completion
from models.families.dialects import parse_reply
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas import action as act
from schemas.action import from_json_list, to_json
from schemas.config.policy import PolicyConfig
from schemas.config.training import GroupConfig
from schemas.context import ContextRule
from schemas.observation import Observation, Outcome
from schemas.refusal import Refusal
from tests.parts import FAKE

REPLIES = (
    "Thought: I type.\nAction: type(content='x', start_box='(5,5)', delay=3)",
    "Thought: Over.\nAction: call_user()",
)
MISS, WAIT, END = act.Click(x=0.005, y=0.005), act.Wait(), act.Finished(content="done")


class Scripted(Policy):
    """Gives prepared replies; remembers what it was shown."""

    version, dialect = "s", "box_v1"

    def __init__(self, *replies: Completion) -> None:
        self.shown, self.replies = list[Context](), replies

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        (context,) = contexts
        self.shown.append(context)
        return [self.replies[len(self.shown) - 1]]


def reply(*actions: act.Action) -> Completion:
    return Completion("a reply", (1, 2), (-0.1, -0.2), thought="Hm.", action_text="several", actions=actions)


def rolled(*replies: Completion, task: str = "two-steps") -> tuple[FinishedTrajectory, Scripted]:
    policy, planned = Scripted(*replies), PlannedTrajectory("lake", "run", 0, FAKE.task(task), 5, "policy", "s")
    planned = replace(planned, task=planned.task.model_copy(update={"max_steps": len(replies)}))

    async def run() -> FinishedTrajectory:
        with Actor(policy) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(2))

    return asyncio.run(run()), policy


def test_a_click_and_typing_of_one_call_are_one_step_and_remembered_as_one_reply() -> None:
    found, policy = rolled(*map(parse_reply, REPLIES), task="enter-text")
    actions = [from_json_list(step.actions) for step in found.steps]
    assert actions == [[MISS, act.Type(content="x")], [act.CallUser()]]
    first, last = found.steps
    assert (first.action_type, first.unused_arguments, last.unused_arguments) == ("click", "delay=3", None)
    assert [first.x, first.y] == [0.005, 0.005]
    assert found.trajectory.n_steps == 2 and [step.raw_text for step in found.steps] == list(REPLIES)
    (turn,) = policy.shown[1].turns
    assert turn.thought == "I type." and turn.action_text.startswith("type(content='x'")
    assert found.trajectory.termination == "call_user"


def test_a_past_step_has_the_reply_that_a_model_of_a_family_sampled() -> None:
    model, other = replace(reply(WAIT), text="Action:  wait", family="qwen3-vl"), reply(WAIT)
    _, policy = rolled(model, other, reply(END))
    assert [turn.reply for turn in policy.shown[2].turns] == ["Action:  wait", ""]


def test_the_screens_between_the_actions_are_recorded() -> None:
    target = act.Click(x=0.5, y=0.5)
    found, _ = rolled(reply(WAIT, MISS, target, WAIT), reply(END))
    step = found.steps[0]
    assert len(step.frames) == found_tried(step.actions, 4) - 1
    assert {*step.pictures} <= found.screenshots.keys() and step.pictures[0] == step.frames[0]
    assert found.steps[-1].screenshot in step.pictures


def found_tried(actions: Sequence[str], count: int) -> int:
    assert len(actions) == count
    return count


def test_a_refused_action_stops_the_reply_and_its_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = FakeSandbox._perform

    async def _perform(self: FakeSandbox, action: act.Action) -> str | None:
        return "no such key" if isinstance(action, act.Hotkey) else await perform(self, action)

    monkeypatch.setattr(FakeSandbox, "_perform", _perform)
    found, policy = rolled(reply(WAIT, act.Hotkey(key="ctrl a"), WAIT, WAIT), reply(act.Hotkey(key="a")), reply(END))
    first, alone, end = found.steps
    assert first.action_error == "action 2 of 4: no such key; 2 not performed" and len(first.frames) == 1
    assert alone.action_error == "no such key" and alone.frames == end.frames == []
    assert len(policy.shown) == 3 and found.trajectory.termination == "finished"
    assert [turn.error for turn in policy.shown[2].turns] == [first.action_error, alone.action_error]
    assert (
        policy.shown[1].turns[0].error == first.action_error
        and Refusal.of(first.action_error, len(first.actions)).text == first.action_error
    )
    found, _ = rolled(reply(WAIT, act.Hotkey(key="ctrl a")))
    assert found.steps[0].action_error == "action 2 of 2: no such key"


def test_an_impossible_action_ends_the_trajectory_with_its_place() -> None:
    found, _ = rolled(reply(WAIT, act.Hotkey(key="ctrl a"), WAIT), reply(END))
    (step,) = found.steps
    reason = "action 2 of 3: the fake environment cannot perform hotkey; 1 not performed"
    assert step.action_error == found.trajectory.failure_reason == reason and len(step.frames) == 1
    assert (found.trajectory.failure_boundary, step.next_screenshot) == ("action", None)


def test_nothing_is_performed_after_an_action_that_ends_the_trajectory() -> None:
    found, policy = rolled(reply(WAIT, END, MISS), reply(END))
    (step,) = found.steps
    assert found.trajectory.termination == "finished" and len(step.frames) == 1 and step.action_error is None
    assert len(step.actions) == 3 and len(policy.shown) == 1


def test_nothing_is_performed_after_the_end_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[act.Action]()
    perform = FakeSandbox._perform

    async def _perform(self: FakeSandbox, action: act.Action) -> None:
        done.append(action)
        self._scene.outcome = replace(self._scene.outcome, done=len(done) == 2)
        await perform(self, WAIT)

    monkeypatch.setattr(FakeSandbox, "_perform", _perform)
    found, _ = rolled(reply(WAIT, MISS, act.Wait(seconds=2.0), WAIT))
    assert done == [WAIT, MISS] and found.trajectory.termination == "done" and len(found.steps[0].frames) == 1


def test_a_note_is_recorded_and_never_reaches_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    done, seen, checked = list[act.Action](), list[None](), list[None]()
    perform, observe, outcome = FakeSandbox._perform, FakeSandbox._observe, FakeSandbox.outcome

    async def _perform(self: FakeSandbox, action: act.Action) -> None:
        done.append(action)
        await perform(self, action)

    async def _observe(self: FakeSandbox, elements: bool) -> Observation:
        seen.append(None)
        return await observe(self, elements)

    async def _outcome(self: FakeSandbox) -> Outcome:
        checked.append(None)
        return await outcome(self)

    monkeypatch.setattr(FakeSandbox, "_perform", _perform)
    monkeypatch.setattr(FakeSandbox, "_observe", _observe)
    monkeypatch.setattr(FakeSandbox, "outcome", _outcome)
    note = act.Note(content="The word is ada.")
    found, policy = rolled(reply(note), reply(note, WAIT, note, note), reply(END))
    alone, mixed, end = found.steps
    assert done == [WAIT] and len(seen) == 4  # the first screen, two after `wait`, the last one
    assert len(checked) == 2
    assert alone.screenshot == alone.next_screenshot and from_json_list(alone.actions) == [note]
    assert alone.action_error is None and (alone.action_type, alone.frames) == ("note", [])
    assert mixed.frames[0] == mixed.screenshot and len(mixed.frames) == 3 and mixed.frames[1] == mixed.frames[2]
    assert found.trajectory.termination == "finished" and len(policy.shown) == 3 and end.action_type == "finished"


def test_an_environment_without_tools_refuses_a_call_and_the_trajectory_goes_on() -> None:
    found, policy = rolled(reply(WAIT, act.UseTool(name="search", arguments={"q": 1}), WAIT), reply(END))
    why = "there is no tool 'search': the environment takes actions on its screen, such as click, scroll and type"
    assert found.steps[0].action_error == policy.shown[1].turns[0].error == f"action 2 of 3: {why}; 1 not performed"
    assert (found.trajectory.termination, found.trajectory.failure_boundary) == ("finished", None)


def test_group_methods_train_on_a_reply_with_several_actions_once() -> None:
    wait = to_json(WAIT)
    steps = [("a", [wait, wait], (1,), (-0.1,)), ("b", [wait], (2,), (-0.2,))]
    rows = [
        GroupStep(
            trajectory_id="t", task_id="k", seed=1, instruction="Do it.", step=number, screenshot=str(number),
            thought="", actions=actions, group_id="g",
            attempt=0, success=True, sampling='{"temperature": 1.0}', reward=1.0,
            raw_text=text, token_ids=tokens, logprobs=logprobs, policy_version="p",
            action_error=None if number else "no key",
        )
        for number, (text, actions, tokens, logprobs) in enumerate(steps)
    ]  # fmt: skip
    (member,) = members_of(rows, PolicyConfig(history_images=2), GroupConfig())["g"]
    assert [one.reply for one in member.rollouts] == ["a", "b"]
    assert member.rollouts[1].past_replies == ("a",) and member.rollouts[1].past_errors == ("no key",)
    assert member.rollouts[1].screenshots == ("0", "1")
