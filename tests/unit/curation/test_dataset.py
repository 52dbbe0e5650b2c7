"""How samples share the training."""

import pytest

from curation.dataset import samples_of, weigh
from schemas.sample import TrainSample

ACTION = '{"type": "wait"}'


def sample(task: str, action: str | None = ACTION) -> TrainSample:
    return TrainSample(task_id=task, screenshots=("a",), instruction="", action=action)


def share(samples: list[TrainSample], task: str) -> float:
    return sum(one.weight for one in samples if one.task_id == task)


def test_tasks_share_by_weakness_however_many_samples_they_have():
    samples = [sample("easy")] * 30 + [sample("hard")] * 2
    weighed = weigh(samples, {"easy": 1.0, "hard": 0.0}, balance=1.0)
    assert share(weighed, "hard") / share(weighed, "easy") == pytest.approx(1.15 / 0.15)


def test_practice_pages_get_their_share_and_the_suite_the_rest():
    samples = [sample("a")] * 4 + [sample("b")] + [sample("practice", None)] * 7 + [sample("practice")]
    weighed = weigh(samples, {}, 1.0, practice={"practice"}, practice_share=0.25)
    suite = share(weighed, "a") + share(weighed, "b")
    assert share(weighed, "practice") / (share(weighed, "practice") + suite) == pytest.approx(0.25)
    assert len({one.weight for one in weighed if one.task_id == "practice"}) == 1


def test_with_nothing_but_practice_the_training_practises():
    weighed = weigh([sample("practice")], {}, 1.0, practice={"practice"}, practice_share=0.25)
    assert share(weighed, "practice") == 1.0


def test_plays_of_one_group_that_did_the_same_teach_it_once():
    def play(name: str, group: str | None) -> dict[str, object]:
        return {"trajectory_id": name, "task_id": "t", "group_id": group, "instruction": "Wait.", "route": "sft"}

    plays = [play("a", "g"), play("b", "g"), play("c", "h"), play("d", None), play("e", None)]
    steps = {name: [{"step": 0, "screenshot": "s", "thought": "", "action": ACTION}] for name in "abcde"}
    assert len(samples_of(plays, steps, {}, {}, 1)) == 4
