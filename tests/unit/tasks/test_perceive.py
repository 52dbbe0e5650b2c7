"""Screens without elements are read off their pixels, each picture once whatever dies; what was drawn rests in the
lake."""

import hashlib
import io
from pathlib import Path
from typing import Any, ClassVar

import pytest
from PIL import Image, ImageDraw

from curation.annotation import TrajectoryRoute
from curation.perception.perceive import Chosen
from models.readers import ScreenReader
from schemas.config import Config, config_of
from schemas.observation import Element, elements_json
from schemas.table import utc_now
from schemas.tables.step import Step
from storage.lake import Lake
from tasks.annotate import perception_of

BUTTONS = (
    Element("ok", "button", (0.1, 0.5, 0.4, 0.6), True),
    Element("cancel", "button", (0.1, 0.8, 0.4, 0.9), True),
)


class CountingReader(ScreenReader):
    """Knows two words, and dies of the picture it is told to die of."""

    name: ClassVar[str] = "counting-1"
    seen: ClassVar[list[str]] = []
    deadly: ClassVar[str] = ""

    def read(self, png: bytes) -> list[Element]:
        digest = hashlib.sha256(png).hexdigest()
        if digest == self.deadly:
            raise KeyboardInterrupt
        self.seen.append(digest)
        return [Element("Inbox", "text", (0.1, 0.2, 0.5, 0.3), False)]


def picture(number: int) -> bytes:
    image = Image.new("RGB", (160, 210), "white")
    ImageDraw.Draw(image).rectangle((0, 0, number + 1, 3), fill="black")
    out = io.BytesIO()
    image.save(out, "png")
    return out.getvalue()


@pytest.fixture
def config(tmp_path: Path) -> Config:
    CountingReader.seen.clear()
    CountingReader.deadly = ""
    return config_of(
        {
            "lake": {"uri": str(tmp_path / "lake")},
            "environments": {"fake": {}},
            "suite": {"tasks": ["click-one"]},
            "annotate": {"reader": f"{__name__}:CountingReader"},
        }
    )


def chosen(lake: Lake, count: int, elements: str = "[]", most: int = 100) -> Chosen:
    """So many screens of one trajectory, stored."""
    pngs = [picture(number) for number in range(count)]
    digests = [hashlib.sha256(png).hexdigest() for png in pngs]
    rows: list[dict[str, Any]] = [
        {"sha256": digest, "iteration": 0, "png": png, "width": 160, "height": 210, "phash": "0"}
        for digest, png in zip(digests, pngs, strict=True)
    ]
    lake.append("screenshots", rows)
    plain = {"trajectory_id": "t", "iteration": 0, "screen_width": 160, "screen_height": 210, "actions": []}
    plain |= {"next_screenshot": None, "action_error": None}
    steps = [
        Step.model_construct(**plain, step=at, screenshot=digest, elements=elements)
        for at, digest in enumerate(digests)
    ]
    found = Chosen({"t": TrajectoryRoute(False, "ct", "", None)}, most)
    assert [list(one) for one in found.passing([steps])] == [steps]
    return found


def test_no_picture_is_read_twice_not_even_after_a_kill(config: Config) -> None:
    lake = Lake.open(config.lake)
    found = chosen(lake, 12)
    CountingReader.deadly = sorted(found.steps)[-1]
    with pytest.raises(KeyboardInterrupt):
        perception_of(config, lake, found, utc_now())
    assert (len(CountingReader.seen), lake.count("readings")) == (11, 11)
    CountingReader.deadly = ""
    made = perception_of(config, lake, found, utc_now())
    assert len(CountingReader.seen) == 12 == len(set(CountingReader.seen))
    assert {one.author for one in made} == {"ocr"} and {one.kind for one in made} >= {"grounding", "caption"}
    again = perception_of(config, lake, chosen(lake, 12), utc_now())
    assert len(CountingReader.seen) == 12
    assert {one.annotation_id for one in again} == {one.annotation_id for one in made}


def test_what_a_page_lists_is_not_read_and_marked_pictures_rest_in_the_lake_once(config: Config) -> None:
    lake = Lake.open(config.lake)
    perception_of(config, lake, chosen(lake, 3, elements_json(BUTTONS)), utc_now())
    made = perception_of(config, lake, chosen(lake, 3, elements_json(BUTTONS)), utc_now())
    assert not CountingReader.seen and {one.author for one in made} == {"page"}
    marked = {one.after for one in made if one.kind == "marks"}
    stored = lake.read("screenshots", ["sha256", "png"]).to_pylist()
    assert len(marked) == 3 and len(stored) == 6
    assert all(hashlib.sha256(one["png"]).hexdigest() == one["sha256"] for one in stored)
    assert marked <= {one["sha256"] for one in stored}


def test_as_many_screens_as_asked_for_and_the_same_ones_every_time(config: Config) -> None:
    lake = Lake.open(config.lake)
    first, second = (set(chosen(lake, 20, most=5).steps) for _ in range(2))
    assert first == second and len(first) == 5


def test_nothing_is_read_without_a_reader_and_no_kind_is_made_that_is_not_listed(config: Config) -> None:
    lake = Lake.open(config.lake)
    page = config.model_copy(update={"annotate": config.annotate.model_copy(update={"reader": "page"})})
    assert perception_of(page, lake, chosen(lake, 3), utc_now()) == []
    few = config.annotate.model_copy(update={"perception": ("caption",)})
    made = perception_of(
        config.model_copy(update={"annotate": few}), lake, chosen(lake, 2, elements_json(BUTTONS)), utc_now()
    )
    assert {one.kind for one in made} == {"caption"}
