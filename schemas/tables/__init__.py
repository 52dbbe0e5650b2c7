"""All tables of the lake, by name."""

from schemas.table import Table
from schemas.tables import (
    agreement,
    annotation,
    curriculum,
    evaluation,
    forgotten,
    override,
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
    thinking,
    trajectory,
    verdict,
)

TABLES: dict[str, Table] = {
    module.TABLE.name: module.TABLE
    for module in (
        task,
        proposal,
        trajectory,
        step,
        screenshot,
        verdict,
        agreement,
        reflection,
        annotation,
        thinking,
        reading,
        pair,
        curriculum,
        policy,
        promotion,
        evaluation,
        quality,
        override,
        stage,
        review,
        forgotten,
    )
}
