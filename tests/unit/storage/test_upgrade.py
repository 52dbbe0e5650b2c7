"""A lake of today's version that lacks a column which was added since gets it by the same upgrade."""

from pathlib import Path

from deltalake import DeltaTable, write_deltalake

from schemas.config.sections import LakeConfig
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
