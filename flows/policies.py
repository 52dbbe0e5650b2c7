"""Define flows that make, measure and promote policies outside of an iteration."""

from contextlib import nullcontext

from prefect import State, flow

from schemas.config import Config
from tasks.adopt import adopt_checkpoint
from tasks.measure import Measured, measure_policy
from tasks.promote.promote import challenge_champion, evaluate_challenger
from tasks.reflect.people import verify_corrections
from tasks.retrain import pin_data, train_retrained
from tasks.running.boundary import until_paused
from tasks.running.budget import Exhausted, Pause
from tasks.running.run import open_run, run_name
from tasks.shared.paths import lake_if_any


@flow(name="retrain", flow_run_name=run_name)
def retrain(config: Config, like: str | None = None, train_only: bool = False) -> str | State[Pause | Exhausted] | None:
    """Trains, evaluates and promotes a policy from pinned data versions.

    Args:
        config: the resolved config.
        like: policy version whose data versions, parent, config and seed are used; the current data if not given.
        train_only: neither evaluate nor promote the policy, and use no environment.

    Returns:
        The version of the new policy, or the reason of an early end.
    """
    with open_run(config, create=False) as run, until_paused(run) as end:
        if like is None and not train_only:
            verify_corrections(config)
        pinned = pin_data(config, like)
        version = train_retrained(config, pinned)
        if not train_only:
            evaluate_challenger(config, version)
            challenge_champion(config, version)
        return version
    return end.state


@flow(name="adopt", flow_run_name=run_name)
def adopt(config: Config, directory: str, name: str | None = None) -> str:
    """Copies a checkpoint into the lake, evaluates it, and promotes it if it is not worse than the champion.

    In a lake without policies, the checkpoint becomes the champion.

    Args:
        config: the resolved config.
        directory: a Hugging Face model directory with weights in safetensors.
        name: version of the new policy; `adopted-NNNN` if not given.

    Returns:
        The version of the new policy.
    """
    with open_run(config):
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
    """Rolls out held-out seeds, and returns success by task with a 95 % interval.

    Args:
        config: the resolved config.
        policy: `champion`, a policy version, or a Hugging Face folder.
        tasks: templates of tasks; the suite if not given.
        seeds: the first seed (at least 1,000,000) and the seed after the last; the first 50 test seeds if not given.
        attempts: trajectories per seed. One trajectory is greedy; several are sampled at the temperature of collection.
    """
    with open_run(config, create=False) if lake_if_any(config) else nullcontext():
        return measure_policy(config, policy, tasks, seeds, attempts)
