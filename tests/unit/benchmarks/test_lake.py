"""The benchmark of the lake's queries asks each of them with all of its parameters."""

from pathlib import Path

import pytest

from benchmarks.lake import answered, of_files, queries
from benchmarks.tables.wide import fill_iterations
from schemas.config.sections import LakeConfig
from storage.catalog import FOLDER
from storage.lake import Lake


@pytest.mark.slow
def test_each_query_is_asked_with_its_parameters(tmp_path: Path) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake")))
    fill_iterations(lake, 20, 2)
    asked = {**queries(1), **of_files(lake, 1, tmp_path)}
    assert asked.keys() == {path.stem for path in FOLDER.glob("*.sql")}
    for name, values in asked.items():
        answered(lake, name, values)
