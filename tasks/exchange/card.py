"""Write the card of an export: what it has, where it is from, which gates it passed, and how it is read."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.card import UNKNOWN_LICENSE, card_of, code, plain, rows_of, section, size_category
from common.text import counted
from curation.converters.format import Format
from curation.redaction import Redactor
from environments.registry import ENVIRONMENTS
from schemas.config import Config
from schemas.failure import FlywheelError
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import PREPARE, label_of
from schemas.tables.task import IMPORTED
from schemas.tables.trajectory import IMPORT
from storage.catalog import ask
from storage.lake import Lake
from tasks.shared.policies import policies
from tasks.shared.version import code_version, version

TAGS = ("gui-agent", "computer-use", "trajectories", "flywheel")
CATEGORY = "image-text-to-text"
"""The Hub's category of tasks with images and text as input and text as output."""
ACTOR = "actor"
"""Author of the thoughts that the actor of a step gave itself."""
UNKNOWN_SOURCE = "unknown: see the source"
ROUTES_MEAN = {
    "sft": "accepted: training imitates it",
    "ct": "rejected: training uses its screens",
    "rl": "only training on groups uses it",
    "quarantine": "a reviewer must decide",
    "none": "no evidence about the policy",
    "undecided": "the filter has not processed it",
}


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected trajectories of an export."""

    rows: Sequence[Mapping[str, Any]]
    """Rows of the query `exchange_trajectories`."""
    route: str | None
    license: str = ""
    """Licence that the user gave; empty if none."""


def dataset_card(
    config: Config,
    lake: Lake,
    form: Format,
    chosen: Selection,
    redactor: Redactor | None,
    authors: Mapping[str, int],
) -> str:
    """Return the card of a written export.

    Args:
        config: config whose environments the tasks are from.
        lake: the lake.
        form: the format, after `write`.
        chosen: the exported trajectories.
        redactor: the redactor of the export; None for an export as it is.
        authors: number of thoughts by author.
    """
    rows = chosen.rows
    steps = sum(row["n_steps"] for row in rows)
    front = {
        "pretty_name": f"{config.name}: trajectories of a GUI agent",
        "license": chosen.license or UNKNOWN_LICENSE,
        "task_categories": [CATEGORY],
        "tags": [*TAGS, *form.tags],
        "size_categories": [size_category(steps)],
        "configs": form.configs,
    }
    tasks = len({row["task_id"] for row in rows})
    summary = (
        f"{counted(len(rows), 'trajectory', 'trajectories')} of {counted(tasks, 'task')}, with "
        f"{counted(steps, 'step')}, recorded by flywheel and written in the format `{form.name}`. "
        "A step has a screenshot, a thought and the actor's actions."
    )
    return card_of(
        front,
        f"{config.name}: trajectories of a GUI agent",
        summary,
        section("Read it", *_reading(form)),
        section("Counts", *_counts(rows)),
        section("Thoughts", *_thoughts(authors)),
        section("Source and licence", *_sources(config, lake, chosen)),
        section("Quality", *_quality(lake, chosen)),
        section("Redaction", _redaction(redactor)),
        section("Lineage", *_lineage(lake, rows)),
        section("Data versions", *_versions(lake, chosen)),
    )


def _reading(form: Format) -> list[str]:
    units = {"fraction": "fractions of the screen's sides, from 0 to 1", "thousandths": "thousandths of its sides"}
    unit = f"Coordinates are {units.get(form.unit, f'in {form.unit}')}"
    dialect = f", and actions have the dialect `{form.dialect}`." if form.dialect else "."
    loading = [code(form.loading, "python"), "`DIR` is this folder."] if form.loading else []
    own = "The object or column `flywheel` has the values without a column of their own, as JSON."
    return [*loading, form.contents, f"{unit}{dialect} {own}"]


def _counts(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return tables of outcomes, routes, policies and tasks."""
    outcomes = Counter(_outcome(row) for row in rows)
    routes = Counter[str](row["route"] for row in rows)
    actors = Counter((row["policy"], row["policy_version"]) for row in rows)
    tasks: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        tasks[row["task_id"]].append(row)
    listed = sorted(tasks.items(), key=lambda one: (-len(one[1]), one[0]))
    by_task = [
        (name, len(held), sum(row["success"] is True for row in held), sum(row["n_steps"] for row in held))
        for name, held in listed
    ]
    return [
        rows_of(("outcome", "trajectories"), outcomes.most_common()),
        rows_of(("route", "meaning", "trajectories"), [(one, ROUTES_MEAN[one], n) for one, n in routes.most_common()]),
        rows_of(("actor", "policy", "trajectories"), [(*who, n) for who, n in actors.most_common()]),
        rows_of(("task", "trajectories", "successes", "steps"), by_task),
    ]


def _thoughts(authors: Mapping[str, int]) -> list[str]:
    """Return a table of the thoughts' authors."""
    if not authors:
        return ["No step has a thought."]
    note = (
        "Thoughts of other authors than the actor were added after the step; `template` is a fixed text. They are not "
        "evidence of the actor's reasoning. A step's metadata `flywheel` names their author as `thought_by`."
    )
    table = rows_of(("author", "thoughts"), Counter(authors).most_common())
    return [table, note] if authors.keys() - {ACTOR} else [table]


def _made_in(iteration: int) -> str:
    return "before the first iteration" if iteration == PREPARE else label_of(iteration)


def _outcome(row: Mapping[str, Any]) -> str:
    if row["success"] is None:
        return f"no verdict: {row['failure_boundary']} failed" if row["failure_boundary"] else "unknown"
    return "success" if row["success"] else "failure"


def _sources(config: Config, lake: Lake, chosen: Selection) -> list[str]:
    """Return the licence, and a table of the tasks' origins."""
    given = (
        f"The publisher's licence of this data set is `{chosen.license}`."
        if chosen.license
        else "No licence was given for this data set. Before you publish it, set `license` above."
    )
    recorded = _recorded(lake, chosen.rows)
    origins = Counter(
        (name := row["environment"] or row["task_id"].partition("/")[0], row["lineage"] or "unknown",
         recorded.get(row["trajectory_id"]) or _license(config, name))
        for row in chosen.rows
    )  # fmt: skip
    table = [(*facts, count) for facts, count in origins.most_common()]
    head = ("environment", "origin of tasks and screens", "licence of the origin", "trajectories")
    note = "Screens show the environment's pages and applications, so their licence also applies to the images."
    return [given, rows_of(head, table), note]


def _recorded(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Return the licences of imported recordings, by trajectory."""
    names = [row["trajectory_id"] for row in rows if row["policy"] == IMPORT]
    found = lake.read("recordings", ["trajectory_id", "license"], {"trajectory_id": names}) if names else None
    return {row["trajectory_id"]: row["license"] for row in found.to_pylist()} if found is not None else {}


def _license(config: Config, environment: str) -> str:
    if environment == IMPORTED:
        return "that of the imported data"
    section = config.environments.get(environment)
    try:
        known = ENVIRONMENTS.class_of(section.kind).license if section else ""
    except FlywheelError:
        known = ""
    return known or UNKNOWN_SOURCE


def _quality(lake: Lake, chosen: Selection) -> list[str]:
    """Return a table of the gates with their pass rates."""
    found = ask(lake, "exchange_gates", ids=[row["trajectory_id"] for row in chosen.rows]).to_pylist()
    if not found:
        return ["No gate has checked these trajectories."]
    table = [
        (row["gate"], row["gate_version"], row["verdicts"], row["passed"], f"{row['passed'] / row['verdicts']:.1%}")
        for row in found
    ]
    return [
        "A gate is a check of the filter. The filter stops at the first gate that rejects a trajectory.",
        rows_of(("gate", "version", "checked", "passed", "pass rate"), table),
    ]


def _redaction(redactor: Redactor | None) -> str:
    if redactor is None:
        return "None: texts and images are as they were recorded, with any secrets and personal data in them."
    texts = ", ".join(f"{plain(kind)} {number:,}" for kind, number in sorted(redactor.texts.items())) or "none"
    unread = (
        f" Not checked: {counted(len(redactor.unread), 'image')} of steps, whose texts are unknown because neither the "
        "page nor a reader of texts listed them. A step needs its image, so they are as they were recorded, with any "
        "secrets in them."
        if redactor.unread
        else ""
    )
    left = (
        f" Left out: {counted(redactor.left_out, 'image')} after a last step or between actions, whose texts are "
        "unknown, too. No step needs them, so their fields are empty."
        if redactor.left_out
        else ""
    )
    return (
        f"Secrets and personal data with a known form were removed. From texts: {texts}. In images: "
        f"{counted(redactor.regions, 'region')} of {counted(len(redactor.painted), 'image')} painted over."
        f"{unread}{left}"
    )


def _lineage(lake: Lake, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return tables of the policies with their parents, and of the imports."""
    known, acted = policies(lake), Counter(str(row["policy_version"]) for row in rows)
    imports = Counter((row["policy_version"], row["iteration"]) for row in rows if row["policy"] == IMPORT)
    chain = _with_parents(known, acted)
    made = [
        (one.policy_version, one.method, one.parent or "none", _made_in(one.iteration), one.code[:12]) for one in chain
    ]
    brought = [(name, label_of(iteration), count) for (name, iteration), count in imports.most_common()]
    tables = [
        rows_of(("policy", "method", "parent", "trained in", "code"), made),
        rows_of(("import (format and digest)", "stored as", "trajectories"), brought),
    ]
    return tables if any(tables) else ["No policy acted here: explorers have no parents."]


def _with_parents(known: Mapping[str, PolicyVersion], acted: Mapping[str, int]) -> list[PolicyVersion]:
    """Return the policies that acted, each with its parents; updated weights (`CANDIDATE+UPDATES`) count as the
    candidate's."""
    found: dict[str, PolicyVersion] = {}
    for name in acted:
        row = known.get(name) or known.get(name.rpartition("+")[0])
        while row is not None and row.policy_version not in found:
            found[row.policy_version] = row
            row = known.get(row.parent or "")
    return [one for name, one in known.items() if name in found]


def _versions(lake: Lake, chosen: Selection) -> list[str]:
    limits = sorted({row["iteration"] for row in chosen.rows})
    asked = " to ".join(dict.fromkeys((label_of(limits[0]), label_of(limits[-1]))))
    facts = [
        ("lake", lake.lake_id),
        ("iterations", asked),
        ("route", chosen.route or "all"),
        ("flywheel", version()),
        ("code", code_version()),
    ]
    tables = ", ".join(f"{name} {number}" for name, number in sorted(lake.versions().items()))
    return [rows_of(("", ""), [*facts, ("Delta versions of tables", tables)])]
