"""Which tasks' failures are gone back to."""

from environments.fake import FakeConfig, FakeEnvironment
from schemas.tables.task import TaskEntry
from tasks.reflect.attempts import can_be_replayed


class Chancy(FakeEnvironment):
    """One task as ever, and one that may look different each time."""

    @property
    def entries(self) -> dict[str, TaskEntry]:
        entry = super().entries["click-one"]
        return {"click-one": entry, "chancy": entry.model_copy(update={"deterministic": False})}


def test_a_task_that_is_not_deterministic_a_judged_and_a_held_out_one_are_not_gone_back_to() -> None:
    chancy = Chancy("fake", FakeConfig())
    assert can_be_replayed(chancy.task("click-one"))
    assert not can_be_replayed(chancy.task("chancy"))
    assert not can_be_replayed(chancy.task("click-one", "held_out"))
    assert not can_be_replayed(FakeEnvironment("fake", FakeConfig()).task("note"))
