"""What training is handed survives the way through its files."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from learning.data.sample import read_samples, read_screenshots, write_samples, write_screenshots
from tests.unit.learning.samples import samples


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    made, pngs = samples(8)
    write_samples(tmp_path / "s.parquet", made)
    write_screenshots(tmp_path / "p.parquet", pngs)
    back = read_samples(tmp_path / "s.parquet")
    assert [(item.action, item.history, len(item.questions)) for item in back] == [
        (item.action, item.history, len(item.questions)) for item in made
    ]
    assert read_screenshots(tmp_path / "p.parquet") == pngs


def test_further_columns_of_the_screenshots_are_left_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"phash": [1], "sha256": ["a"], "png": [b"x"]}), tmp_path / "p.parquet")
    assert read_screenshots(tmp_path / "p.parquet") == {"a": b"x"}
