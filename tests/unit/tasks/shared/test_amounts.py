"""Practice pages are rolled out for data and never evaluated; groups are rolled out in their place."""

from environments.catalog import catalog
from schemas.config import load_config
from tasks.shared.trajectories import CollectedCount, collected, measured_first, measured_suites, trajectories


def test_practice_is_counted_as_data_and_never_as_held_out() -> None:
    config = load_config("miniwob", ["train.group.groups=5"], {})
    assert collected(config, catalog(config)) == CollectedCount(15 * 60, 40)
    assert trajectories(measured_suites(config, None)) == 15 * 15 + 3 * 5
    assert trajectories(measured_first(config)) == 15 * 15 + 15 * 5
    grouped = load_config("miniwob", ["train.method=grpo", "train.group.groups=5"], {})
    assert collected(grouped, catalog(grouped)) == CollectedCount(5 * 4, 0)
    distilled = load_config("miniwob", ["train.method=opd"], {})
    assert collected(distilled, catalog(distilled)) == CollectedCount(15 * 60, 0)
