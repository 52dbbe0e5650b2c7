"""Make recordings of trajectories, and questions about recordings, for the stage `annotate`."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from PIL import Image

from common.picture import rgb_of
from curation.annotation import TrajectoryRoute
from curation.perception.caption import listed_elements
from curation.perception.over_time import Film, over_time
from curation.timeline import timeline
from curation.video import LEAST_RATE, changed_box
from schemas.config import Config
from schemas.tables.annotation import Annotation
from schemas.tables.recording import Recording
from schemas.tables.step import Step
from storage.lake import Lake
from tasks.shared.material import pngs_of
from tasks.shared.trajectories import stored

KEPT = 16
"""Number of decoded frames that are kept while a recording is asked about."""
USED = ("sft", "ct")
"""Routes of trajectories whose recordings are asked about."""


def video_annotations(
    config: Config, lake: Lake, iteration: int, decisions: Mapping[str, TrajectoryRoute], now: datetime
) -> list[Annotation]:
    """Return questions about the recordings of an iteration, after writing recordings of its trajectories.

    Recordings of trajectories in quarantine and of environment failures are left out.
    """
    asked = config.video
    if not asked.questions:
        return []
    used = {name for name, decision in decisions.items() if decision.route in USED}
    record_trajectories(lake, iteration, used, asked.trajectories)
    made = list[Annotation]()
    for recording in lake.rows(Recording, {"iteration": iteration}):
        name = recording.trajectory_id
        if name in used:
            ((_, steps),) = stored(lake, [name])
        elif name in decisions or lake.count("trajectories", {"trajectory_id": name}):
            continue
        else:
            steps = []
        made += over_time(_film(lake, recording, steps), asked.questions, asked.clip_s, now)
    return made


def record_trajectories(lake: Lake, iteration: int, names: set[str], most: int) -> None:
    """Write recordings of at most `most` of these trajectories, those with the smallest ids.

    A trajectory with screens of several sizes has no recording, and an imported recording is kept.
    """
    known = set(lake.read("recordings", ["trajectory_id"], {"iteration": iteration})["trajectory_id"].to_pylist())
    chosen = sorted(names)[:most]
    found = (recording_of(steps) for _, steps in stored(lake, [name for name in chosen if name not in known]))
    lake.append("recordings", [recording for recording in found if recording])


def recording_of(steps: Sequence[Step]) -> Recording | None:
    """Return the recording of a trajectory, from its screens and durations; None for screens of several sizes."""
    sizes = {(step.screen_width, step.screen_height) for step in steps}
    if len(sizes) != 1:
        return None
    times, ((width, height),) = timeline(steps), sizes
    kept = [one for at, one in enumerate(times.shown) if not at or one[1] != times.shown[at - 1][1]]
    name = f"{steps[0].trajectory_id}|recording"
    return Recording(
        recording_id=hashlib.sha256(name.encode()).hexdigest()[:24],
        iteration=steps[0].iteration,
        trajectory_id=steps[0].trajectory_id,
        source="",
        source_sha256=None,
        license="",
        width=width,
        height=height,
        rate=LEAST_RATE,
        seconds=times.seconds,
        frames=[digest for _, digest in kept],
        times=[second for second, _ in kept],
        step_times=list(times.began),
    )


def _film(lake: Lake, recording: Recording, steps: Sequence[Step]) -> Film:
    @lru_cache(KEPT)
    def image(digest: str) -> Image.Image:
        return rgb_of(pngs_of(lake, [digest])[digest])

    listed = {step.screenshot: found for step in steps if (found := listed_elements(step))}
    return Film(recording, steps, listed, lambda one, other: changed_box(image(one), image(other)))
