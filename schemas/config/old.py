"""Converts configs of earlier versions to today's keys, for policies that were trained then and are made again."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any


def modern(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Converts a resolved config of an earlier schema version to today's keys; one of today stays as it is."""
    config = deepcopy(dict(fields))
    if (old := config.pop("environment", None)) is not None:
        config["environments"] = {old["kind"]: _environment(old)}
    if "rules" in (gates := config.get("filter", {}).get("gates", ())):
        config["filter"] = _filter(config["filter"], gates)
    judge = config.get("judge", {})
    if "url" in judge:
        endpoint = {name: judge.pop(name) for name in ("url", "model", "timeout_s")}
        judge["options"] = endpoint if judge["kind"] == "endpoint" else {}
    return config


def _environment(old: Mapping[str, Any]) -> dict[str, Any]:
    limits = {"start_timeout_s": old["step_timeout_s"], "step_timeout_s": old["step_timeout_s"]}
    if old["kind"] == "fake":
        return {**limits, "sandboxes": old["browsers"] * old["pages"]}
    return {**limits, **{key: old[key] for key in ("browser", "browsers", "pages")}}


def _filter(old: Mapping[str, Any], gates: Sequence[str]) -> dict[str, Any]:
    """Replaces the gate `rules` of version 2 by the three gates with its effect."""
    at = gates.index("rules")
    options = dict(old.get("options", {}))
    rules = options.pop("rules", {})
    for name, key in (("loops", "max_repeats"), ("thoughts", "max_phrases")):
        if key in rules:
            options[name] = {key: rules[key]}
    return {**old, "gates": [*gates[:at], "actions", "thoughts", "loops", *gates[at + 1 :]], "options": options}
