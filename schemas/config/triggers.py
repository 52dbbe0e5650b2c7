"""The `triggers` section of the config: conditions of a retraining that a server begins by itself."""

from schemas.config.section import Section, Share, Whole


class TriggersConfig(Section):
    """Thresholds for a retraining that a Prefect server begins by itself, counted since the last training. The
    deployment `watch` checks them; `flywheel schedule on watch` switches it on."""

    steps: Whole = 2000
    """New accepted steps; 0 for never."""
    decisions: Whole = 20
    """New decisions of people; 0 for never."""
    success_drop: Share = 0.1
    """Drop of the policy's success in its newest iteration below the one before, over the same tasks and beyond chance
    (95 %); 0 for never."""
