"""Stage `annotate`: annotate trajectories by rules and models, and make perception data from their screens.

The elements of a screen come from its page, or from a screen reader.
"""

import time
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime

from curation.annotation import annotations_of, changed
from curation.perception.perceive import Chosen, perceive, picture_name
from curation.perception.screen import RecognisedScreen
from curation.pictures import difference_hash
from models.readers import ScreenReader, reader_class
from schemas.config import Config
from schemas.observation import elements_json, elements_of
from schemas.table import utc_now
from schemas.tables.annotation import Annotation
from schemas.tables.reading import ScreenReading
from schemas.tables.screenshot import Screenshot
from schemas.tables.stage import PlainResult
from schemas.tables.step import Step
from storage.lake import Lake
from tasks.recordings import video_annotations
from tasks.running.cluster import divided, part_task, share_out, shares_out
from tasks.running.console import bar
from tasks.running.run import Run
from tasks.running.stage import stage
from tasks.shared.material import RowPacker, pngs_of
from tasks.shared.reviews import decisions_of
from tasks.shared.trajectories import trajectories_of
from tasks.train.preferences import find_pairs

EMPTY = "[]"
TIDIED = 200
"""Number of readings after which the table's files are merged. Each reading is written at once, so a kill loses
none."""


def perception_of(config: Config, lake: Lake, chosen: Chosen, now: datetime) -> list[Annotation]:
    """Return the annotations of the chosen screens, after writing pictures with marks to the lake."""
    asked = config.annotate
    pngs = pngs_of(lake, sorted(chosen.steps)) if chosen.steps else {}
    wanted = [step for step, _ in chosen.steps.values() if step.elements == EMPTY and step.screenshot in pngs]
    read = read_screens(config, lake, wanted, pngs)
    made: list[Annotation] = []
    pictures: dict[str, Screenshot] = {}
    for digest in sorted(chosen.steps):
        step, following = chosen.steps[digest]
        elements, author = (read.get(digest, EMPTY), "ocr") if step.elements == EMPTY else (step.elements, "page")
        screen = RecognisedScreen(
            digest, step.screen_width, step.screen_height, tuple(elements_of(elements)), author, pngs.get(digest, b"")
        )
        if screen.elements:
            found, marked = perceive(screen, step, asked.perception, asked.per_screen, now)
            made += found
            pictures |= {one.sha256: one for one in (_stored(step, png) for png in marked)}
        if "transition" in asked.perception and (change := changed(step, following, now)):
            made.append(change)
    lake.append("screenshots", list(pictures.values()))
    return made


def read_screens(config: Config, lake: Lake, steps: Sequence[Step], pngs: dict[str, bytes]) -> dict[str, str]:
    """Return elements as JSON by screenshot, from stored readings or the screen reader; empty without a reader."""
    kind = reader_class(config.annotate.reader)
    if kind is None or not steps:
        return {}
    known = _known(lake, kind.name, {step.screenshot for step in steps})
    left = [step for step in steps if step.screenshot not in known]
    if not left:
        return known
    iterations = {step.screenshot: step.iteration for step in left}
    if not shares_out(config):
        return known | _read(kind, lake, iterations, pngs)
    asked = [{name: iterations[name] for name in mine} for mine in divided(config, list(iterations))]
    found = share_out(config, read_part, [{"config": config, "iterations": mine} for mine in asked], "read, parts")
    return {name: elements for part in (known, *found) for name, elements in part.items()}


@part_task("read-part")
def read_part(config: Config, iterations: dict[str, int]) -> dict[str, str]:
    """Read screenshots, and return elements as JSON by screenshot.

    Args:
        config: the resolved config.
        iterations: iteration of each screenshot, by its sha256.
    """
    lake = Lake.open(config.lake, create=False)
    kind = reader_class(config.annotate.reader)
    assert kind is not None
    known = _known(lake, kind.name, iterations)
    left = {name: iteration for name, iteration in iterations.items() if name not in known}
    return known | _read(kind, lake, left, pngs_of(lake, sorted(left)))


def _read(kind: type[ScreenReader], lake: Lake, iterations: dict[str, int], pngs: dict[str, bytes]) -> dict[str, str]:
    """Read screenshots one after the other, and store each reading at once."""
    reader, found = kind(), dict[str, str]()
    with bar() as progress:
        shown = progress.add_task("read", total=len(iterations), message="")
        for number, (name, iteration) in enumerate(iterations.items(), 1):
            started = time.perf_counter()
            found[name] = elements_json(reader.read(pngs[name]))
            reading = ScreenReading(
                sha256=name,
                reader=kind.name,
                iteration=iteration,
                elements=found[name],
                read_ms=1000 * (time.perf_counter() - started),
                created_at=utc_now(),
            )
            lake.append("readings", [reading])
            progress.advance(shown)
            if number % TIDIED == 0:
                lake.compact("readings")
    return found


def _known(lake: Lake, reader: str, digests: Collection[str]) -> dict[str, str]:
    rows = lake.read("readings", ["sha256", "elements"], {"reader": reader, "sha256": sorted(digests)})
    return dict(zip(rows["sha256"].to_pylist(), rows["elements"].to_pylist(), strict=True))


def _stored(step: Step, png: bytes) -> Screenshot:
    return Screenshot(
        sha256=picture_name(png),
        iteration=step.iteration,
        png=png,
        width=step.screen_width,
        height=step.screen_height,
        phash=difference_hash(png),
    )


def annotate(run: Run, iteration: int) -> PlainResult:
    """Annotate an iteration's trajectories, and make its perception data and preferences.

    Steps of accepted and failed trajectories get grounding targets. Steps of failed trajectories also get the action
    and the change between two screens, and the error step if rules find it. Perception data comes from a sample of
    screens. Preferences come from two trajectories of one task and seed that part at some step. Recordings
    get questions about changes over time.
    """
    lake = run.lake
    decisions = decisions_of(lake, iteration)
    now, chosen = utc_now(), Chosen(decisions, run.config.annotate.screens)
    trajectories = chosen.passing(steps for _, steps in trajectories_of(lake, iteration))
    rows = RowPacker("annotations")
    rows.add(annotations_of(decisions, trajectories, now))
    rows.add(perception_of(run.config, lake, chosen, now))
    rows.add(video_annotations(run.config, lake, iteration, decisions, now))
    found = rows.whole()
    lake.append("annotations", found)
    kinds = Counter(found["kind"].to_pylist())
    compared = find_pairs(run.config, lake, iteration)
    if compared.pairs:
        kinds["pair"] = len(compared.pairs)
    counts = ", ".join(f"{kind} {n}" for kind, n in sorted(kinds.items()))
    text = "; ".join(filter(None, (counts and f"annotations: {counts}", compared.text)))
    dropped = {"tied": compared.tied, "contrary": compared.contrary, "unanswered": compared.unanswered.total()}
    return PlainResult(text=text, numbers={"annotations": dict(kinds), "pairs": dropped})


annotate_steps = stage("annotate")(annotate)
