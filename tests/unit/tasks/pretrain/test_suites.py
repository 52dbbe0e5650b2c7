"""Pages that share something with a suite are refused, and the error names what; the compared suites are listed."""

import pytest

from curation.overlap import Overlap
from schemas.config import config_of
from schemas.failure import FlywheelError
from tasks.pretrain.suites import require_apart, suites_of
from tests.fixtures.sentences import Sentences


def test_pages_that_are_apart_pass() -> None:
    require_apart(Overlap((), (), 25, ("page a", "games/snake-1 with seed 3")))
    require_apart(Overlap((), (), None, None))


def test_shared_phrases_markup_and_looks_are_refused_by_name(sentence: Sentences) -> None:
    nearest = ("page a", "games/snake-1 with seed 3")
    with pytest.raises(FlywheelError) as caught:
        require_apart(Overlap(("open the box and look",), ("div > p",), 3, nearest))
    sentence(caught.value)
    assert "open the box and look" in caught.value.problem and "games/snake-1" in caught.value.problem


def test_pages_are_compared_with_the_suites_of_the_config_and_of_the_project(no_bubblewrap: None) -> None:
    config = config_of({"environments": {"pages": {}, "fake": {}}, "suite": {"tasks": ["click-target"]}})
    found, left_out = suites_of(config)
    assert "fake" in {one.name for one in found} and "pages" not in {one.name for one in found} | left_out.keys()
    assert {"miniwob", "games", "hybrid"} <= {one.name for one in found} | left_out.keys()
    assert "hybrid" in left_out
