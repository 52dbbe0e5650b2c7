"""All tables of the lake, by name."""

from schemas import (
    annotation,
    curriculum,
    evaluation,
    pair,
    policy,
    quality,
    screenshot,
    stage,
    step,
    task,
    trajectory,
    verdict,
)
from schemas.table import Table

TABLES: dict[str, Table] = {
    module.TABLE.name: module.TABLE
    for module in (
        task,
        trajectory,
        step,
        screenshot,
        verdict,
        annotation,
        pair,
        curriculum,
        policy,
        evaluation,
        quality,
        stage,
    )
}
