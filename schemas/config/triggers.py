"""When a server begins a retraining by itself."""

from schemas.config.section import Section, Share, Whole


class TriggersConfig(Section):
    """What is enough for a retraining that a Prefect server begins by itself, counted since the last training. The
    deployment `watch` looks; `flywheel schedule on watch` switches it on."""

    steps: Whole = 2000
    """New accepted steps; 0 for never."""
    decisions: Whole = 20
    """New decisions of people; 0 for never."""
    success_drop: Share = 0.1
    """By how much less the policy succeeds in its newest iteration than in the one before, over the same tasks and
    beyond chance (95 %); 0 for never."""
