"""A hundred faults of all packages that come with flywheel: golden patch, no patch, and ten cheats each."""

import asyncio
import itertools
from pathlib import Path

import pytest

from environments.hybrid.repair.environment import (
    PACKAGES,
    RepairConfig,
    RepairEnvironment,
    RepairReward,
    RepairSandbox,
)
from environments.hybrid.repair.faults import Prepared
from environments.hybrid.repair.tasks import RepairInstance
from environments.hybrid.scripted import solve
from environments.pool import SandboxPool
from schemas.action import Finished
from schemas.observation import Outcome
from schemas.tables.trajectory import SPLIT_STARTS, split_of
from tests.fixtures.cheats import cheats
from tests.system.hybrid.isolation import NEEDS_A_JAIL

pytestmark = [NEEDS_A_JAIL, pytest.mark.nightly, pytest.mark.usefixtures("real_browser")]
REWARD = RepairReward()
FAULTS, TRIED = 9, 10
"""Number of faults of each package, and of cheats on each fault."""


def faulty(faults: Prepared, seed: int) -> str:
    """The path of the file with a seed's fault."""
    chosen = faults.of_split(split_of(seed))
    return chosen[seed % len(chosen)].mutation.path


async def played(package: str, at: int) -> list[tuple[str, Outcome]]:
    """The outcomes of one package's faults: golden, untouched and cheats, with their names."""
    environment = RepairEnvironment("repair", RepairConfig(kind="repair", browsers=1, pages=2, packages=(package,)))
    template, found = f"repair-{package}", list[tuple[str, Outcome]]()
    faults = await environment.faults(template)
    seeds = [begin + at for split, begin in SPLIT_STARTS.items() for at in range(len(faults.of_split(split)))]
    assert len(seeds) >= FAULTS
    async with SandboxPool([environment]) as pool:

        async def one(seed: int, number: int) -> None:
            names = ["golden", "untouched", *itertools.islice(itertools.cycle(CHEATS), number, number + TRIED)]
            for name in names:
                async with pool.lease(environment.task(template), seed) as sandbox:
                    assert isinstance(sandbox, RepairSandbox) and isinstance(sandbox.instance, RepairInstance)
                    if name == "golden":
                        found.append((name, await solve(sandbox, REWARD)))
                        continue
                    for action in cheats(sandbox.instance, faulty(faults, seed)).get(name, ()):
                        await sandbox.perform(action)
                    await sandbox.conclude(Finished(content=""))
                    found.append((f"{name} {seed}", await sandbox.verify(REWARD)))

        for begin in range(0, FAULTS, 2):
            chosen = range(begin, min(begin + 2, FAULTS))
            await asyncio.gather(*(one(seeds[number], at * FAULTS + number) for number in chosen))
    return found


CHEATS = list(cheats(RepairInstance((), None, ()), "lamp/bulb.py"))  # type: ignore[arg-type]


def test_there_are_a_hundred_faults_of_ten_packages() -> None:
    assert len(PACKAGES) >= 10 and len(PACKAGES) * FAULTS >= 100 and TRIED >= 10


@pytest.mark.parametrize("package", PACKAGES)
def test_golden_patches_are_rewarded_and_nothing_else(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path))
    found = asyncio.run(played(package, PACKAGES.index(package)))
    golden = [outcome for name, outcome in found if name == "golden"]
    assert golden == [Outcome(done=True, reward=1.0)] * FAULTS
    rewarded = [name for name, outcome in found if name != "golden" and outcome.reward != 0.0]
    assert len(found) == FAULTS * (TRIED + 2) and not rewarded
