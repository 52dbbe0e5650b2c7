"""A flow called from the command line without a Prefect server: a plain function, with its tasks."""

import psutil
import pytest
from prefect import State, flow
from prefect.settings import PREFECT_API_URL, temporary_settings

from apps.calling import call
from schemas.failure import FlywheelError
from tasks.running.boundary import flow_task
from tasks.running.run import flow_name, run_name
from tasks.running.run_page import is_open
from tests.fixtures.sentences import Sentences


@flow_task("count")
def count(number: int) -> int:
    assert not is_open()
    return number + 1


@flow(name="counting", flow_run_name=run_name)
def counting(number: int) -> tuple[str, int, int]:
    started = len(psutil.Process().children(recursive=True))
    return flow_name(), count(number), started


@flow
def ending() -> State[str]:
    from prefect.states import Completed

    return Completed(name="Paused", data="paused")


@flow
def refusing(known: bool) -> None:
    raise FlywheelError("The lamp is broken.", "Change it.") if known else ValueError("a bug")


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


def test_a_flow_without_a_server_knows_its_name_and_starts_no_process() -> None:
    before = len(psutil.Process().children(recursive=True))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert call(f"{__name__}.counting", 3) == ("counting", 4, before)
    assert flow_name() == ""


def test_the_data_of_a_returned_state_is_the_flow_s_result() -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert call(f"{__name__}.ending") == "paused"


@pytest.mark.parametrize(("known", "error"), [(True, FlywheelError), (False, ValueError)])
def test_an_error_stays_what_it_is(known: bool, error: type[Exception]) -> None:
    with temporary_settings(restore_defaults={PREFECT_API_URL}), pytest.raises(error):
        call(f"{__name__}.refusing", known)


def test_a_server_that_does_not_answer_costs_one_line(capfd: pytest.CaptureFixture[str], sentence: Sentences) -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:9/api"}):
        assert call(f"{__name__}.counting", 1)[:2] == ("counting", 2)
    sentence.lines(capfd.readouterr().err, "PREFECT_API_URL")
