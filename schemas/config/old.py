"""Configs of earlier versions in today's keys: of policies that were trained then and are to be made again."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any


def modern(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved config of schema version 1 in today's keys; one of today stays as it is."""
    config = deepcopy(dict(fields))
    if (old := config.pop("environment", None)) is not None:
        config["environments"] = {old["kind"]: _environment(old)}
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
