"""Make, measure and promote policies outside of an iteration."""

from contextlib import nullcontext

from prefect import State, flow

from schemas.config import Config
from tasks.adopt import adopt_checkpoint
from tasks.measure import Measured, measure_policy
from tasks.promote.promote import challenge_champion, evaluate_challenger
from tasks.reflect.people import verify_corrections
from tasks.retrain import pin_data, train_retrained
from tasks.running.boundary import until_paused
from tasks.running.budget import Exhausted
from tasks.running.pausing import Pause
from tasks.running.run import open_run, run_name
from tasks.shared.paths import lake_if_any


@flow(name="retrain", flow_run_name=run_name)
def retrain(config: Config, like: str | None = None) -> str | State[Pause | Exhausted] | None:
    """Trains, evaluates and promotes from pinned data versions.

    Args:
        config: the resolved config.
        like: a policy version whose data versions, parent, config and seed are repeated; today's data if not given.

    Returns:
        The new policy's version, or the pause of the lake that ended it early.
    """
    with open_run(config, create=False) as run, until_paused(run) as end:
        if like is None:
            verify_corrections(config)
        pinned = pin_data(config, like)
        version = train_retrained(config, pinned)
        evaluate_challenger(config, version)
        challenge_champion(config, version)
        return version
    return end.state


@flow(name="adopt", flow_run_name=run_name)
def adopt(config: Config, directory: str, name: str | None = None) -> str:
    """Copies a checkpoint into the lake, evaluates it, and promotes it if it is not worse than the champion.

    Args:
        config: the resolved config.
        directory: a Hugging Face model directory with its weights in safetensors.
        name: the new policy's version; `adopted-NNNN` if not given.

    Returns:
        The new policy's version.
    """
    with open_run(config, create=False):
        version = adopt_checkpoint(config, directory, name)
        evaluate_challenger(config, version)
        challenge_champion(config, version)
        return version


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
