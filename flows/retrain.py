"""Retrain from pinned data, without collecting; people's corrections since then are tried and included."""

from prefect import State, flow

from schemas.config import Config
from tasks.promote.challenge import challenge_champion, evaluate_challenger
from tasks.reflect.people import verify_corrections
from tasks.retrain import pin_data, train_retrained
from tasks.running.boundary import until_paused
from tasks.running.budget import Exhausted
from tasks.running.pausing import Pause
from tasks.running.run import open_run, run_name


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
