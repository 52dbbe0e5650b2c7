"""The catalog of hybrid tasks, without a browser or a shell: what a goal takes for reached, and what not."""

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_HALF_DOWN, ROUND_HALF_EVEN, ROUND_HALF_UP, Decimal
from itertools import product
from typing import Any

import pytest

from environments.hybrid.environment import FAMILIES, TEMPLATES
from environments.hybrid.sandbox import Snapshot, misses
from environments.hybrid.tasks.tables import HEADER
from environments.hybrid.tasks.task import HybridGoal, HybridInstance, csv
from environments.hybrid.web import HOME, Download

SEEDS, MANY = range(8), range(500)


def begun(one: HybridInstance) -> Snapshot:
    return Snapshot(
        files=one.contents, page=HOME, answers={trial.path: answers(one, trial) for trial in one.goal.trials}
    )


def answers(one: HybridInstance, trial: Any, source: bytes | None = None) -> tuple[Any, ...]:
    """What a program of the catalog answers: our own source, so it may run here."""
    names: dict[str, Any] = {}
    exec((source or one.contents[trial.path]).decode(), names)
    return tuple(outcome(names[trial.function], case) for case, _ in trial.cases)


def outcome(function: Any, case: Any) -> Any:
    try:
        return function(*case)
    except (IndexError, TypeError) as error:
        return repr(error)


def reached(one: HybridInstance) -> Snapshot:
    """What is there where everything was done, and nothing else."""
    goal, start = one.goal, begun(one)
    files = {**start.files, **{path: encoded(wanted) for path, wanted in goal.files.items() if wanted is not None}}
    return Snapshot(
        files={path: content for path, content in files.items() if goal.files.get(path, b"") is not None},
        folders=frozenset(goal.folders),
        executable=frozenset(goal.executable),
        uploads={form: encoded(wanted) for form, wanted in goal.uploads.items()},
        page=goal.page or HOME,
        opened=goal.opened,
        answer=goal.answer,
        answers={trial.path: tuple(answer for _, answer in trial.cases) for trial in goal.trials},
    )


def encoded(wanted: bytes | str) -> bytes:
    return wanted if isinstance(wanted, bytes) else wanted.encode()


def near(one: HybridInstance) -> Iterator[tuple[str, Snapshot]]:
    """What is there where one thing of it is missing, or one too many was done."""
    goal, done = one.goal, reached(one)
    for path, wanted in goal.files.items():
        if wanted is None:
            yield f"{path} is still there", replace(done, files={**done.files, path: b"left"})
            yield f"{path} cannot be read", replace(done, files={**done.files, path: None})
            yield f"{path} was renamed", replace(done, files={**done.files, "kept/elsewhere": one.contents[path]})
            yield f"{path} may be anywhere", replace(done, whole=False)
            continue
        yield (
            f"{path} is missing",
            replace(done, files={key: value for key, value in done.files.items() if key != path}),
        )
        yield f"{path} has more in it", replace(done, files={**done.files, path: encoded(wanted) + b"more\n"})
        yield f"{path} is no plain file", replace(done, files={**done.files, path: None})
    for path in set(one.files) - set(goal.files) - set(goal.free) - {trial.path for trial in goal.trials}:
        yield f"{path} is lost", replace(done, files={key: value for key, value in done.files.items() if key != path})
        yield f"{path} was touched", replace(done, files={**done.files, path: one.contents[path] + b"!"})
        if goal.executable and path not in goal.executable:
            yield f"{path} can be run, too", replace(done, executable=done.executable | {path})
    for path in goal.folders:
        yield f"{path} is missing", replace(done, folders=done.folders - {path})
    for path in goal.executable:
        yield f"{path} cannot be run", replace(done, executable=done.executable - {path})
    for form in goal.uploads:
        yield "nothing was uploaded", replace(done, uploads={})
        yield "something else was uploaded", replace(done, uploads={form: done.uploads[form] + b"more\n"})
        yield "it was uploaded elsewhere", replace(done, uploads={"another": done.uploads[form]})
    if goal.page is not None:
        yield "another page is open", replace(done, page=HOME)
    if goal.opened is not None:
        yield "another file is open", replace(done, opened=f"{goal.opened}.old")
    if goal.answer is not None:
        yield "there is no answer", replace(done, answer=None)
        yield "the answer is another", replace(done, answer=f"{goal.answer}0")
    for trial in goal.trials:
        yield "nothing was answered", replace(done, answers={})
        yield "one answer is wrong", replace(done, answers={trial.path: (*done.answers[trial.path][:-1], "no")})


def rows_of(one: HybridInstance) -> list[list[str]]:
    """Of its one table, without the header."""
    (content,) = one.contents.values()
    return [line.split(",") for line in content.decode().splitlines()[1:]]


def missed(one: HybridInstance, now: Snapshot) -> list[str]:
    return list(misses(one.goal, one.contents, now))


def test_there_are_at_least_forty_tasks_in_five_families_of_three_levels() -> None:
    assert len(TEMPLATES) >= 40
    assert {family.name for family in FAMILIES} == {"files", "text", "tables", "programs", "web"}
    assert {template.entry.tags[2] for template in TEMPLATES.values()} == {"easy", "medium", "hard"}
    assert all(min(len(family.templates), 8) == 8 for family in FAMILIES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_goal_that_is_reached_scores_and_its_beginning_and_every_near_miss_do_not(name: str) -> None:
    for seed in SEEDS:
        _, one = TEMPLATES[name].instance(name, seed)
        assert not missed(one, reached(one)), f"seed {seed}"
        assert missed(one, begun(one)), f"seed {seed} begins with what it asks for"
        misses_ = list(near(one))
        assert misses_
        for what, now in misses_:
            assert missed(one, now), f"seed {seed}: {what}"


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_seed_is_always_the_same_and_seeds_differ(name: str) -> None:
    template = TEMPLATES[name]
    made = [template.instance(name, seed) for seed in SEEDS]
    assert made == [template.instance(name, seed) for seed in SEEDS]
    assert len({repr(one) for one in made}) > 1
    assert all("{" not in words.replace("{}", "") for words, _ in made)


@pytest.mark.parametrize("name", [name for name in TEMPLATES if name.startswith("programs-")])
def test_a_program_fails_a_case_that_its_tests_show_and_the_way_s_passes_all(name: str) -> None:
    for seed in SEEDS:
        _, one = TEMPLATES[name].instance(name, seed)
        (trial,) = one.goal.trials
        right = tuple(answer for _, answer in trial.cases)
        assert answers(one, trial)[:3] != right[:3], f"seed {seed}: its tests pass already"
        (written,) = [move for move in one.script if getattr(move, "type", "") == "write_file"]
        assert answers(one, trial, written.content.encode()) == right


def lines_with_the_word(one: HybridInstance) -> str:
    word, name = map(str, one.words)
    return str(sum(word in line.split() for line in one.contents[name].decode().splitlines()))


def first_of_each_line(one: HybridInstance) -> str:
    name, new, old = map(str, one.words)
    rows = one.contents[name].decode().splitlines()
    return "".join(re.sub(rf"\b{old}\b", new, row, count=1) + "\n" for row in rows)


def the_limit_too(one: HybridInstance) -> str:
    return csv(HEADER, [row for row in rows_of(one) if int(row[4]) >= int(str(one.words[0]))])


def the_limit_too_downloaded(one: HybridInstance) -> str:
    (given,) = [block for block in one.web[HOME].blocks if isinstance(block, Download)]
    header, *rows = [line.split(",") for line in given.content.decode().splitlines()]
    return csv(header, [row for row in rows if int(row[1]) >= int(str(one.words[0]))])


def by_the_text_of_the_price(one: HybridInstance) -> str:
    return csv(HEADER, sorted(rows_of(one), key=lambda row: row[4], reverse=one.words == ("highest",)))


def by_id(one: HybridInstance) -> str:
    return csv(HEADER, sorted({tuple(row) for row in rows_of(one)}))


WRONG = {
    "text-count-word": lines_with_the_word,
    "text-replace": first_of_each_line,
    "tables-filter": the_limit_too,
    "tables-sort": by_the_text_of_the_price,
    "tables-no-copies": by_id,
    "web-filter-upload": the_limit_too_downloaded,
}


@pytest.mark.parametrize("name", WRONG)
def test_a_program_that_is_nearly_right_is_wrong_with_every_seed(name: str) -> None:
    for seed in MANY:
        _, one = TEMPLATES[name].instance(name, seed)
        (wanted,) = (one.goal.files or one.goal.uploads).values()
        assert isinstance(wanted, str) and WRONG[name](one) != wanted, f"seed {seed}"


def test_what_is_above_a_limit_is_neither_all_nor_nothing() -> None:
    for name, seed in product(("tables-filter", "web-filter-upload"), MANY):
        _, one = TEMPLATES[name].instance(name, seed)
        (wanted,) = (one.goal.files or one.goal.uploads).values()
        assert 3 <= len(str(wanted).splitlines()) < (9 if name.startswith("web") else 14)


def test_a_text_may_lack_its_last_line_s_end_and_bytes_may_not() -> None:
    assert not list(misses(HybridGoal({"a": "one\ntwo\n"}), {}, Snapshot({"a": b"one \ntwo"})))
    assert list(misses(HybridGoal({"a": b"one\n"}), {}, Snapshot({"a": b"one"})))
    assert list(misses(HybridGoal({"a": "one"}), {}, Snapshot({"a": b"\xff"})))


def test_the_name_of_a_file_may_be_written_as_find_and_grep_do() -> None:
    _, one = TEMPLATES["files-find-word"].instance("files-find-word", 1)
    done = reached(one)
    found = done.files["found.txt"]
    assert found is not None
    for folder in (b"./", b"/work/"):
        assert not missed(one, replace(done, files={**done.files, "found.txt": folder + found + b"\n"}))
    for folder in (b"../", b"/tmp/", b"work/"):
        assert missed(one, replace(done, files={**done.files, "found.txt": folder + found}))


def test_the_mean_is_the_same_however_halves_are_rounded() -> None:
    for seed in MANY:
        _, one = TEMPLATES["tables-mean"].instance("tables-mean", seed)
        prices = [int(row[4]) for row in rows_of(one)]
        mean, wanted = Decimal(sum(prices)) / len(prices), Decimal(str(one.goal.files["result.txt"]))
        assert {mean.quantize(wanted, how) for how in (ROUND_HALF_UP, ROUND_HALF_DOWN, ROUND_HALF_EVEN)} == {wanted}


def test_an_archive_that_is_unpacked_may_be_gone_and_what_was_in_it_may_not() -> None:
    _, one = TEMPLATES["files-unpack"].instance("files-unpack", 1)
    unpacked = {path: content for path, content in reached(one).files.items() if path not in one.files}
    assert not missed(one, replace(reached(one), files={**unpacked, "bundle.tar": b"tar"}))
    assert missed(one, replace(reached(one), files={"bundle.tar": b"tar"}))


def test_what_is_gone_may_leave_files_with_something_else_in_them_and_no_copy_of_itself() -> None:
    goal, start = HybridGoal({"a.txt": None, "b.txt": b"kept"}), {"a.txt": b"gone", "b.txt": b"kept"}
    for others in ({}, {"list.txt": b"a.txt 4"}):
        assert not list(misses(goal, start, Snapshot({"b.txt": b"kept", **others})))
    assert list(misses(goal, start, Snapshot({"b.txt": b"kept", ".a.txt": b"gone"})))


def test_an_answer_may_differ_in_case_and_space() -> None:
    assert not list(misses(HybridGoal(answer="Lyon"), {}, Snapshot(answer=" lyon\n")))
    assert list(misses(HybridGoal(answer="Lyon"), {}, Snapshot(answer="Lyons")))
