"""Where the wheel stands: which iterations are whole, which one is next."""

from prefect import task
from prefect.cache_policies import NO_CACHE

from schemas.config import Config
from schemas.stage import STAGES
from storage.lake import Lake
from tasks.stage import leave


def finished_iterations(lake: Lake) -> list[int]:
    """Iterations whose last stage is recorded, in order."""
    rows = lake.read("stages", ["iteration"], {"stage": STAGES[-1]})["iteration"].to_pylist()
    return sorted(rows)


@task(name="plan", cache_policy=NO_CACHE)
def plan_iterations(config: Config, iterations: int | None = None) -> list[int]:
    """The iterations to turn; the first one goes on where its last finished stage ended."""
    done = finished_iterations(Lake.open(config.lake))
    first = done[-1] + 1 if done else 0
    leave()
    return list(range(first, first + (iterations if iterations is not None else config.iterations)))


@task(name="close", cache_policy=NO_CACHE)
def close_iteration(config: Config, iteration: int) -> None:
    """Keeps the lake's files few after an iteration."""
    Lake.open(config.lake).maintain()
