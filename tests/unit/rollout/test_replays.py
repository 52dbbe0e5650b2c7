"""A trajectory that goes on from another one's state: the same screens, or it is given up with a reason."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from environments.fake import FakeEnvironment, FakeSandbox
from environments.host import Host, NoHost
from environments.pool import SandboxPool
from models.completion import Completion
from models.explorer import PageExplorer
from models.families.dialects import format_actions, parse_reply
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.replies import admitting, recorded
from rollout.session import roll_out
from rollout.trajectory import DISAGREES, Beginning, FinishedTrajectory, PlannedTrajectory
from schemas.action import Action, Wait
from schemas.context import ContextRule
from tests.parts import FAKE

TASK = FAKE.task("two-steps")


class Scripted(Policy):
    """Clicks the named button of the two; remembers what it was told to avoid."""

    version, dialect, needs_elements = "s", "box_v1", True

    def __init__(self, *names: str) -> None:
        self.names, self.avoided = list(names), list[tuple[object, ...]]()

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        (context,) = contexts
        self.avoided.append(context.avoid)
        name = self.names.pop(0)
        wanted = context.instruction.split('"')[1 if name == "first" else 3]
        x, y = next(one.centre for one in context.observation.elements if one.name == wanted)
        read = parse_reply(f"Thought: Hm.\nAction: click(start_box='({x * 1000:.0f},{y * 1000:.0f})')")
        return [replace(read, family="tars")]


def rolled(policy: Scripted, beginning: Beginning | None = None, seed: int = 5) -> FinishedTrajectory:
    planned = PlannedTrajectory("lake", "run", 0, TASK, seed, "policy", "s", beginning=beginning)

    async def run() -> FinishedTrajectory:
        with Actor(policy) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, planned, [actor], record_elements=True, rule=ContextRule(1))

    return asyncio.run(run())


def after(failed: FinishedTrajectory, replayed: int, screens: Sequence[str] | None = None) -> Beginning:
    seen = tuple(screens or [step.screenshot for step in failed.steps[: replayed + 1]])
    replies = tuple(recorded(step, lambda actions, _: format_actions(actions)) for step in failed.steps[:replayed])
    return Beginning(failed.trajectory.trajectory_id, seen, replies, ahead=2)


def test_the_first_steps_are_replayed_and_then_somebody_else_goes_on_from_the_same_screen() -> None:
    failed = rolled(Scripted("first", "first"))
    assert failed.trajectory.success is False
    found = rolled(Scripted("second"), after(failed, 1))
    assert found.trajectory.success is True
    assert (found.trajectory.continues, found.trajectory.replayed) == (failed.trajectory.trajectory_id, 1)
    assert [step.screenshot for step in found.steps] == [step.screenshot for step in failed.steps]
    assert [step.family for step in found.steps] == ["tars"] * len(found.steps)
    assert found.steps[0].raw_text == failed.steps[0].raw_text and found.steps[0].first == failed.steps[0].first
    assert found.trajectory.trajectory_id != failed.trajectory.trajectory_id


def test_a_screen_that_does_not_agree_is_the_environments_failure_with_its_step_and_is_not_tried_again() -> None:
    failed = rolled(Scripted("first", "first"))
    policy = Scripted("second")
    found = rolled(policy, after(failed, 1, [failed.steps[0].screenshot, "f" * 64]))
    assert (found.trajectory.success, found.trajectory.failure_boundary) == (None, "sandbox")
    assert (found.trajectory.failure_reason or "").startswith(f"{DISAGREES} 1") and policy.names == ["second"]
    beginning = after(failed, 1)
    planned = PlannedTrajectory("lake", "run", 0, TASK, 5, "correction", "s", beginning=beginning)
    assert planned.retry("sandbox") is None


def test_another_seed_shows_other_screens_from_the_first_step_on() -> None:
    failed = rolled(Scripted("first", "first"))
    assert (rolled(Scripted(), after(failed, 1), seed=6).trajectory.failure_reason or "").startswith(f"{DISAGREES} 0")


def test_a_known_reply_is_performed_after_the_replay_and_its_thought_can_admit_the_error() -> None:
    failed, won = rolled(Scripted("first", "first")), rolled(Scripted("first", "second"))
    beginning = after(failed, 1)
    known = admitting(recorded(won.steps[1], lambda actions, _: format_actions(actions)))
    script = Beginning(beginning.continues, beginning.screens, (*beginning.replies, known), ahead=0)
    found = rolled(Scripted(), script)
    assert found.trajectory.success is True and found.steps[1].thought == "Not that. Hm."
    assert script.name != beginning.name


def test_only_an_explorer_that_needs_hints_gets_the_script_of_the_environment() -> None:
    seen = list[tuple[Action | None, ...]]()

    class Watching(PageExplorer):
        def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
            seen.append(tuple(one.hint for one in contexts))
            return super().act(contexts, temperature)

    class Hinted(Watching):
        needs_hints = True

    class Scripts(FakeSandbox):
        async def _hint(self) -> Action | None:
            return Wait()

    class ScriptedFake(FakeEnvironment):
        def host(self) -> Host:
            return NoHost(lambda: Scripts(self.config))

    environment = ScriptedFake("fake", FAKE.config)

    async def run(policy: Policy) -> None:
        with Actor(policy) as actor:
            async with SandboxPool([environment]) as pool:
                planned = PlannedTrajectory("lake", "run", 0, TASK, 5, policy.kind, policy.version)
                await roll_out(pool, planned, [actor], record_elements=True, rule=ContextRule(1))

    asyncio.run(run(Watching()))
    assert {*seen} == {(None,)}
    seen.clear()
    asyncio.run(run(Hinted()))
    assert {*seen} == {(Wait(),)}
