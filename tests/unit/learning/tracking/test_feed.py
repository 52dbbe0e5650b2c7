"""Trackers receive what a training reports: it waits for none of them, and ends because of none."""

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from learning.tracking import TRACKERS, Point, Tracker, Training
from schemas.config import config_of
from schemas.config.section import Section
from schemas.failure import FlywheelError, UsageError
from tasks.train.recorded import Feed
from tests.fixtures.sentences import Sentences

TRAINING = Training("lake", "policy-0001", "policy-0000", 1, "sft", {})


class Noted(Tracker[Section]):
    """Keeps what it receives."""

    def __init__(self, on_log: Callable[[], None] = lambda: None) -> None:
        super().__init__(Section(), TRAINING)
        self.received: list[object] = []
        self._on_log = on_log

    def start(self, resumed: int) -> None:
        self.received.append(resumed)

    def log(self, points: Sequence[Point]) -> None:
        self._on_log()
        self.received += [point.step for point in points]

    def finish(self, whole: bool) -> None:
        self.received.append(whole)


class Lacking(Noted):
    """Needs what nobody has."""

    packages = {"no_such_module": "flywheel[lacking]"}  # noqa: RUF012


def feed(tracker: Tracker[Section], warnings: list[str]) -> Feed:
    return Feed("noted", lambda: tracker, 3, warnings.append)


def test_a_tracker_is_told_every_point_in_order_between_its_start_and_its_end() -> None:
    noted, warnings = Noted(), list[str]()
    following = feed(noted, warnings)
    for step in (4, 5):
        following.log([Point(step, {"loss": 1.0}, 0.0)])
    following.finish(True)
    assert noted.received == [3, 4, 5, True] and not warnings


def test_what_a_tracker_raises_is_said_once_and_nothing_more_is_sent_to_it(sentence: Sentences) -> None:
    def fails() -> None:
        raise ConnectionError("no route to the server")

    noted, warnings = Noted(fails), list[str]()
    following = feed(noted, warnings)
    for step in (4, 5, 6):
        following.log([Point(step, {"loss": 1.0}, 0.0)])
    following.finish(True)
    assert noted.received == [3]
    sentence("\n".join(warnings))


def test_a_tracker_that_hangs_is_given_up() -> None:
    over, warnings = threading.Event(), list[str]()
    following = feed(Noted(lambda: over.wait(60) and None), warnings)
    began = time.monotonic()
    following.log([Point(4, {"loss": 1.0}, 0.0)])
    following.finish(True, patience_s=0.2)
    assert time.monotonic() - began < 10 and len(warnings) == 1 and "noted: given up" in warnings[0]
    over.set()


def test_a_missing_package_is_named_with_what_to_install(sentence: Sentences) -> None:
    with sentence.raises(FlywheelError, hint="tracking.trackers"):
        TRACKERS.require([f"{__name__}:Lacking"], {})


def test_wandb_without_a_key_is_refused_unless_it_is_offline(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    with pytest.raises(FlywheelError, match=r"no key.*WANDB_API_KEY.*tracking\.options\.wandb\.mode=offline"):
        TRACKERS.require(["wandb"], {})
    TRACKERS.require(["wandb"], {"wandb": {"mode": "offline"}})
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    TRACKERS.require(["wandb"], {})
    monkeypatch.delenv("WANDB_API_KEY")
    (tmp_path / "none").write_text(f"machine api.wandb.ai login user password {'k' * 40}\n")
    TRACKERS.require(["wandb"], {})


def test_a_folder_of_runs_is_refused_for_mlflow_before_anything_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    for uri in ("mlruns", "file:///mlruns"):
        with pytest.raises(FlywheelError, match=r"tracking\.options\.mlflow\.uri.*sqlite:"):
            TRACKERS.require(["mlflow"], {"mlflow": {"uri": uri}})
    TRACKERS.require(["mlflow"], {"mlflow": {"uri": "sqlite:///runs.db"}})


@pytest.mark.parametrize(
    ("tracking", "named"),
    [
        ({"trackers": ["aim"]}, r"`tracking\.trackers`: there is no 'aim'.*tensorboard, wandb, mlflow"),
        ({"trackers": ["wandb"], "options": {"wandb": {"projekt": "x"}}}, r"tracking\.options\.wandb\.projekt"),
        (
            {"options": {"wandb": {"project": "x"}}},
            r"`tracking\.options\.wandb`: .* does not name it",
        ),
        (
            {"trackers": ["mlflow"], "options": {"mlflow": {"uri": "http://me:secret@host:5000"}}},
            r"tracking\.options\.mlflow\.uri.*MLFLOW_TRACKING_USERNAME",
        ),
    ],
)
def test_a_tracker_or_an_option_that_is_not_there_is_named_as_is_a_secret(tracking, named: str) -> None:
    with pytest.raises(UsageError, match=named) as refused:
        config_of({"suite": {"tasks": ["click-test"]}, "tracking": tracking})
    assert "secret" not in str(refused.value)


def test_options_are_each_trackers_own() -> None:
    found = TRACKERS.options(["tensorboard", "mlflow"], {"mlflow": {"experiment": "mine"}})
    assert found["mlflow"].experiment == "mine" and found["tensorboard"].folder == ""
