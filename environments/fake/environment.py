"""Define the fake environment: fast tasks for tests, without a browser."""

from collections.abc import Mapping
from functools import cache

from environments.environment import Environment
from environments.fake.sandbox import COLOURS, FakeSandbox
from environments.host import Host, NoHost
from schemas.config.section import Count
from schemas.config.sections import EnvironmentConfig
from schemas.tables.task import JUDGED, TaskEntry


class FakeConfig(EnvironmentConfig):
    """Coloured buttons drawn in this process, for tests."""

    sandboxes: Count = 8
    """Trajectories that run at the same time."""


class FakeEnvironment(Environment[FakeConfig]):
    """Buttons, a text field, a box that dies, and a task without a verifier."""

    section = FakeConfig
    verifier = "fake"
    sandbox_class = FakeSandbox

    @property
    def entries(self) -> Mapping[str, TaskEntry]:
        """See `environments.fake.sandbox`."""
        return _entries()

    @property
    def lineage(self) -> str:
        """Our own."""
        return "flywheel"

    @property
    def sandboxes(self) -> int:
        """Number of sandboxes, from the config."""
        return self.config.sandboxes

    def host(self) -> Host:
        """No host is needed."""
        return NoHost(lambda: FakeSandbox(self.config))


@cache
def _entries() -> Mapping[str, TaskEntry]:
    return {
        **{name: _clicks(1, '"{}" button', 3) for name in ("click-target", "click-one", "click-of-three")},
        **{f"click-{colour}": _clicks(1, f'"{colour}" button', 3) for colour in COLOURS},
        "dies": TaskEntry(instruction='Click the "{}" button.', tags=("fake",), max_steps=3),
        "two-steps": _clicks(2, '"{}" button', 4),
        "three-steps": _clicks(3, '"{}" button', 5),
        "enter-text": TaskEntry(
            instruction='Type "{}" and click the "{}" button.', tags=("fake", "typing"), max_steps=5
        ),
        "note": TaskEntry(
            instruction='Write a note that says "{}".', tags=("fake", "typing"), max_steps=3, verifier=JUDGED
        ),
    }


def _clicks(count: int, button: str, max_steps: int) -> TaskEntry:
    instruction = "Click " + ", then ".join([f"the {button}"] * count) + "."
    return TaskEntry(
        instruction=instruction, tags=("fake", "multi-step" if count > 1 else "single-step"), max_steps=max_steps
    )
