"""What a stage gathers for one commit is small until it is written."""

import tracemalloc
from collections.abc import Iterator

from schemas.table import utc_now
from schemas.tables.reflection import Reflection
from tasks.shared.material import RowPacker


def rows(count: int) -> Iterator[Reflection]:
    now = utc_now()
    for number in range(count):
        name = f"{number:024x}"
        yield Reflection(
            trajectory_id=name, step=number % 10, author="rules", version="1", iteration=0, last_step_correct=True,
            last_step_redundant=False, reflection=f"nothing changed at {name}", created_at=now,
        )  # fmt: skip


def test_rows_come_out_as_they_went_in_and_those_that_wait_take_little_more_than_their_text() -> None:
    packed = RowPacker("reflections")
    assert packed.whole().num_rows == 0
    packed.add(rows(5000))
    tracemalloc.start()
    packed.add(rows(9000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    whole = packed.whole()
    assert whole["trajectory_id"].to_pylist() == [f"{at:024x}" for size in (5000, 9000) for at in range(size)]
    assert held / 9000 + whole.nbytes / 14_000 < 700
