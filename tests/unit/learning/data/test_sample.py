"""What training is handed survives the way through its files."""

from pathlib import Path

import pytest

from learning.data.sample import order_of, read_samples, read_screenshots, write_samples, write_screenshots
from tests.unit.learning.samples import samples


def test_samples_come_back_as_they_were(tmp_path: Path) -> None:
    made, pngs = samples(8)
    assert write_samples(tmp_path / "samples", made) == pngs.keys()
    write_screenshots(tmp_path / "screenshots", pngs)
    back = read_samples(tmp_path / "samples")
    assert [(item.actions, item.history, len(item.questions)) for item in back] == [
        (item.actions, item.history, len(item.questions)) for item in made
    ]
    assert back[-1] == back[len(made) - 1] and back[1:3] == [back[1], back[2]]
    assert read_screenshots(tmp_path / "screenshots") == pngs


def test_when_samples_come_is_left_to_their_weights_unless_it_was_drawn_beforehand(tmp_path: Path) -> None:
    write_samples(tmp_path / "samples", samples(4)[0])
    assert order_of(read_samples(tmp_path / "samples")) is None


def test_the_size_of_a_screenshot_is_known_without_its_pixels(tmp_path: Path) -> None:
    _, pngs = samples(1)
    write_screenshots(tmp_path / "screenshots", pngs)
    screenshots = read_screenshots(tmp_path / "screenshots")
    assert {screenshots.size(digest) for digest in pngs} == {(96, 64)}
    with pytest.raises(KeyError, match="nowhere"):
        screenshots.size("nowhere")
