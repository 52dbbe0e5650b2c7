"""Export a lake's trajectories to a new folder, in another project's format."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from common.atomic_folder import atomic_folder
from common.card import CARD
from common.text import counted
from curation.converters.exchanged import Correction, Exchanged, Picture, PlaceQuestion, StepAssessment
from curation.converters.files import Target
from curation.converters.format import Format
from curation.converters.rows import exchanged_of
from curation.redaction import Redactor
from schemas.action import Click, from_json
from schemas.config import Config
from schemas.failure import LakeError, UsageError
from schemas.observation import Element, elements_of
from schemas.tables.reflection import Reflection
from schemas.tables.screenshot import Screenshot
from schemas.tables.step import Step
from schemas.tables.trajectory import Route, Trajectory
from schemas.tables.verdict import ROUTES
from storage.catalog import ask
from storage.lake import Lake
from tasks.exchange.card import ACTOR, Selection, dataset_card
from tasks.exchange.prompts import Prompts
from tasks.running.console import bar
from tasks.shared.trajectories import whole_ids
from tasks.train.supervised import weighed_targets

TOGETHER = 16
"""Number of trajectories in memory at the same time, with their pictures."""
EMPTY = "[]"
Reads = Callable[[Sequence[Step], dict[str, bytes]], dict[str, str]]
"""Function that reads the elements on the screens of some steps. Its result is JSON by the sha256 of the picture."""
ALL = (-(2**31), 2**31 - 1)
"""All iterations, including imports."""


_Of = tuple[
    Mapping[int, Correction], bool, Collection[int] | None, tuple[Route | None, str], Mapping[int, str]
]  # as `exchanged_of` takes them


@dataclass(frozen=True, slots=True)
class Taught:
    """Training targets of recorded trajectories, and the decisions about them."""

    corrections: Mapping[str, Mapping[int, Correction]]
    """Reviewers' corrections, by trajectory and step."""
    withheld: Collection[str]
    """Trajectories that training does not use."""
    targets: Mapping[str, Collection[int]]
    """Steps that training imitates, by accepted trajectory."""
    decided: Mapping[str, tuple[Route, str]]
    """Route and reason by trajectory, from the filter or a reviewer."""
    thoughts: Mapping[str, Mapping[int, str]]
    """Thoughts that reviewers replaced without changing the action, by trajectory and step."""

    def of(self, name: str) -> _Of:
        """Return the data of one trajectory."""
        decided, withheld = self.decided.get(name, (None, "")), name in self.withheld
        thoughts = self.thoughts.get(name, {})
        return self.corrections.get(name, {}), withheld, self.targets.get(name), decided, thoughts


def export_trajectories(
    config: Config,
    lake: Lake,
    form: Format,
    to: Path,
    iterations: tuple[int, int] = ALL,
    route: str | None = None,
    images_at: str = "",
    redactor: Redactor | None = None,
    reader: Reads | None = None,
    license: str = "",
    chosen: Collection[str] | None = None,
) -> Counter[str]:
    """Write trajectories and a card to a new or empty folder, and return their number by route.

    After an error, the folder stays empty. Trajectories that were not filtered yet have the route `undecided`.

    Args:
        config: config whose training settings define the target steps.
        lake: the lake.
        form: the format.
        to: the folder.
        iterations: the first iteration and the iteration after the last.
        route: export only trajectories of this route.
        images_at: prefix of picture names, for formats that name pictures by address.
        redactor: removes secrets and personal data, and counts them.
        reader: reads the elements of pictures that have none in the lake.
        license: licence of the export for its card, as on the Hub.
        chosen: ids of the trajectories to export, which may be abbreviated; all if not given.
    Raises:
        UsageError: the folder is not empty or cannot be made; no trajectory fits; a chosen one does not exist; the
            format does not name pictures by address; or the format must not be redacted, because this project imports
            it again.
        LakeError: a picture is not in the lake.
    """
    _require_empty(to)
    if images_at and not form.addressed:
        raise UsageError(f"`--images-at`: {form.name} does not name pictures by their address.", "Leave it out.")
    if redactor is not None and form.comes_home:
        raise UsageError(
            f"`--redact`: {form.name} comes home, and a redaction would be read as a correction.",
            "Leave it out, and keep the export in the house.",
        )
    found = ask(lake, "exchange_trajectories", first=iterations[0], end=iterations[1], route=route)
    if chosen is not None:
        chosen = whole_ids(lake, chosen)
        found = found.filter(pads.field("trajectory_id").isin(pa.array(chosen, pa.string())))
    names: list[str] = found["trajectory_id"].to_pylist()
    if not names:
        raise UsageError("There is no trajectory to export.", "Look at --iterations and --route.")
    selection = Selection(found.to_pylist(), route, license)
    taught = _targets_of(config, lake, selection.rows)
    with _temporary_folder(to) as whole:
        whole.mkdir()
        prompts = Prompts(lake) if form.prompts else None
        records = exchanged(lake, names, taught, redactor, reader, prompts, form.asks)
        target, authors = Target(whole, images_at), Counter[str]()
        form.export(_tallied(_with_progress(records, len(names)), authors), target)
        target.write(CARD, dataset_card(config, lake, form, selection, redactor, authors).encode())
    for why, count in sorted(prompts.missing.items()) if prompts else ():
        form.notes.append(f"{counted(count, 'step')} without `prompt_token_ids`: {why}.")
    return Counter[str](found["route"].to_pylist())


def _require_empty(to: Path) -> None:
    try:
        taken = to.exists() and (not to.is_dir() or any(to.iterdir()))
    except OSError as error:
        raise _unwritable(to, error) from error
    if taken:
        raise UsageError(f"`--to`: {to} is not an empty folder.", "Name a new one; nothing is overwritten.")


@contextmanager
def _temporary_folder(to: Path) -> Iterator[Path]:
    """Open `atomic_folder` at a path that the user named. Report a failure as UsageError."""
    with ExitStack() as writing:
        try:
            whole = writing.enter_context(atomic_folder(to))
        except OSError as error:
            raise _unwritable(to, error) from error
        yield whole


def _unwritable(to: Path, error: OSError) -> UsageError:
    return UsageError(f"`--to`: {to} cannot be made: {error.strerror}.", "Name a folder that you may write to.")


def exchanged(
    lake: Lake,
    names: Sequence[str],
    taught: Taught,
    redactor: Redactor | None = None,
    reader: Reads | None = None,
    prompts: Prompts | None = None,
    asks: bool = False,
) -> Iterator[Exchanged]:
    """Yield stored trajectories in the form for exports. Only a few are in memory at the same time.

    Annotated thoughts replace missing thoughts, as in training; `StepAbout.thought_by` has their author. The redactor
    works as in `export_trajectories`. `prompts` adds the tokens of prompts, and `asks` the questions about places on
    screens.
    """
    left = iter(names)
    while chunk := list(islice(left, TOGETHER)):
        where = {"trajectory_id": chunk}
        trajectories = {one.trajectory_id: one for one in lake.rows(Trajectory, where)}
        steps: dict[str, list[Step]] = defaultdict(list)
        for step in sorted(lake.rows(Step, where), key=lambda one: one.step):
            steps[step.trajectory_id].append(step)
        thoughts, found = _thoughts(lake, chunk), _found(lake, chunk)
        pictures = _pictures(lake, [step for name in chunk for step in steps[name]])
        questions = _questions(lake, chunk) if asks else {}
        for name in chunk:
            added = {
                step.step: thoughts[at]
                for step in steps[name]
                if not step.thought and (at := (name, step.step)) in thoughts
            }
            found_steps = [
                step.model_copy(update={"thought": added[step.step][0]}) if step.step in added else step
                for step in steps[name]
            ]
            authors = {at: author for at, (_, author) in added.items()}
            whole = exchanged_of(
                lake.lake_id, trajectories[name], found_steps, pictures, found[name], *taught.of(name), authors
            )
            whole = replace(whole, questions=tuple(questions.get(name, ())))
            if prompts:
                whole = _with_prompts(whole, prompts.of(trajectories[name], steps[name]))
            yield redactor.record(whole, _screens(lake, found_steps, pictures, reader)) if redactor else whole


def _with_prompts(record: Exchanged, prompts: Mapping[int, tuple[int, ...]]) -> Exchanged:
    """Return the trajectory with the tokens of each step's prompt."""
    steps = [
        replace(one, sampled=replace(one.sampled, prompt_ids=prompts.get(number))) if one.sampled else one
        for number, one in enumerate(record.steps)
    ]
    return replace(record, steps=tuple(steps))


def _targets_of(config: Config, lake: Lake, rows: Sequence[Mapping[str, Any]]) -> Taught:
    """Return the training targets and decisions of the trajectories in the result of `exchange_trajectories`."""
    weighed = weighed_targets(config, lake)
    targets: dict[str, set[int]] = {row["trajectory_id"]: set() for row in rows if row["route"] == "sft"}
    instead = set[tuple[str, int]]()
    imitated = weighed.filter(weighed["weight"].is_valid())
    columns = (imitated[name].to_pylist() for name in ("trajectory_id", "step", "grounding", "corrected"))
    for name, step, grounding, corrected in zip(*columns, strict=True):
        if grounding:
            continue
        if corrected:
            instead.add((name, step))
        elif name in targets:
            targets[name].add(step)
    given: dict[str, dict[int, Correction]] = defaultdict(dict)
    for row in ask(lake, "exchange_corrections").to_pylist():
        at = row["trajectory_id"], row["step"]
        given[at[0]][at[1]] = Correction.model_validate({**row, "taught": at in instead})
    withheld = {row["trajectory_id"] for row in rows if row["withheld"]}
    routed = (row for row in rows if row["route"] in ROUTES)
    decided: dict[str, tuple[Route, str]] = {one["trajectory_id"]: (one["route"], one["reason"]) for one in routed}
    thoughts: dict[str, dict[int, str]] = defaultdict(dict)
    for row in ask(lake, "exchange_thoughts").to_pylist():
        thoughts[row["trajectory_id"]][row["step"]] = row["better"]
    return Taught(given, withheld, targets, decided, thoughts)


def _screens(
    lake: Lake, steps: Sequence[Step], pictures: Mapping[str, Picture], reader: Reads | None
) -> dict[str, list[Element]]:
    """Return the elements of each picture of a trajectory: from the page, from stored readings, or from `reader`."""
    listed = {step.screenshot: step.elements for step in steps if step.elements != EMPTY}
    shown = {name for step in steps for name in step.pictures}
    if left := sorted(shown - listed.keys()):
        rows = lake.read("readings", ["sha256", "elements"], {"sha256": left})
        listed |= dict(zip(rows["sha256"].to_pylist(), rows["elements"].to_pylist(), strict=True))
    unread = {step.screenshot: step for step in steps if step.screenshot not in listed}
    if reader is not None and unread:
        listed |= reader(list(unread.values()), {name: pictures[name].png for name in unread})
    return {name: elements_of(elements) for name, elements in listed.items()}


def _thoughts(lake: Lake, names: Sequence[str]) -> dict[tuple[str, int], tuple[str, str]]:
    """Return the newest annotated thought of each step and its author, by trajectory and step."""
    rows = lake.read(
        "annotations",
        ["trajectory_id", "step", "thought", "author", "version", "created_at", "annotation_id"],
        {"trajectory_id": list(names), "kind": "thought"},
    ).to_pylist()
    rows.sort(key=lambda row: (row["created_at"], row["annotation_id"]))
    return {
        (row["trajectory_id"], row["step"]): (row["thought"], ":".join(filter(None, (row["author"], row["version"]))))
        for row in rows
    }


def _questions(lake: Lake, names: Sequence[str]) -> Mapping[str, list[PlaceQuestion]]:
    """Return the questions about places on the trajectories' screens, by trajectory, in order."""
    rows = lake.read(
        "annotations",
        ["trajectory_id", "step", "thought", "action", "annotation_id"],
        {"trajectory_id": list(names), "kind": "grounding"},
    ).to_pylist()
    found: dict[str, list[PlaceQuestion]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["step"], row["annotation_id"])):
        if isinstance(place := from_json(row["action"]), Click):
            found[row["trajectory_id"]].append(PlaceQuestion(row["step"], row["thought"], place.x, place.y))
    return found


def _found(lake: Lake, names: Sequence[str]) -> Mapping[str, dict[int, StepAssessment]]:
    """Return the newest assessment of each step, by trajectory and step."""
    found: dict[str, dict[int, StepAssessment]] = defaultdict(dict)
    for one in sorted(lake.rows(Reflection, {"trajectory_id": list(names)}), key=lambda row: row.created_at):
        found[one.trajectory_id][one.step] = StepAssessment(
            one.last_step_correct, one.last_step_redundant, one.reflection
        )
    return found


def _pictures(lake: Lake, steps: Iterable[Step]) -> dict[str, Picture]:
    """Return the pictures of steps. Raise LakeError if a picture is not in the lake."""
    wanted = {name for step in steps for name in step.pictures}
    found = {
        one.sha256: Picture(one.png, one.width, one.height) for one in lake.rows(Screenshot, {"sha256": sorted(wanted)})
    }
    if missing := wanted - found.keys():
        raise LakeError(
            f"{len(missing)} screenshots are not in the lake, {min(missing)} for one.",
            "Restore table `screenshots`, or delete the trajectories that show them.",
        )
    return found


def _tallied(records: Iterable[Exchanged], authors: Counter[str]) -> Iterator[Exchanged]:
    """Yield the records, and count their thoughts by author."""
    for record in records:
        authors.update(one.about.thought_by or ACTOR for one in record.steps if one.thought)
        yield record


def _with_progress(records: Iterable[Exchanged], total: int) -> Iterator[Exchanged]:
    """Yield the records, with a progress bar."""
    with bar() as progress:
        shown = progress.add_task("export", total=total, message="")
        for record in records:
            yield record
            progress.advance(shown)
