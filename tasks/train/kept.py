"""Refuse to make a policy from forgotten data. A training that read such data ends without a policy."""

from common.text import counted
from schemas.config import Config
from schemas.failure import FlywheelError
from storage.lake import Lake
from tasks.shared.material import PolicyRecipe
from tasks.shared.training_ledger import read_by


def read_for(config: Config, lake: Lake, recipe: PolicyRecipe) -> set[str]:
    """Return the ids of the trajectories whose data a training reads."""
    train = config.train
    return read_by(lake, train.method, recipe.iteration, recipe.pins, bool(train.ct.perception))


def require_kept(lake: Lake, read: set[str]) -> None:
    """Refuse to continue a training whose data was forgotten or is being forgotten.

    Raises:
        FlywheelError: there is such data. The message has the id of a trajectory.
    """
    gone = sorted(read.intersection(lake.read("forgotten", ["trajectory_id"])["trajectory_id"].to_pylist()))
    if gone:
        raise FlywheelError(
            f"{counted(len(gone), 'trajectory', 'trajectories')} that this training reads were forgotten meanwhile, "
            f"{gone[0]} for one; no policy is made.",
            f"Let `flywheel forget {gone[0]}` end, then train again.",
        )
