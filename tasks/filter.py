"""Stage: what every gate says of every trajectory, and the route its data takes."""

from collections import Counter
from typing import Any

from curation.filtering import verdicts_of
from storage.lake import Lake
from tasks.shared.run import Run
from tasks.shared.stage import stage


@stage("filter")
def filter_trajectories(run: Run, iteration: int) -> dict[str, Any]:
    """Rules, then the verifier or what the judge said; environment failures set apart; every rejection with its gate
    and reason."""
    lake = run.lake
    trajectories = lake.read("trajectories", where={"iteration": iteration}).to_pylist()
    columns = ["trajectory_id", "step", "screenshot", "action", "action_error", "thought"]
    steps = steps_by_trajectory(lake, iteration, columns)
    judged = lake.read("verdicts", ["trajectory_id", "reason"], {"iteration": iteration, "gate": "judge"}).to_pylist()
    said = {row["trajectory_id"]: row["reason"] for row in judged}
    verdicts = [
        verdict
        for row in trajectories
        for verdict in verdicts_of(row, steps.get(row["trajectory_id"], []), said.get(row["trajectory_id"], ""))
    ]
    lake.append("verdicts", verdicts)
    routes = Counter(verdict.route for verdict in verdicts if verdict.gate == "route")
    told = ", ".join(f"{route} {routes.get(route, 0)}" for route in ("sft", "ct", "none"))
    return {"routes": dict(routes), "say": told}


def steps_by_trajectory(lake: Lake, iteration: int, columns: list[str]) -> dict[str, list[dict[str, Any]]]:
    """An iteration's steps, in order, by trajectory."""
    rows = lake.read("steps", columns, {"iteration": iteration}).to_pylist()
    grouped: dict[str, list[dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: row["step"]):
        grouped.setdefault(row["trajectory_id"], []).append(row)
    return grouped
