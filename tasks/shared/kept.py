"""Keep trajectories of evaluations for people to look at, in tables that training does not read."""

import hashlib
import io
from collections.abc import Collection, Mapping, Sequence

from PIL import Image

from rollout.trajectory import FinishedTrajectory
from schemas.config.sections import EvaluateConfig
from schemas.tables.evaluation_trajectory import EvaluationScreenshot, EvaluationStep, EvaluationTrajectory
from schemas.tables.trajectory import RecordedTrajectory
from storage.filters import quoted
from storage.lake import Lake

LONGEST = 16_383
"""Longest side of a WebP in pixels."""
EFFORT, METHOD = 20, 2
"""Effort of the lossless coding, in [0, 100], and its method, in [0, 6]: half the size of a PNG, in the least time."""
_NO_TOKENS = {"token_ids": None, "logprobs": None}


def is_kept(config: EvaluateConfig, row: RecordedTrajectory) -> bool:
    """Whether an evaluation keeps this trajectory. The draw depends on its task and seed alone."""
    digest = hashlib.sha256(f"{row.task_id}|{row.seed}".encode()).digest()
    share = config.keep_successes if row.success else config.keep_failures
    return int.from_bytes(digest[:6], "big") < share * 2**48


def keep(lake: Lake, config: EvaluateConfig, records: Sequence[FinishedTrajectory], suites: Mapping[str, str]) -> None:
    """Write the kept ones of an evaluation's trajectories: first the pictures, then steps, last the trajectories.

    Args:
        lake: the lake.
        config: config with the shares.
        records: finished trajectories of one iteration.
        suites: suite of each task, by the task's id.
    """
    records = [one for one in records if is_kept(config, one.trajectory)]
    if not records:
        return
    iteration = records[0].trajectory.iteration
    pngs = {digest: seen.png for record in records for digest, seen in record.screenshots.items()}
    known = lake.read("evaluation_screenshots", ["sha256"], {"sha256": sorted(pngs)})["sha256"].to_pylist()
    pictures = [
        EvaluationScreenshot(sha256=digest, iteration=iteration, picture=_packed(pngs[digest]))
        for digest in pngs.keys() - set(known)
    ]
    steps = [step for record in records for step in record.steps]
    rows = [(one, suites[one.task_id]) for one in (record.trajectory for record in records)]
    lake.append("evaluation_screenshots", pictures)
    lake.append("evaluation_steps", [EvaluationStep.model_validate(dict(step) | _NO_TOKENS) for step in steps])
    lake.append("evaluation_trajectories", [EvaluationTrajectory(**dict(row), suite=suite) for row, suite in rows])


def drop_partial(lake: Lake, iteration: int, ids: Collection[str]) -> None:
    """Remove what a killed evaluation kept of these trajectories, which are rolled out again."""
    for table in ("evaluation_steps", "evaluation_trajectories"):
        if lake.count(table, {"iteration": iteration, "trajectory_id": sorted(ids)}):
            lake.delete(table, f"iteration = {iteration} AND trajectory_id IN ({quoted(sorted(ids))})")


def _packed(png: bytes) -> bytes:
    """Return a picture as lossless WebP; the PNG itself if it is too large for WebP."""
    image, packed = Image.open(io.BytesIO(png)), io.BytesIO()
    if max(image.size) > LONGEST:
        return png
    image.save(packed, "WEBP", lossless=True, quality=EFFORT, method=METHOD, exact=True)
    return packed.getvalue()
