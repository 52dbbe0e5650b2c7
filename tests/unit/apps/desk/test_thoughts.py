"""The desk and the report say who wrote a thought, and which patterns of reasoning it shows."""

from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from apps.report.build import build_report
from tests.unit.apps.conftest import Place

NOW = datetime(2026, 2, 1, tzinfo=UTC)


@pytest.mark.slow
def test_a_thought_is_shown_with_its_author_and_patterns_and_never_as_markup(
    fresh: Place, desk: TestClient, first: dict[str, Any]
) -> None:
    kept = {
        "trajectory_id": first["trajectory_id"], "step": 0, "iteration": first["iteration"], "kind": "thought",
        "action": None, "before": None, "after": None,
    }  # fmt: skip
    fresh.lake.append(
        "annotations",
        [
            {**kept, "annotation_id": "a", "author": "template", "thought": "Click it.", "created_at": NOW},
            {**kept, "annotation_id": "b", "author": "bootstrap", "thought": "<b>Red</b> is left.",
             "created_at": NOW.replace(day=2), "patterns": ["long_term_consistency"], "version": "policy-0003@abc"},
        ],
    )  # fmt: skip
    shown = desk.get(f"/api/trajectories/{first['trajectory_id']}").json()["steps"][0]["thoughts"]
    assert [(one["author"], one["patterns"]) for one in shown] == [
        ("bootstrap", ["long_term_consistency"]),
        ("template", []),
    ]
    page = desk.get(f"/trajectory/{first['trajectory_id']}").text
    assert "bootstrap policy-0003@abc · long term consistency" in page
    assert "&lt;b&gt;Red&lt;/b&gt; is left." in page and "<b>Red</b>" not in page
    report = build_report(fresh.config).read_text()
    assert "<td>bootstrap</td>" in report and "long term consistency 1" in report
