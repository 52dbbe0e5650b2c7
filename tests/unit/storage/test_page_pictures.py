"""A picture that a rendered page has stays when a trajectory with the same picture is forgotten."""

from storage.forgetting import own_screenshots
from storage.lake import Lake
from tests.unit.storage.conftest import Rows


def test_pictures_of_pages_are_not_forgotten_with_a_trajectory(lake: Lake, row: Rows) -> None:
    lake.append("steps", [row("steps", screenshot="a" * 64, next_screenshot="b" * 64)])
    assert own_screenshots(lake, ["t0"]) == {"a" * 64, "b" * 64}
    lake.append("pages", [row("pages", sha256="a" * 64)])
    assert own_screenshots(lake, ["t0"]) == {"b" * 64}
