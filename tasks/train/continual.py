"""Continual training's data: what the failed plays of all iterations show, whatever they were meant for."""

from collections import Counter

from curation.continual import continual_samples
from learning.data.sample import write_samples
from schemas.config import Config
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.material import Material, Recipe


def continual_material(config: Config, lake: Lake, recipe: Recipe) -> Material:
    """The routed V=0 data so far, and not a word of what it was played for."""
    samples = continual_samples(ask(lake, "continual", recipe.pins).to_pylist())
    kinds = Counter("grounding" if sample.kind == "step" else sample.kind for sample in samples)
    chosen = config.train.ct
    return Material(
        screenshots=sorted({digest for sample in samples for digest in sample.screenshots}),
        write=lambda path: write_samples(path, samples),
        steps=chosen.steps,
        learning_rate=chosen.learning_rate,
        train=config.train,
        numbers={"samples": len(samples), "kinds": dict(sorted(kinds.items()))},
        said=", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items())),
        nothing="" if samples else "no failed play shows anything yet",
    )
