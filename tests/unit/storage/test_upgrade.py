"""A lake of today's version that lacks a column which was added since gets it by the same upgrade."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from schemas.config.sections import LakeConfig
from schemas.failure import LakeError
from schemas.table import SCHEMA_VERSION
from schemas.tables.step import Step
from storage.lake import Lake
from storage.upgrade import upgrade


def test_columns_that_were_added_within_a_version_are_added_too(lake: Lake, row, tmp_path: Path) -> None:
    lake.append("annotations", [row("annotations")])
    place = f"{lake.uri}/tables/annotations"
    older = DeltaTable(place).to_pyarrow_table().drop_columns(["patterns", "version"])
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["iteration"])
    config, said = LakeConfig(uri=str(tmp_path / "lake")), list[str]()
    assert upgrade(config, said.append) == said and "annotations: patterns, version" in said[0] and len(said) == 1
    (found,) = Lake.open(config).read("annotations").to_pylist()
    assert found["patterns"] == [] and found["version"] is None
    assert upgrade(config, said.append) == []


def test_a_lake_of_the_version_before_is_refused_until_it_is_upgraded(lake: Lake, row, tmp_path: Path) -> None:
    lake.append("steps", [row("steps")])
    place, mark = f"{lake.uri}/tables/steps", tmp_path / "lake" / "flywheel.json"
    older = DeltaTable(place).to_pyarrow_table().drop_columns(["unused_arguments"])
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["iteration"])
    written = json.loads(mark.read_text())
    mark.write_text(json.dumps({**written, "schema_version": SCHEMA_VERSION - 1}))
    config, steps = LakeConfig(uri=str(tmp_path / "lake")), list[str]()
    with pytest.raises(LakeError, match="flywheel upgrade"):
        Lake.open(config)
    assert upgrade(config, steps.append) == ["table steps: unused_arguments", f"schema version {SCHEMA_VERSION}"]
    assert Lake.open(config).read("steps")["unused_arguments"].to_pylist() == [None]


def test_the_single_action_of_an_older_step_becomes_its_list_of_actions(lake: Lake, row, tmp_path: Path) -> None:
    click = '{"type":"click","x":0.5,"y":0.25}'
    lake.append("steps", [row("steps", step=0), row("steps", step=1, actions=[click])])
    place, mark = f"{lake.uri}/tables/steps", tmp_path / "lake" / "flywheel.json"
    now = DeltaTable(place).to_pyarrow_table()
    action = pa.array([(actions or [None])[0] for actions in now["actions"].to_pylist()], pa.string())
    at = now.column_names.index("actions")
    older = now.drop_columns(["actions", "frames"]).add_column(at, "action", action)
    write_deltalake(place, older, mode="overwrite", schema_mode="overwrite", partition_by=["iteration"])
    pinned = DeltaTable(place).version()
    mark.write_text(json.dumps({**json.loads(mark.read_text()), "schema_version": 5}))
    config, steps = LakeConfig(uri=str(tmp_path / "lake")), list[str]()
    assert upgrade(config, steps.append) == ["table steps: actions, frames", f"schema version {SCHEMA_VERSION}"]
    upgraded = Lake.open(config)
    found = sorted(upgraded.rows(Step), key=lambda one: one.step)
    assert [(one.actions, one.first, one.frames) for one in found] == [([], None, []), ([click], click, [])]
    assert "action" not in DeltaTable(place).to_pyarrow_table().column_names
    with upgraded.connect(["steps"], {"steps": pinned}) as connection:  # as a policy pins it
        seen = connection.sql("SELECT actions, frames FROM steps ORDER BY step").fetchall()
    assert seen == [([], []), ([click], [])]
