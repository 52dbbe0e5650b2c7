"""A pool over several environments, one of them from outside, each with its own size, verifier and checks."""

import asyncio
import json

import pytest

from environments.environment import Environment
from environments.pool import SandboxPool
from environments.registry import environments_of, verifier_of
from models.explorer import PageExplorer
from models.policy import Context
from schemas.config import Config, config_of
from schemas.failure import FlywheelError, UsageError
from schemas.observation import Observation
from tasks.measure import measured
from tasks.preflight.preflight import probes, require
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE
from tests.unit.environments.counting import CountingConfig, CountingEnvironment, CountingSandbox

COUNTING = "tests.unit.environments.counting:CountingEnvironment"
BOTH = {"fake": {"sandboxes": 3}, "count": {"kind": COUNTING, "clicks": 1}}


def config(**fields: object) -> Config:
    return config_of({"environments": BOTH, "suite": {"tasks": ["click-target", "count"]}, **fields})


def test_a_task_is_leased_a_sandbox_of_its_own_environment_and_each_has_its_own_size() -> None:
    count = CountingEnvironment("count", CountingConfig())
    most = {"fake": 0, "count": 0}
    now = dict(most)

    async def one(pool: SandboxPool, environment: Environment, template: str, seed: int) -> None:
        async with pool.lease(environment.task(template), seed) as sandbox:
            assert isinstance(sandbox, CountingSandbox) == (environment is count)
            now[environment.name] += 1
            most[environment.name] = max(most[environment.name], now[environment.name])
            await asyncio.sleep(0)
            now[environment.name] -= 1

    async def all_at_once() -> None:
        async with SandboxPool([FAKE, count]) as pool:
            assert pool.sizes == {"fake": 3, "count": 2}
            leases = [(FAKE, "click-target"), (count, "count")] * 8
            await asyncio.gather(*(one(pool, *lease, seed) for seed, lease in enumerate(leases)))
            assert pool.metrics.leases == 16

    asyncio.run(all_at_once())
    assert most == {"fake": 3, "count": 2}


def test_only_the_environments_of_the_tasks_at_hand_are_brought_to_life() -> None:
    tasks = [FAKE.task("click-target")]
    assert [environment.name for environment in environments_of(config(), tasks)] == ["fake"]


def test_the_explorer_acts_in_both_and_without_elements_at_random_points() -> None:
    CountingSandbox.asked = 0
    found = measured(config(), PageExplorer(), None, (1_000_000, 1_000_024))
    assert set(found.rates.tasks) == {"fake/click-target", "count/count"}
    assert 0 < found.rates.tasks["count/count"].success < 1
    assert CountingSandbox.asked == 24  # once per trajectory of at most three steps


def test_blind_actions_differ_by_seed_and_are_the_same_again() -> None:
    seen = Observation(b"", 32, 32, "Click 2 times.")
    contexts = [Context(seen.instruction, (), seen, seed) for seed in range(40)]
    first, again = ([reply.text for reply in PageExplorer().act(contexts)] for _ in range(2))
    assert first == again and len(set(first)) > 30 and sum("click" in text for text in first) > 20


def test_a_verifier_is_found_by_name_or_path_and_a_judged_task_has_none() -> None:
    assert verifier_of("judge") is None
    fake, counted = verifier_of("fake"), verifier_of("tests.unit.environments.counting:Counted")
    assert fake is not None and fake.each_step and counted is not None and not counted.each_step
    with pytest.raises(UsageError, match=r"tasks\.verifier"):
        verifier_of("nobody")


def test_one_list_of_checks_asks_every_environment_and_refuses_with_what_to_do(
    tmp_path, monkeypatch, sentence: Sentences
) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path / "home"))
    lake = {"uri": str(tmp_path / "lake"), "min_free_mb": 1}
    checks = {probe.name: probe.check() for probe in probes(config(lake=lake))}
    assert checks["count: room"].detail == "it fits" and all(check.ok for check in checks.values())
    sentence(checks["explorer"].detail)
    tight = json.loads(json.dumps(BOTH)) | {"count": {"kind": COUNTING, "fits": False}}
    with pytest.raises(FlywheelError, match=r"does not fit.*environments\.count\.fits"):
        require(config_of({"environments": tight, "suite": {"tasks": ["count"]}, "lake": lake}))
