"""All tables of the lake, by name."""

from schemas.table import Table
from schemas.tables import (
    agreement,
    annotation,
    curriculum,
    evaluation,
    forgotten,
    page,
    pair,
    policy,
    promotion,
    proposal,
    quality,
    reading,
    reflection,
    review,
    screenshot,
    stage,
    step,
    task,
    teacher_score,
    thinking,
    trajectory,
    verdict,
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        task.TABLE,
        proposal.TABLE,
        trajectory.TABLE,
        step.TABLE,
        screenshot.TABLE,
        verdict.TABLE,
        agreement.TABLE,
        reflection.TABLE,
        annotation.TABLE,
        thinking.TABLE,
        reading.TABLE,
        page.TABLE,
        pair.TABLE,
        teacher_score.TABLE,
        curriculum.TABLE,
        policy.TABLE,
        policy.TRAINING,
        promotion.TABLE,
        evaluation.TABLE,
        quality.TABLE,
        quality.OVERRIDES,
        stage.TABLE,
        review.TABLE,
        forgotten.TABLE,
    )
}
