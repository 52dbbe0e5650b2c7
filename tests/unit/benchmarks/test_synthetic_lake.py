"""The lakes that benchmarks read hold what a wheel's would: pictures are what their names say."""

import hashlib
from pathlib import Path

from benchmarks.shared.synthetic_lake import fill
from schemas.config.sections import LakeConfig
from storage.lake import Lake


def test_a_made_lake_has_a_picture_for_every_screen_by_the_name_of_its_bytes(tmp_path: Path) -> None:
    lake = Lake.open(LakeConfig(uri=str(tmp_path / "lake"), min_free_mb=10))
    trajectories = fill(lake, 400)
    assert lake.count("trajectories") == trajectories and 300 < lake.count("steps") < 500
    pictures = lake.read("screenshots", ["sha256", "png"]).to_pylist()
    assert all(hashlib.sha256(row["png"]).hexdigest() == row["sha256"] for row in pictures)
    names = {row["sha256"] for row in pictures}
    shown = lake.read("steps", ["screenshot"])["screenshot"].to_pylist()
    assert len(names) == len(pictures) and set(shown) == names and len(names) < len(shown)
