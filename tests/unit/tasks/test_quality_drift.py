"""An iteration that looks unlike those before it is warned of, measure by measure."""

from pathlib import Path

from schemas.config.sections import LakeConfig, QualityConfig
from storage.lake import Lake
from tasks.quality import drift_results
from tests.fixtures.sentences import Sentences
from tests.unit.storage.conftest import DEFAULTS


def fill(lake: Lake, iteration: int, steps: int, reward: float, kind: str, new_screens: bool) -> None:
    ids = [f"{iteration}-{number}" for number in range(60)]
    base = {**DEFAULTS["trajectories"], "iteration": iteration, "n_steps": steps, "reward": reward}
    lake.append("trajectories", [{**base, "trajectory_id": name, "seed": at} for at, name in enumerate(ids)])
    shots = [f"{(1000 * iteration if new_screens else 0) + number:064x}" for number in range(60)]
    step = {**DEFAULTS["steps"], "iteration": iteration, "actions": ['{"type":"wait"}', f'{{"type":"{kind}"}}']}
    lake.append("steps", [{**step, "trajectory_id": n, "screenshot": s} for n, s in zip(ids, shots, strict=True)])
    shot = {**DEFAULTS["screenshots"], "iteration": iteration}
    lake.append("screenshots", [{**shot, "sha256": sha, "phash": sha} for sha in shots])


def test_lengths_rewards_actions_and_new_screens_are_held_against_earlier_iterations(
    tmp_path: Path, sentence: Sentences
) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    for iteration in (0, 1, 2):
        fill(lake, iteration, 3, 1.0, "click", new_screens=False)
    found = {row.expectation: row for row in drift_results(lake, 2, QualityConfig())}
    assert set(found) == {f"Drift({name})" for name in ("lengths", "rewards", "actions", "sizes", "screens")}
    assert all(row.success and row.severity == "warning" for row in found.values())

    fill(lake, 3, 9, 0.0, "type", new_screens=True)
    found = {row.expectation: row for row in drift_results(lake, 3, QualityConfig())}
    assert {name for name, row in found.items() if not row.success} == set(found) - {"Drift(sizes)"}
    lengths = found["Drift(lengths)"]
    assert "9 0 % to 100 %" in lengths.observed
    sentence(lengths.observed)
    assert lengths.value is not None and lengths.value > 0.25
    assert drift_results(lake, 0, QualityConfig()) == [] == drift_results(lake, -2, QualityConfig())
