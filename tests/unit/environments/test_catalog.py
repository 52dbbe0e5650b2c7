"""Which tasks a config plays, holds out and practises on."""

import pytest

from environments.catalog import catalog
from schemas.config.load import config_of
from schemas.failure import UsageError


def config(**suite: list[str]):
    return config_of({"suite": {"tasks": ["click-test"], **suite}})


def test_each_task_has_the_split_that_its_list_says():
    tasks = catalog(config(held_out=["click-test-2"], practice=["practice"]))
    assert [(task.template, task.split) for task in tasks] == [
        ("click-test", "train"),
        ("click-test-2", "held_out"),
        ("practice", "practice"),
    ]


@pytest.mark.parametrize("suite", [{"practice": ["click-test"]}, {"practice": ["practise"]}])
def test_a_practice_page_that_is_evaluated_or_unknown_is_refused_by_its_field(suite: dict[str, list[str]]):
    with pytest.raises(UsageError, match=r"suite\.practice"):
        catalog(config(**suite))
