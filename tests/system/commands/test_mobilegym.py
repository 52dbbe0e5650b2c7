"""MobileGym's own phone, where `FLYWHEEL_MOBILEGYM` names the folder that `flywheel environments add mobilegym` built
(docs/mobilegym.md); `FLYWHEEL_MOBILEGYM_PYTHON` names its Python, if it is not in the work folder."""

import asyncio
import os
import random
from typing import Any

import pytest

from apps.report.build import build_report
from environments.mobilegym.environment import MobileGymConfig, MobileGymEnvironment
from environments.pool import SandboxPool
from environments.registry import verifier_of
from environments.sandbox import Sandbox
from flows.flywheel import flywheel
from models.completion import Completion
from models.explorer import PageExplorer
from models.families.dialects import format_action, format_reply, parse_reply
from models.policy import Context
from schemas import action as act
from schemas.config import Config, config_of
from schemas.observation import Outcome
from storage.lake import Lake
from tests.flows.conftest import all_forked, prefect_server, small  # noqa: F401  (pytest finds fixtures by their names)
from tests.tiers import lacks

FOLDER = os.environ.get("FLYWHEEL_MOBILEGYM", "")
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        not FOLDER, reason=lacks("no MobileGym in FLYWHEEL_MOBILEGYM", "flywheel environments add mobilegym --from DIR")
    ),
]
STEPS = {
    "clock.CountAlarms": ("7", act.OpenApp(app_name="Answer Sheet"), act.Click(x=0.5, y=0.19)),
    "notes.ChangeViewMode": ("", act.Click(x=0.88, y=0.1), act.Click(x=0.794, y=0.246)),
}


def environment(**keys: Any) -> MobileGymEnvironment:
    given = {"kind": "mobilegym", "folder": FOLDER, "processes": 1, **keys}
    python = os.environ.get("FLYWHEEL_MOBILEGYM_PYTHON", "")
    return MobileGymEnvironment("phone", MobileGymConfig.model_validate({**given, "python": python}))


async def finished(sandbox: Sandbox) -> Outcome:
    verifier = verifier_of("openenv")
    assert verifier is not None
    await sandbox.conclude(act.Finished())
    return await sandbox.verify(verifier)


def test_the_checkout_has_its_tasks_and_splits_and_doctor_starts_one() -> None:
    theirs = environment()
    tags = [set(one.tags) for one in theirs.entries.values()]
    assert sum("test" in one for one in tags) == 256 and sum("train" in one for one in tags) == 160
    reports = [probe.examine() for probe in theirs.probes()]
    assert "360 x 800 pixels" in str(reports[1])


@pytest.mark.parametrize("template", STEPS)
def test_a_scripted_solution_scores_1_and_what_is_left_undone_0_on_the_same_screens(template: str) -> None:
    answer, *taps = STEPS[template]

    async def solve(sandbox: Sandbox, done: bool) -> tuple[list[bytes], Outcome]:
        screens = [(await sandbox.observe()).png]
        for action in taps if done else ():
            assert await sandbox.perform(action) is None
            screens.append((await sandbox.observe()).png)
        if answer and done:
            for action in (act.Type(content=answer), act.PressBack(), act.Click(x=0.5, y=0.944)):
                assert await sandbox.perform(action) is None
        return screens, await finished(sandbox)

    async def run() -> list[tuple[list[bytes], Outcome]]:
        theirs = environment()
        async with SandboxPool([theirs]) as pool:
            found = list[tuple[list[bytes], Outcome]]()
            for done in (True, True, False):
                async with pool.lease(theirs.task(template), 0) as sandbox:
                    found.append(await solve(sandbox, done))
            return found

    first, again, undone = asyncio.run(run())
    assert (first[1], again[1], undone[1]) == (Outcome(True, 1.0), Outcome(True, 1.0), Outcome(True, 0.0))
    assert first[0] == again[0] and undone[0] == first[0][:1]


class TappingExplorer(PageExplorer):
    """Changes the view of Notes in about half of the trajectories; ends the others at once."""

    version = "tapping-explorer-1"

    def _completion(self, context: Context) -> Completion:
        solves = random.Random(context.seed).random() < 0.5
        _, *taps = STEPS["notes.ChangeViewMode"] if context.turns or solves else ("",)
        action = [*taps, act.Finished()][min(len(context.turns), len(taps))]
        return parse_reply(format_reply("", format_action(action, self.dialect)))


@pytest.mark.timeout(900)
def test_an_iteration_learns_from_its_phones_and_shows_their_screens(small: Config) -> None:  # noqa: F811
    fields = small.model_dump()
    fields["environments"] = {"phone": environment().config.model_dump()}
    fields["suite"]["tasks"] = ("notes.ChangeViewMode",)
    explorer = f"{TappingExplorer.__module__}:{TappingExplorer.__name__}"
    fields["collect"] |= {"explorer": explorer, "trajectories_per_task": 16, "policy_share": 0.0}
    config = config_of(fields)
    flywheel(config, iterations=1)
    lake = Lake.open(config.lake)
    rows = lake.read("trajectories").to_pylist()
    assert len(rows) == 16 and {row["success"] for row in rows} == {True, False}
    assert all(row["n_steps"] == 3 for row in rows if row["success"])
    assert "sft" in lake.read("policies")["method"].to_pylist()
    page = build_report(config).read_text("utf-8")
    assert "notes.ChangeViewMode" in page and "data:image" in page
