"""A reward between 0 and 1 in a trajectory: what it is worth when the steps are used up, and when it breaks off."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from PIL import Image

from common.picture import png_of
from environments.environment import Environment
from environments.host import Host, NoHost
from environments.pool import SandboxPool
from environments.sandbox import Sandbox
from environments.verifier import Verifier
from models.completion import Completion
from models.families.dialects import parse_reply
from models.policy import Context, Policy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import PlannedTrajectory
from schemas.action import Action
from schemas.config.sections import EnvironmentConfig
from schemas.context import ContextRule
from schemas.observation import Observation, Outcome
from schemas.tables.task import TaskEntry
from schemas.tables.trajectory import Trajectory
from tests.parts import FAKE

WAIT, NONE = "Action: wait()", "Hm."


class CountingSandbox(Sandbox):
    """Every action is worth a quarter."""

    count = 0

    async def _start(self, task: object, seed: int) -> None:
        self.count = 0

    async def _observe(self, elements: bool) -> Observation:
        return Observation(png_of(Image.new("RGB", (1, 1), (self.count, 0, 0))), 1, 1, "Count.")

    async def _perform(self, action: Action) -> None:
        self.count += 1

    async def _stop(self) -> None:
        return


class Quarters(Verifier):
    each_step = True

    async def outcome(self, sandbox: CountingSandbox) -> Outcome:
        return Outcome(done=sandbox.count == 4, reward=sandbox.count / 4, counts=True)


class CountingEnvironment(Environment[EnvironmentConfig]):
    verifier = f"{__name__}:Quarters"
    sandbox_class = CountingSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        return {"count": TaskEntry(instruction="Count.", max_steps=3, threshold=0.75, graded=True)}

    @property
    def sandboxes(self) -> int:
        return 1

    def host(self) -> Host:
        return NoHost(lambda: CountingSandbox(self.config))


class Saying(Policy):
    version, dialect = "s", "box_v1"

    def __init__(self, replies: Sequence[str]) -> None:
        self.replies = list(replies)

    def act(self, contexts: Sequence[Context], temperature: float = 0.0) -> list[Completion]:
        return [parse_reply(self.replies.pop(0))]


def rolled(*replies: str) -> Trajectory:
    environment = CountingEnvironment("counting", EnvironmentConfig())
    task = environment.task("count", max_steps=len(replies)).model_copy(update={"verifier": "quarters"})
    planned = PlannedTrajectory("lake", "run", 0, task, 1, "policy", "s")

    async def run() -> Trajectory:
        with Actor(Saying(replies)) as actor:
            async with SandboxPool([environment]) as pool:
                return (await roll_out(pool, planned, [actor], record_elements=False, rule=ContextRule(1))).trajectory

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def quarters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollout.session.verifier_of", lambda name: Quarters())


def test_a_score_that_stands_counts_when_the_steps_are_used_up() -> None:
    found = rolled(WAIT, WAIT, WAIT)
    assert (found.reward, found.success, found.termination) == (0.75, True, "max_steps")


def test_a_score_below_the_threshold_is_kept_and_is_no_success() -> None:
    found = rolled(WAIT, WAIT)
    assert (found.reward, found.success, found.termination) == (0.5, False, "max_steps")


def test_a_score_counts_where_the_policy_ends_the_game() -> None:
    found = rolled(WAIT, WAIT, WAIT, "Action: finished()")
    assert (found.reward, found.success, found.termination) == (0.75, True, "finished")


def test_who_breaks_off_by_a_fault_of_his_own_earns_nothing() -> None:
    found = rolled(WAIT, WAIT, WAIT, NONE)
    assert (found.reward, found.success, found.termination) == (0.0, False, "failure")


def test_a_reward_that_does_not_stand_is_none_before_the_task_is_done() -> None:
    assert not Outcome(done=False, reward=1.0).reaches(1.0)
    assert Outcome(done=True, reward=0.75).reaches(0.75) and not Outcome(done=True, reward=0.7).reaches(0.75)
    assert (FAKE.task("click-one").threshold, FAKE.task("click-one").graded) == (1.0, False)
