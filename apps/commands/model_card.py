"""Write the card of an exported policy: how it is loaded, trained and measured, and from which data."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apps.commands.lineage import PolicyLineage, lineage_of_policy
from common.card import CARD, UNKNOWN_LICENSE, card_of, code, front_of, plain, rows_of, section
from common.text import counted
from curation.intervals import Interval, mean_interval, wilson
from models.tiny.layout import is_tiny
from schemas.config.hub import PRETRAINED, SMALL
from schemas.tables.policy import PolicyVersion
from schemas.tables.stage import label_of
from storage.catalog import ask
from storage.lake import Lake
from tasks.promote.events import standing
from tasks.shared.cards import MODEL_FRONT

KEPT = ("pretrained", "adopted")
"""Kinds of policies whose checkpoint keeps its own card, since this project's training on tasks did not make it."""
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")
_SUITES = {"suite": "tasks of the training", "held_out": "held-out tasks", "synthesized": "made tasks"}
_PROMPT = ("template", "dialect", "context", "history_images", "thoughts", "max_new_tokens")
LIMITS = (
    "Success was measured only on the tasks above, with the screens of their environments. Success on other tasks, "
    "applications and sizes of screens is unknown.",
    "The policy acts on what its screen shows, also on text that an attacker wrote there. Run it in a sandbox.",
    "Weights may have memorised training data; an export of weights is not redacted.",
)


def write_model_card(lake: Lake, row: PolicyVersion, folder: Path, license: str = "") -> None:
    """Write the card of a policy into the folder of its exported checkpoint; a policy of `KEPT` keeps its own card.

    Args:
        lake: the lake.
        row: the policy.
        folder: the exported folder.
        license: licence that the user gave, as on the Hub; if empty, the licence of the base model's card.
    """
    file = folder / CARD
    if row.kind in KEPT and file.is_file() and not license:
        return
    file.write_text(_card(lake, row, folder, license), encoding="utf-8")


def _card(lake: Lake, row: PolicyVersion, folder: Path, license: str) -> str:
    config: Mapping[str, Any] = json.loads(row.config)
    policy = config.get("policy", {})
    base, inherited = _base(str(policy.get("base", "tiny")))
    lost = lake.missing(row.pins)
    lineage = None if lost else lineage_of_policy(lake, row)
    small = is_tiny(_config(folder))
    family = "tiny" if small else str(policy.get("family", "auto"))
    front = {
        "license": license or inherited or UNKNOWN_LICENSE,
        "base_model": base,
        **MODEL_FRONT,
        "tags": [*MODEL_FRONT["tags"], row.method, f"family-{family.rpartition(':')[2]}"],
    }
    made = "made it with random weights" if row.method == "random" else f"trained it by the method `{row.method}`"
    parent = f", starting from `{row.parent}`" if row.parent else ""
    named = f" Its base model is {plain(base)}." if base else ""
    summary = (
        "A policy for graphical interfaces: it reads a screenshot and an instruction, and writes a thought and "
        f"actions. flywheel {made}{parent}.{named}"
    )
    return card_of(
        front,
        row.policy_version,
        summary,
        section("Use it", *_use(policy, family, small)),
        section("Results", *_results(lake, row)),
        section("Training", *_training(lake, row, config)),
        section("Data", *_data(lineage, lost)),
        section("Parents", _parents(lineage)),
        section("Limits", "\n".join(f"- {one}" for one in LIMITS)),
    )


def _config(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _base(base: str) -> tuple[str, str]:
    """Return a base model's name on the Hub and its licence; empty texts for what is unknown.

    The name comes from the Hub's cache, from the base's config or from its card. The path on this machine is never
    written.
    """
    if base in (SMALL, PRETRAINED):
        return "", ""
    folder = Path(base)
    front = front_of(folder / CARD)
    cached = _CACHED.search(base)
    named = [f"{cached[1]}/{cached[2]}"] if cached else []
    named += [str(_config(folder).get("_name_or_path") or ""), front.get("base_model", "")]
    if not folder.is_absolute() and not folder.exists():
        named.insert(0, base)
    return next((one for one in named if _HUB_NAME.fullmatch(one)), ""), front.get("license", "")


def _use(policy: Mapping[str, Any], family: str, small: bool) -> list[str]:
    loading = (
        "from transformers import AutoModelForImageTextToText, AutoProcessor\n\n"
        'model = AutoModelForImageTextToText.from_pretrained("DIR")\nprocessor = AutoProcessor.from_pretrained("DIR")'
    )
    chosen = "" if small else f" policy.family={family}"
    commands = f"flywheel run policy.base=DIR{chosen}"
    if not small:
        commands = f"vllm serve DIR --port 8000\n{commands} policy.server.url=http://localhost:8000/v1"
    settings = [(f"policy.{name}", policy[name]) for name in _PROMPT if policy.get(name) is not None]
    return [
        "`DIR` is this folder.",
        code(loading, "python"),
        "flywheel writes the prompts, reads the actions and performs them in sandboxes:",
        code(commands),
        "The policy was trained with these prompts:",
        rows_of(("key", "value"), [("policy.family", family), *settings]),
    ]


def _results(lake: Lake, row: PolicyVersion) -> list[str]:
    """Return a table of success by suite, next to the parent's, and one by task."""
    found = _measured(lake, row.policy_version)
    if not found:
        return ["This policy was not measured."]
    parents = _measured(lake, row.parent) if row.parent else {}
    suites = [
        (_SUITES[suite], *_rate(_mean(tasks.values())), _percent(_mean(parents.get(suite, {}).values())))
        for suite, tasks in found.items()
    ]
    tasks = [
        (task, _SUITES[suite], *_rate(wilson(*counts)))
        for suite, measured in found.items()
        for task, counts in measured.items()
    ]
    return [
        "Success on seeds that no training uses, as a mean over tasks, with 95 % intervals. Environment failures are "
        "left out.",
        rows_of(("suite", "success", "interval", "trajectories", "parent's success"), suites),
        rows_of(("task", "suite", "success", "interval", "trajectories"), tasks, most=200),
    ]


def _measured(lake: Lake, version: str) -> dict[str, dict[str, tuple[int, int]]]:
    """Return successes and trials of a policy by suite and task."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for row in ask(lake, "success_by_task", policy=version).to_pylist():
        found.setdefault(row["suite"], {})[row["task_id"]] = (row["successes"], row["trials"])
    return found


def _mean(counts: Iterable[tuple[int, int]]) -> Interval:
    held = list(counts)
    return mean_interval([won for won, _ in held], [tried for _, tried in held])


def _rate(at: Interval) -> tuple[str, str, int]:
    return _percent(at), f"{at.low:.1%} to {at.high:.1%}", at.n


def _percent(at: Interval) -> str:
    return f"{at.mean:.1%}" if at.n else "not measured"


def _training(lake: Lake, row: PolicyVersion, config: Mapping[str, Any]) -> list[str]:
    steps = lake.read("training_steps", ["step"], {"policy_version": row.policy_version})["step"].to_pylist()
    metrics: Mapping[str, Any] = json.loads(row.metrics or "{}")
    numbers = [(name, f"{one:.6g}") for name, one in sorted(metrics.items()) if _is_number(one)]
    facts = [
        ("method", row.method),
        ("trained in", label_of(row.iteration)),
        ("optimiser steps", max(steps, default=None)),
        ("config", config.get("name", "")),
        ("seed", str(row.seed)),
        ("code", row.code),
        ("finished", f"{row.created_at:%Y-%m-%d %H:%M} UTC"),
        ("table versions", ", ".join(f"{table} {version}" for table, version in sorted(row.pins.items()))),
        *((f"digest of {name}", digest) for name, digest in sorted(json.loads(row.training_set or "{}").items())),
    ]
    return [rows_of(("", ""), facts), rows_of(("measure of the training", "value"), numbers)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _data(lineage: PolicyLineage | None, lost: Mapping[str, int]) -> list[str]:
    """Return tables of the trajectories that the training read."""
    if lineage is None:
        return [f"Unknown: versions of the tables {', '.join(sorted(lost))} were removed from the lake."]
    if not lineage.trajectories:
        return ["No trajectory: the policy was not trained on any."]
    tasks = Counter[str]()
    for (_, task), count in lineage.by_task.items():
        tasks[task] += count
    makers = [(one.kind, one.name, one.version, one.n) for one in lineage.makers]
    people = [(decision, count) for (_, decision), count in lineage.by_person.items()]
    return [
        f"The training read {counted(len(lineage.trajectories), 'trajectory', 'trajectories')}.",
        rows_of(("route", "trajectories"), [(route or "none yet", n) for route, n in lineage.by_route.items()]),
        rows_of(("task", "trajectories"), tasks.most_common()),
        rows_of(("annotations and verdicts of", "name", "version", "number"), makers),
        rows_of(("reviewers' decisions", "number"), _summed(people)),
    ]


def _summed(pairs: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return counts by kind. Reviewers' names stay in the lake."""
    total = Counter[str]()
    for kind, count in pairs:
        total[kind] += count
    return total.most_common()


def _parents(lineage: PolicyLineage | None) -> str:
    if lineage is None:
        return ""
    rows = [(one.policy_version, one.method, standing(one, lineage.fallen), one.code[:12]) for one in lineage.chain]
    return rows_of(("policy", "method", "status", "code"), rows)
