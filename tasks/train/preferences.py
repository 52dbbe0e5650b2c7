"""Preferences: found where trajectories of one task and seed part, kept in `pairs`, trained on by method `dpo`."""

from curation.pairs import PartingStep, pairs_of
from learning.data.preferences import preferences_of, write_preferences
from models.tiny.layout import reply_grid
from schemas.config import Config
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.material import Material, Recipe


def find_pairs(config: Config, lake: Lake, iteration: int) -> int:
    """Writes the pairs of this iteration's trajectories, with each other and with older ones; returns how many."""
    rows = [PartingStep(**row) for row in ask(lake, "parting_trajectories", iteration=iteration).to_pylist()]
    pairs = pairs_of(rows, iteration, config.policy.dialect, reply_grid(config.policy.base))
    lake.append("pairs", pairs)
    return len(pairs)


def preference_material(config: Config, lake: Lake, recipe: Recipe) -> Material:
    """All pairs so far; the parent is the reference."""
    pairs = ask(lake, "training_pairs", recipe.pins, history_images=config.policy.history_images)
    rows = (row for batch in pairs.to_batches() for row in batch.to_pylist())
    return Material(
        write=lambda path, _: write_preferences(path, preferences_of(rows, config.policy.dialect)),
        samples=pairs.num_rows,
        numbers={"samples": pairs.num_rows},
        summary=f"{pairs.num_rows} pairs",
        nothing="" if pairs.num_rows else "nothing to learn from: no two plays of one task and seed part",
    )
