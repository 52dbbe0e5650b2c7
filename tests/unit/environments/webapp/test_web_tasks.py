"""The tasks of web applications: every verifier from both sides, on states that are ours."""

import re
from pathlib import Path

import pytest

from environments.webapp.changes import Edit, edited
from environments.webapp.environment import WebAppConfig, WebAppEnvironment, webapps_of
from environments.webapp.tasks import OURS, WebInstance, instance, read_tasks
from schemas.config import config_of
from schemas.failure import FlywheelError, UsageError
from schemas.world import State
from tests.fixtures.sentences import Sentences

FILES = [*sorted(OURS.glob("*.toml")), Path(__file__).parents[3] / "webapps" / "notes.toml"]
TASKS = [(path, name) for path in FILES for name in read_tasks(path).tasks]
SEEDS = range(8)
each_task = pytest.mark.parametrize(("path", "name"), TASKS, ids=[name for _, name in TASKS])


def instances(path: Path, name: str) -> list[WebInstance]:
    return [instance(read_tasks(path), name, seed) for seed in SEEDS]


def disturbed(one: WebInstance, state: State) -> list[State]:
    """The state with one more thing changed that nobody asked for: each watched field emptied or filled."""
    return [{**state, field: "something else"} for field in one.watches]


@each_task
def test_a_golden_state_scores_one_and_the_initial_one_nothing(path: Path, name: str):
    for one in instances(path, name):
        assert one.reward(one.initial, one.golden(one.initial)) == 1
        assert one.reward(one.initial, one.initial) == 0


@each_task
def test_a_state_that_nearly_does_it_scores_nothing(path: Path, name: str):
    for one in instances(path, name):
        assert len(one.task.near) >= 2
        for state in one.near(one.initial):
            assert state != one.initial
            assert one.reward(one.initial, state) == 0


@each_task
def test_half_of_what_is_asked_scores_nothing_and_neither_does_all_of_it_and_more(path: Path, name: str):
    for one in instances(path, name):
        golden = one.golden(one.initial)
        assert all(one.reward(one.initial, state) == 0 for state in disturbed(one, golden))
        for want in one.wants:
            left = [edit for edit in one.task.golden if edit.at != want.at]
            assert one.reward(one.initial, edited(one.initial, left)) == 0


@each_task
def test_what_may_change_on_the_way_does_not_spoil_it(path: Path, name: str):
    for one in instances(path, name):
        golden = one.golden(one.initial)
        for pattern in (pattern for pattern in one.allows if pattern.count("/") == 2):
            field, _, name = pattern.split("/")
            golden = edited(golden, [Edit(at=f"{field}/{item}/{name}", to="later") for item in _items(golden, field)])
        assert one.reward(one.initial, golden) == 1


def _items(state: State, field: str) -> list[str]:
    held = state.get(field)
    return [str(one["id"]) for one in held if "id" in one] if isinstance(held, list) else []


@each_task
def test_a_seed_draws_the_same_again_and_a_hand_has_steps_enough(path: Path, name: str):
    for seed, one in zip(SEEDS, instances(path, name), strict=True):
        assert one == instance(read_tasks(path), name, seed)
        assert "{" not in one.instruction and 0 < len(one.script) <= one.task.max_steps


def test_there_are_thirty_tasks_over_six_applications_and_most_differ_by_seed():
    ours = [(path, name) for path, name in TASKS if path.parent == OURS]
    assert len(ours) >= 30 and len({read_tasks(path).application for path, _ in ours}) >= 6
    for path in {path for path, _ in ours}:
        names = [name for where, name in ours if where == path]
        assert len(names) >= 5
        assert (
            sum(len({str(one.initial) + one.instruction for one in instances(path, name)}) > 1 for name in names) >= 3
        )
    assert {read_tasks(path).tasks[name].difficulty for path, name in ours} == {"easy", "medium", "hard"}


def test_a_file_that_makes_no_sense_is_refused_with_its_name_and_the_place(tmp_path: Path):
    good = FILES[-1].read_text()
    for wrong, answer in (
        (good.replace("max_steps = 4", 'max_steps = "few"'), "tasks.notes-tick.max_steps"),
        (good.replace("{words}", "{word}"), "nothing is drawn for {word}"),
        (good.replace("wants = [{ at", "# wants = [{ at"), "neither wants nor reward"),
        (good.replace('application = "notes"', ""), "application"),
        ("[tasks", "Expected"),
    ):
        file = tmp_path / f"{abs(hash(wrong))}.toml"
        file.write_text(wrong)
        with pytest.raises(UsageError) as caught:
            read_tasks(file)
        assert str(file) in str(caught.value) and answer in str(caught.value)


FILLED = """application = "notes"
watches = ["notes"]

[state]
notes = [{ id = "n1", text = "{{sic}}", done = false }]

[tasks.notes-write]
instruction = 'Write "{what.to1}" for {who-is}.'
draw.what = [{ to1 = "A", to-2 = 7, "größer" = { X9 = true } }, { to1 = "B", to-2 = 8, "größer" = { X9 = false } }]
draw.who-is = ["Ada", "Ben", "Cy"]
wants = [{ at = "notes/n1/text", to = "{what.to1}" }, { at = "notes/n1/done", to = "{what.größer.X9}" },
         { at = "notes/n1/count", to = "{what.to-2}" }]
golden = [{ at = "notes/n1/text", to = "{what.to1}" }]
"""


def written(folder: Path, text: str) -> Path:
    file = folder / f"{abs(hash(text))}.toml"
    file.write_text(text, "utf-8")
    return file


def test_a_placeholder_of_any_name_is_filled_with_its_kind_wherever_it_is_written(tmp_path: Path):
    file = read_tasks(written(tmp_path, FILLED))
    found = [instance(file, "notes-write", seed) for seed in range(30)]
    assert {one.instruction for one in found} == {
        f'Write "{to}" for {who}.' for to in "AB" for who in ("Ada", "Ben", "Cy")
    }
    for one in found:
        first = '"A"' in one.instruction
        assert [want.to for want in one.wants] == (["A", True, 7] if first else ["B", False, 8])
        assert one.golden(one.initial)["notes"][0]["text"] == "AB"[not first]
        assert one.initial["notes"][0]["text"] == "{sic}"


@pytest.mark.parametrize(
    ("right", "wrong", "answer"),
    [
        (
            'to = "{what.to1}" }, {',
            'to = "{what.to3}" }, {',
            "tasks.notes-write.wants.0.to: nothing is drawn for {what.to3}",
        ),
        ("for {who-is}", "for {who is}", "tasks.notes-write.instruction: nothing is drawn for {who is}"),
        ("for {who-is}", "for {}", "nothing is drawn for {}"),
        ("for {who-is}", "for {who-is", "a single { in"),
        ("{{sic}}", "{sic}", "state.notes.0.text: nothing is drawn for {sic}"),
        ("{{sic}}", "sic}", "state.notes.0.text: a single } in"),
        ('{ to1 = "B",', '{ to2 = "B",', "nothing is drawn for {what.to1}"),
        ('["Ada", "Ben", "Cy"]', "[]", "`draw.who-is` has no values"),
    ],
)
def test_a_brace_that_stands_for_nothing_in_any_of_the_draws_is_refused_with_its_place(
    tmp_path: Path, right: str, wrong: str, answer: str
):
    assert right in FILLED
    file = written(tmp_path, FILLED.replace(right, wrong, 1))
    with pytest.raises(UsageError) as caught:
        read_tasks(file)
    assert str(caught.value).startswith(f"{file}: ") and answer in str(caught.value)


def test_code_keeps_its_own_braces_and_has_those_of_drawn_names_filled(tmp_path: Path, sentence: Sentences):
    code = "(() => { const {size} = document; return size === '{what.to1}' ? 1 : null })()"
    text = FILLED[: FILLED.index("wants =")] + f'reward = "{code}"\n'
    one = instance(read_tasks(written(tmp_path, text)), "notes-write", 1)
    assert one.task.reward == code.replace("{what.to1}", one.instruction.split('"')[1])
    with sentence.raises(
        UsageError, "tasks.notes-write.reward", "what.to4", hint="webapps.md", NAME=re.compile(r"-?\d+(?=\.toml)")
    ):
        read_tasks(written(tmp_path, text.replace("{what.to1}' ?", "{what.to4}' ?")))


def test_a_config_takes_the_applications_that_it_names_and_files_of_its_own():
    environment = WebAppEnvironment("web", WebAppConfig(kind="webapp", apps=("gmail",), tasks=(str(FILES[-1]),)))
    assert environment.applications == ["gmail", "notes"]
    assert {"mail-star", "notes-add"} < set(environment.entries) and "shop-add" not in environment.entries
    task = environment.task("mail-star")
    assert (task.verifier, task.task_id) == ("webapp", "web/mail-star") and "easy" in task.tags
    assert task.instruction == 'Star the mail "{}" and no other.'
    with pytest.raises(UsageError, match=r"environments\.web\.apps.*gmali"):
        _ = WebAppEnvironment("web", WebAppConfig(kind="webapp", apps=("gmali",))).entries


def test_a_config_without_web_applications_means_all_that_there_are_tasks_for():
    assert len(webapps_of(config_of({"environments": {"fake": {}}, "suite": {"tasks": ["click-one"]}})).served) >= 6
    named = {"environments": {"web": {"kind": "webapp", "apps": ["jira"]}}, "suite": {"tasks": ["boards-new"]}}
    assert webapps_of(config_of(named)).served == ["jira"]


@pytest.mark.parametrize(
    "url", ["127.0.0.1:3000", "http://127.0.0.1:3000/path", "ftp://a.example", "http://a.example:99999"]
)
def test_an_origin_that_is_none_is_refused_by_its_key(url: str):
    config = WebAppConfig(kind="webapp", origins={"notes": url}, tasks=(str(FILES[-1]),))
    environment = WebAppEnvironment("web", config)
    with pytest.raises(UsageError, match=r"environments\.web\.origins\.notes"):
        environment.probes()[0].examine()


def test_an_address_at_which_nothing_answers_is_named_before_anything_is_rolled_out(sentence: Sentences):
    config = WebAppConfig(kind="webapp", origins={"notes": "http://127.0.0.1:9"}, tasks=(str(FILES[-1]),))
    named = {one.name: one for one in WebAppEnvironment("web", config).probes()}
    assert named["origins answer"].required
    with sentence.raises(FlywheelError, "environments.web.origins.notes"):
        named["origins answer"].examine()
