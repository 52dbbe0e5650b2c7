"""Which tasks a config rolls out, holds out and practises on, from one environment or several."""

from typing import Any

import pytest

from environments.catalog import catalog, name_in, tasks_named, whole_catalog
from environments.registry import left_out
from schemas.config import Config
from schemas.config.load import config_of
from schemas.failure import UsageError
from schemas.tables.task import short_names
from tests.fixtures.sentences import Sentences

COUNTING = "tests.unit.environments.counting:CountingEnvironment"
SEVERAL = {"miniwob": {}, "fake": {"sandboxes": 3}, "count": {"kind": COUNTING, "clicks": 1}}


def config(environments: dict[str, Any] | None = None, **suite: Any) -> Config:
    fields = {"suite": {"tasks": ["click-test"], **suite}}
    return config_of(fields | ({"environments": environments} if environments else {}))


def test_each_task_has_the_split_that_its_list_says() -> None:
    tasks = catalog(config(held_out=["click-test-2"], practice=["practice"]))
    assert [(task.template, task.split) for task in tasks] == [
        ("click-test", "train"),
        ("click-test-2", "held_out"),
        ("practice", "practice"),
    ]


def test_tasks_of_several_environments_are_in_one_suite_by_template_or_by_id() -> None:
    names = ["click-test", "fake/enter-text", "count", "note"]
    chosen = config(SEVERAL, tasks=names, hard=["fake/note"], max_steps={"note": 7})
    tasks = {task.task_id: task for task in catalog(chosen)}
    assert list(tasks) == ["miniwob/click-test", "fake/enter-text", "count/count", "fake/note"]
    assert [task.verifier for task in tasks.values()] == [
        "miniwob", "fake", "tests.unit.environments.counting:Counted", "judge",
    ]  # fmt: skip
    assert tasks["fake/note"].max_steps == 7 == tasks_named(chosen, ["fake/note"])[0].max_steps
    assert [name_in(chosen, name) for name in ("fake/note", "fake/enter-text")] == ["note", "fake/enter-text"]


def test_a_narrowed_suite_may_leave_out_hard_tasks_and_those_with_a_step_limit_of_their_own() -> None:
    chosen = config(SEVERAL, tasks=["click-test"], hard=["note"], max_steps={"note": 3})
    assert [task.template for task in catalog(chosen)] == ["click-test"]


def test_an_optional_environment_without_what_it_needs_is_left_out_with_its_tasks_and_another_is_not(
    no_bubblewrap: None,
    sentence: Sentences,
) -> None:
    tasks = ["fake/note", "files-open"]
    chosen = config({"fake": {}, "hybrid": {"optional": True}}, tasks=tasks, max_steps={"files-open": 3})
    assert [task.task_id for task in catalog(chosen)] == ["fake/note"]
    held = config({"fake": {}, "hybrid": {"optional": True}}, tasks=["fake/note"], held_out=["files-open"])
    assert [task.task_id for task in whole_catalog(held)] == ["fake/note", "hybrid/files-open"], "held out everywhere"
    assert "apt install bubblewrap" in left_out(chosen)["hybrid"]
    with sentence.raises(UsageError, "--tasks", "hybrid/files-open"):
        tasks_named(chosen, ["files-open"], "--tasks")
    with sentence.raises(UsageError):
        catalog(config({"fake": {}, "hybrid": {"optional": True}}, tasks=["files-open"]))
    asked = config({"fake": {}, "hybrid": {}}, tasks=tasks)
    assert not left_out(asked) and len(catalog(asked)) == 2


def test_a_verifier_that_is_not_there_is_refused_by_the_key_that_names_it(sentence: Sentences) -> None:
    page = {"kind": "html", "tasks": {"form": {"instruction": "Send it.", "verifier": "foo"}}}
    with sentence.raises(UsageError, "environments.mine.tasks.form.verifier", "'foo'"):
        catalog(config({"mine": page}, tasks=["form"]))


def test_people_read_the_template_alone_where_it_names_one_task() -> None:
    assert short_names(["a/x", "a/y", "b/y"]) == {"a/x": "x", "a/y": "a/y", "b/y": "b/y"}


@pytest.mark.parametrize(
    ("suite", "told"),
    [
        ({"tasks": ["enter-text"]}, r"suite\.tasks.*several.*Write `miniwob/enter-text` or `fake/enter-text`"),
        ({"tasks": ["fake/click-test"]}, r"suite\.tasks.*no task `fake/click-test`"),
        ({"tasks": []}, r"for example, 'suite\.tasks=\[\"click-test\"\]'"),
        ({"hard": ["qqq"]}, r"suite\.hard.*no task `qqq`\. Tasks of .* and \d+ more"),
        ({"tasks": ["click-tarjet"]}, r"Did you mean `click-target`"),
        ({"tasks": ["make-folders"]}, r"It is one of kind `desktop`: add a section `\[environments\.desktop\]`"),
        ({"practice": ["count"]}, r"suite\.practice.*count/count list no elements"),
        ({"practice": ["click-test"]}, r"suite\.practice"),
        ({"practice": ["practise"]}, r"suite\.practice"),
        ({"held_out": ["miniwob/click-test"]}, r"suite\.held_out.*also in suite\.tasks"),
        ({"tasks": ["borrowed"]}, r"count/borrowed`.*verifier fake reads FakeSandbox.*environment `count` are Sandbox"),
        ({"hard": ["nothing"]}, r"suite\.hard.*nothing"),
        ({"max_steps": {"nothing": 3}}, r"suite\.max_steps.*nothing"),
    ],
)
def test_a_name_that_cannot_be_is_refused_by_its_field(suite: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        catalog(config(SEVERAL, **suite))


def test_a_suite_that_lost_miniwob_by_naming_another_environment_is_told_to_name_it_too() -> None:
    lost = r"suite\.tasks.*no task `click-test`.*names other environments.*add it: environments\.miniwob"
    with pytest.raises(UsageError, match=lost):
        catalog(config({"site": {"pages": 4}}))
    assert catalog(config({"miniwob": {}, "site": {"pages": 4}}))
    with pytest.raises(UsageError) as other:
        catalog(config(tasks=["qqq"]))
    assert "MiniWoB" not in str(other.value)


def test_a_task_that_an_environment_of_ones_own_lacks_is_told_where_to_define_it() -> None:
    with pytest.raises(UsageError, match=r"no task `html/colour`.*\[environments\.html\.tasks\.colour\]") as missing:
        catalog(config({"html": {"folder": "pages", "tasks": {"red": {"instruction": "x"}}}}, tasks=["html/colour"]))
    assert "MiniWoB" not in str(missing.value)


@pytest.mark.parametrize(
    ("environments", "told"),
    [
        ({"wob": {}}, r"environments\.wob\.kind.*no 'wob'"),
        ({"wob": {"kind": "miniwob", "pagez": 2}}, r"environments\.wob\.pagez.*`pages`"),
        ({"count": {"kind": COUNTING, "clicks": 0}}, r"environments\.count\.clicks.*at least 1"),
        ({"fake": {"pages": 2}}, r"environments\.fake\.pages"),
        ({"fake": {"kind": "schemas.config:Config"}}, r"environments\.fake\.kind.*not a subclass"),
        ({"fake": 3}, r"environments\.fake"),
        ({"a/b": {"kind": "fake"}}, r"environments\.a/b"),
    ],
)
def test_a_section_is_refused_by_the_key_that_is_wrong(environments: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        config(environments)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"kind": "fake"}, r"'environments=\{\"fake\":\{\}\}' in place"),
        ({"pages": 2, "browser": "/x"}, r"environments\.miniwob\.browser.*environments\.miniwob\.pages"),
    ],
)
def test_the_keys_of_the_one_environment_of_old_are_refused_with_their_new_names(old: Any, new: str) -> None:
    with pytest.raises(UsageError, match=new):
        config_of({"suite": {"tasks": ["click-test"]}, "environment": old})


def test_a_config_with_several_environments_reads_back_as_itself() -> None:
    chosen = config(SEVERAL)
    assert Config.model_validate_json(chosen.canonical()) == chosen
    assert "clicks" in chosen.model_dump()["environments"]["count"]
