"""Every task's goal from both sides, without a desktop: reached by what it asks for, and by nothing less or else."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from environments.desktop.environment import TASKS
from environments.desktop.goal import DesktopGoal, File, State, Want, Window, expected, unmet
from environments.desktop.tasks.task import DesktopInstance

SEEDS = range(12)
SIZE = (1024, 768)


def window(title: str, want: Want = "shown") -> Window:
    x = 560 if want == "right half" else 40
    maximised, minimised = want == "maximised", want == "minimised"
    return Window(1, title, ("xterm", "XTerm"), x, 60, 344, 150, want == "active", maximised, minimised)


def windows(wants: Mapping[str, Want]) -> tuple[Window, ...]:
    return tuple(window(title, want) for title, want in wants.items() if want != "closed")


def held(files: Mapping[str, bytes], executable: tuple[str, ...] = ()) -> dict[str, File]:
    return {
        path: File() if path.endswith("/") else File(content, path in executable) for path, content in files.items()
    }


def started(instance: DesktopInstance) -> State:
    """What is there before anything is done."""
    everything = expected(DesktopGoal(), instance.files)
    other = {title: "left half" if want == "right half" else "right half" for title, want in _halves(instance)}
    shown: dict[str, Want] = {**dict.fromkeys(instance.goal.windows, "shown"), **other}
    return State(held(everything), windows(shown), "", *SIZE)


def _halves(instance: DesktopInstance) -> Iterator[tuple[str, Want]]:
    return ((title, want) for title, want in instance.goal.windows.items() if want.endswith("half"))


def golden(instance: DesktopInstance) -> State:
    """What is there once all is done."""
    goal = instance.goal
    return State(
        held(expected(goal, instance.files), goal.executable), windows(goal.windows), goal.clipboard or "", *SIZE
    )


def near_misses(instance: DesktopInstance) -> Iterator[tuple[str, State]]:
    """What is nearly it."""
    done, goal = golden(instance), instance.goal
    for path, file in done.files.items():
        gone = {name: one for name, one in done.files.items() if name != path}
        yield f"without {path}", replace(done, files=gone)
        if file.content:
            spoilt = File(file.content.rstrip()[: len(file.content.rstrip()) // 2], file.executable)
            yield f"half of {path}", replace(done, files={**done.files, path: spoilt})
        if file.content is not None:
            turned = replace(file, executable=not file.executable)
            yield f"{path} may run", replace(done, files={**done.files, path: turned})
    yield "a file more", replace(done, files={**done.files, "more.txt": File(b"")})
    yield "a folder more", replace(done, files={**done.files, "more/": File()})
    for path in (path for path, content in goal.files.items() if content is None):
        yield f"with {path}", replace(done, files={**done.files, path: File(instance.files[path])})
    for title, want in goal.windows.items():
        others = {name: one for name, one in goal.windows.items() if name != title}
        for wrong in ("closed", "minimised", "maximised"):
            if want != wrong:
                yield f"{title} {wrong}", replace(done, windows=windows({**others, title: wrong}))
        if want == "closed":
            yield f"{title} open", replace(done, windows=windows({**others, title: "shown"}))
    if goal.clipboard is not None:
        yield "an empty clipboard", replace(done, clipboard="")
        yield "a longer clipboard", replace(done, clipboard=f"{goal.clipboard}0")


@pytest.mark.parametrize("template", TASKS)
def test_a_goal_is_reached_by_what_it_asks_for_and_by_nothing_less_or_else(template: str) -> None:
    for seed in SEEDS:
        instance = TASKS[template].instance(template, seed)
        assert not unmet(instance.goal, instance.files, golden(instance))
        assert unmet(instance.goal, instance.files, started(instance)), "there must be something to do"
        missed = list(near_misses(instance))
        assert missed and all(unmet(instance.goal, instance.files, state) for _, state in missed)


@pytest.mark.parametrize("template", TASKS)
def test_a_seed_says_all_of_a_task_and_others_say_something_else(template: str) -> None:
    task = TASKS[template]
    assert task.instance(template, 3) == task.instance(template, 3)
    made = [task.instance(template, seed) for seed in range(40)]
    assert len({(one.words, str(one.goal), tuple(one.files.items())) for one in made}) >= 10
    for one in made:
        assert "{" not in task.entry.instruction.format(*one.words)


def test_a_line_s_end_more_or_less_and_a_picture_written_by_another_program_are_the_same() -> None:
    import io

    from PIL import Image

    assert not unmet(DesktopGoal({"a.txt": b"one\n"}), {}, State({"a.txt": File(b"one")}))
    picture = Image.frombytes("RGB", (40, 30), random.Random(1).randbytes(3600))
    small, large = io.BytesIO(), io.BytesIO()
    picture.save(small, "png", compress_level=9)
    picture.convert("RGBA").save(large, "png", compress_level=0)
    goal = DesktopGoal({"a.png": small.getvalue()})
    assert not unmet(goal, {}, State({"a.png": File(large.getvalue())}))
    assert unmet(goal, {}, State({"a.png": File(b"no picture")}))


def test_what_is_in_a_folder_that_is_to_go_is_to_go_with_it() -> None:
    goal, start = DesktopGoal({"old/": None}), {"old/a.txt": b"1", "b.txt": b"2"}
    assert not unmet(goal, start, State({"b.txt": File(b"2")}))
    assert unmet(goal, start, State(held(expected(DesktopGoal(), start))))
