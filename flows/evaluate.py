"""Measure a policy, without a change of the champion."""

from contextlib import nullcontext

from prefect import flow

from schemas.config import Config
from tasks.measure import Measured, measure_policy
from tasks.running.run import open_run, run_name
from tasks.shared.paths import lake_if_any


@flow(name="evaluate", flow_run_name=run_name)
def evaluate(
    config: Config,
    policy: str = "champion",
    tasks: list[str] | None = None,
    seeds: tuple[int, int] | None = None,
    attempts: int = 1,
) -> Measured:
    """Rolls out held-out seeds and returns success by task with a 95 % interval.

    Args:
        config: the resolved config.
        policy: `champion`, a version, or a Hugging Face folder.
        tasks: templates; the suite if not given.
        seeds: first and one past the last seed, at least 1,000,000; the test split's first 50 if not given.
        attempts: 1 for one greedy trajectory per seed, more for so many sampled at the temperature of data.
    """
    with open_run(config, create=False) if lake_if_any(config) else nullcontext():
        return measure_policy(config, policy, tasks, seeds, attempts)
