"""Convert between a lake's rows and exchanged trajectories, without reading or writing."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from common.text import storable, storable_json, strict_json
from curation.annotation import annotation
from curation.converters.exchanged import (
    MOST_SEED,
    OWN,
    About,
    Correction,
    Exchanged,
    ExchangedStep,
    ImportedReview,
    Picture,
    Sampled,
    StepAbout,
    StepAssessment,
)
from curation.pictures import difference_hash
from curation.timeline import timeline
from models.families.dialects import format_actions, format_reply
from schemas.action import Click, action_of, point_of, to_json
from schemas.tables.annotation import Annotation
from schemas.tables.recording import Recording
from schemas.tables.reflection import Reflection
from schemas.tables.screenshot import Screenshot
from schemas.tables.step import Step
from schemas.tables.trajectory import IMPORT, Route, Termination, Trajectory

NAME = "name"
"""Key in a stored trajectory's `extra` for its name in the source."""
ENDS: Mapping[str, Termination] = {"finished": "finished", "call_user": "call_user"}


@dataclass(frozen=True, slots=True)
class Import:
    """Common fields of all trajectories of one import."""

    lake_id: str
    run_id: str
    iteration: int
    task_id: str
    """Task of trajectories that name no task of the lake."""
    known: frozenset[str]
    """Tasks on which the lake's policies train."""
    source: str
    """`import:FORMAT:DIGEST`."""
    demonstrations: bool
    """Whether a trajectory without an outcome counts as a success."""
    now: datetime


@dataclass(frozen=True, slots=True)
class ImportedRows:
    """The rows of one imported trajectory."""

    trajectory: Trajectory
    steps: list[Step]
    screenshots: list[Screenshot]
    reflections: list[Reflection]
    decided: tuple[ImportedReview, ...]
    """Reviewers' decisions on the trajectory from another tool."""
    annotations: list[Annotation]
    """Questions about places on its screens."""


def exchanged_of(
    lake_id: str,
    trajectory: Trajectory,
    steps: Sequence[Step],
    pictures: Mapping[str, Picture],
    found: Mapping[int, StepAssessment],
    corrections: Mapping[int, Correction] | None = None,
    withheld: bool = False,
    targets: Collection[int] | None = None,
    decided: tuple[Route | None, str] = (None, ""),
    better: Mapping[int, str] | None = None,
    thought_by: Mapping[int, str] | None = None,
) -> Exchanged:
    """Convert a stored trajectory to the exchanged form.

    Texts in lakes of earlier releases may have a NUL, which imports refuse; it is replaced by its escape.

    Args:
        lake_id: lake of the trajectory. trajectory, steps: the rows; a step's thought is the one to write.
        pictures: the steps' pictures, by sha256.
        found: last finding of each step.
        corrections: reviewers' corrections, by step.
        withheld: whether none of its steps is a target.
        targets: the steps that a training in this lake imitates as recorded; None if the filter did not accept the
            trajectory.
        decided: the route by the filter or a reviewer, and the reason; None without a decision.
        better: reviewers' replacements of only the thought, by step.
        thought_by: authors of the thoughts that are not the actor's, by step.
    """
    trajectory = Trajectory.model_validate(trajectory.model_dump())
    steps = [Step.model_validate(step.model_dump()) for step in steps]
    corrections = {
        at: Correction.model_validate(storable_json(one.model_dump())) for at, one in (corrections or {}).items()
    }
    found = {at: StepAssessment(**storable_json(asdict(one))) for at, one in found.items()}
    extra, times = storable_json(json.loads(trajectory.extra or "{}")), timeline(steps)
    known = trajectory.model_dump(include=set(About.model_fields) - {"extra"})
    after, given = steps[-1].next_screenshot if steps else None, corrections
    rethought, authors = better or {}, thought_by or {}
    return Exchanged(
        name=extra.pop(NAME, "") or trajectory.trajectory_id,
        instruction=trajectory.instruction,
        steps=tuple(
            replace(
                _exchanged(
                    step, pictures, found.get(step.step), given.get(step.step), targets, authors.get(step.step, "")
                ),
                better=storable(rethought.get(step.step, "")),
                shown_s=shown_s,
                began_s=began_s,
            )
            for step, shown_s, began_s in zip(steps, times.screens, times.began, strict=True)
        ),
        success=trajectory.success,
        after=pictures.get(after) if after else None,
        about=About(lake=lake_id, withheld=withheld, route=decided[0], reason=storable(decided[1]), **known),
        extra=extra,
    )


def _exchanged(
    step: Step,
    pictures: Mapping[str, Picture],
    found: StepAssessment | None,
    correction: Correction | None,
    targets: Collection[int] | None,
    thought_by: str,
) -> ExchangedStep:
    extra = storable_json(json.loads(step.extra or "{}"))
    own = extra.get(OWN, {})
    target = _target(step.step, own.get("target"), correction, targets)
    actions = tuple(action_of(storable_json(json.loads(action))) for action in step.actions)
    single = len(actions) == 1
    return ExchangedStep(
        screen=pictures[step.screenshot],
        thought=step.thought,
        actions=actions,
        text="" if single else step.raw_text,
        error=step.action_error,
        found=found,
        about=StepAbout(
            actor=step.actor,
            policy_version=step.policy_version,
            correction=correction,
            target=target,
            thought_by=storable(thought_by) or own.get("thought_by", ""),
            unused=step.unused_arguments or "",
        ),
        extra=extra,
        sampled=_sampled(step),
        frames=() if single else tuple(pictures[frame] for frame in step.frames),
    )


def _target(
    step: int, given: bool | None, correction: Correction | None, targets: Collection[int] | None
) -> bool | None:
    """Whether a step is a target as it was recorded; an import's own statement (`given`) is kept."""
    if given is False:
        return False
    if correction is not None and correction.replaces:
        return None
    return given if targets is None else step in targets


def _sampled(step: Step) -> Sampled | None:
    if not step.token_ids:
        return None
    logprobs = None if step.logprobs is None else tuple(step.logprobs)
    return Sampled(step.raw_text, tuple(step.token_ids), logprobs)


def rows_of(record: Exchanged, of: Import) -> ImportedRows:
    """Return the rows of an imported trajectory; its id and seed are derived from its content.

    Replies are stored like those of demonstrations, in thousandths of the screen and in the first dialect.
    """
    name = id_of(of.lake_id, record)
    about = record.about
    known = about.task_id if about.task_id in of.known else None
    seed = about.seed if known and about.seed is not None else seed_of(record)
    success = True if record.success is None and of.demonstrations else record.success
    reward = about.reward if about.reward is not None else None if success is None else float(success)
    extra = {**record.extra, OWN: about.model_dump(mode="json", exclude_defaults=True)}
    trajectory = Trajectory(
        trajectory_id=name,
        iteration=of.iteration,
        run_id=of.run_id,
        task_id=known or of.task_id,
        seed=seed,
        split="train",
        attempt=0,
        policy=IMPORT,
        policy_version=of.source,
        instruction=record.instruction,
        n_steps=len(record.steps),
        reward=reward,
        success=success,
        termination=about.termination or _termination(record, success),
        failure_boundary=about.failure_boundary,
        failure_reason=about.failure_reason,
        sampling="{}",
        started_at=about.started_at or of.now,
        wall_s=about.wall_s or 0.0,
        continues=about.continues,
        replayed=len(record.steps) if about.withheld else min(about.replayed, len(record.steps)),
        extra=_json({**extra, NAME: record.name}),
    )
    shown = [one for step in record.steps for one in (step.screen, *step.frames)]
    shown += [record.after] if record.after else []
    steps = [_row(trajectory, record, number) for number in range(len(record.steps))]
    asked = [
        annotation(steps[one.step], "grounding", IMPORT, one.name, to_json(Click(x=one.x, y=one.y)), of.now, number)
        for number, one in enumerate(record.questions)
    ]
    return ImportedRows(
        trajectory,
        steps,
        list({picture.sha256: screenshot_of(picture, of.iteration) for picture in shown}.values()),
        [one for number, step in enumerate(record.steps) if (one := _reflection(trajectory, number, step.found, of))],
        record.decisions,
        asked,
    )


def recording_of(record: Exchanged, of: Import, frames: Sequence[str], times: Sequence[float]) -> Recording:
    """Return the row of a record's recording.

    Args:
        record: a record with a recording. of: its import.
        frames: sha256 of the kept frames. times: their seconds from the start.
    """
    recorded, name = record.recording, id_of(of.lake_id, record)
    assert recorded is not None
    return Recording(
        recording_id=name,
        iteration=of.iteration,
        trajectory_id=name,
        source=recorded.source,
        source_sha256=recorded.sha256,
        license=recorded.license,
        width=recorded.width,
        height=recorded.height,
        rate=recorded.rate,
        seconds=recorded.seconds,
        frames=list(frames),
        times=list(times),
        step_times=[one.began_s or 0.0 for one in record.steps],
    )


def claimed(row: Trajectory) -> Trajectory:
    """Return the row of a trajectory without an outcome as its import writes it for a demonstration."""
    stated = json.loads(row.extra or "{}").get(OWN, {}).get("termination")
    done = "done" if row.termination == "max_steps" and stated is None else row.termination
    reward = 1.0 if row.reward is None else row.reward
    return row.model_copy(update={"success": True, "reward": reward, "termination": done})


def id_of(lake_id: str, record: Exchanged) -> str:
    """Return the id of an imported trajectory in a lake; a record has the same id in every import."""
    return hashlib.sha256(f"{lake_id}|{IMPORT}|{record.digest}".encode()).hexdigest()[:24]


def seed_of(record: Exchanged) -> int:
    """Return a training seed for an instruction on a screen.

    Trajectories with the same instruction and first screen share a task and a seed, so that preferences between their
    actions can be learned.
    """
    name = f"{record.instruction}|{record.steps[0].screen.sha256}"
    return int(hashlib.sha256(name.encode()).hexdigest()[:12], 16) % MOST_SEED


def _termination(record: Exchanged, success: bool | None) -> Termination:
    last = next((one.actions for one in reversed(record.steps) if not _is_words(one)), ())
    return ENDS.get(last[-1].type if last else "", "max_steps" if success is None else "done")


def _row(trajectory: Trajectory, record: Exchanged, number: int) -> Step:
    step = record.steps[number]
    later = record.steps[number + 1 :]
    shown = (one.screen for one in later if not (_is_words(one) and one.screen.sha256 == step.screen.sha256))
    after = next(shown, record.after)
    actions = step.actions
    point = point_of(actions[0]) if actions else None
    about = step.about.model_dump(mode="json", exclude_defaults=True)
    extra = {**step.extra, **({OWN: about} if about else {})}
    return Step(
        trajectory_id=trajectory.trajectory_id,
        step=number,
        iteration=trajectory.iteration,
        screenshot=step.screen.sha256,
        next_screenshot=after.sha256 if after else None,
        screen_width=step.screen.width,
        screen_height=step.screen.height,
        thought=step.thought,
        actions=[*map(to_json, actions)],
        action_type=actions[0].type if actions else None,
        x=point[0] if point else None,
        y=point[1] if point else None,
        dialect="box_v1",
        raw_text=format_reply(step.thought, format_actions(actions)) if actions else step.text,
        action_error=step.error,
        unused_arguments=step.about.unused or None,
        actor=IMPORT,
        policy_version=trajectory.policy_version,
        token_ids=None,
        logprobs=None,
        elements="[]",
        observe_ms=0.0,
        think_ms=0.0,
        act_ms=0.0,
        extra=_json(extra) if extra else None,
        frames=[frame.sha256 for frame in step.frames],
    )


def _is_words(step: ExchangedStep) -> bool:
    """Whether a step is words of a chat, as gates have it (`acting_steps`)."""
    return not step.actions and step.about.target is False


def screenshot_of(picture: Picture, iteration: int) -> Screenshot:
    """Return the row of a picture."""
    return Screenshot(
        sha256=picture.sha256,
        iteration=iteration,
        png=picture.png,
        width=picture.width,
        height=picture.height,
        phash=difference_hash(picture.png),
    )


def _reflection(trajectory: Trajectory, number: int, found: StepAssessment | None, of: Import) -> Reflection | None:
    if found is None:
        return None
    return Reflection(
        trajectory_id=trajectory.trajectory_id,
        step=number,
        author=IMPORT,
        version=of.source,
        iteration=of.iteration,
        last_step_correct=found.last_step_correct,
        last_step_redundant=found.last_step_redundant,
        reflection=found.reflection,
        created_at=of.now,
    )


def _json(value: object) -> str:
    return storable(strict_json(value, ensure_ascii=False, sort_keys=True))
