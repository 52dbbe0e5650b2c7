"""A teacher of `train.method=opd` is checked before anything is rolled out."""

from pathlib import Path

import pytest

from models.random_vlm import build_random
from schemas.config import Config, load_config
from schemas.failure import FlywheelError, UsageError
from tasks.preflight.preflight import probes
from tests.fixtures.sentences import Sentences
from tests.teachers import FakeTeacher


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taught")
    build_random("qwen3_vl", ["Click on the target."] * 8, 0, folder / "base")
    build_random("qwen3_vl", ["Quartz and jinx."] * 8, 0, folder / "foreign")
    return folder / "base"


def config(base: Path | str, *more: str) -> Config:
    given = ["train.method=opd", "train.opd.url=http://127.0.0.1:9/v1", "train.opd.model=big"]
    return load_config("miniwob", [f"policy.base={base}", *given, *more], {})


def check(name: str, config: Config, asks: bool = True) -> str:
    (probe,) = [one for one in probes(config, asks) if one.name == name]
    return probe.examine()


def test_a_method_without_a_teacher_needs_none() -> None:
    assert "none" in check("teacher", load_config("miniwob", [], {}))


def test_a_teacher_of_the_policys_tokenizer_is_accepted_and_another_refused(base: Path, sentence: Sentences) -> None:
    with FakeTeacher(base).served() as url:
        assert "big" in check("teacher", config(base, f"train.opd.url={url}"))
    with (
        FakeTeacher(base.parent / "foreign").served() as url,
        sentence.raises(FlywheelError, "train.opd.model", "tokenizer"),
    ):
        check("teacher", config(base, f"train.opd.url={url}"))


def test_a_teacher_that_does_not_answer_is_refused(base: Path) -> None:
    with pytest.raises(FlywheelError, match=r"train\.opd\.url.*does not answer"):
        check("teacher", config(base))
    assert check("teacher", config(base), asks=False) == "not asked"


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("train.opd.url=", "train.opd.url"),
        ("train.opd.model=", "train.opd.model"),
        ("train.opd.url=host:30000", "train.opd.url"),
        ("collect.temperature=0.7", "collect.temperature"),
    ],
)
def test_a_config_that_no_teacher_can_serve_is_refused(base: Path, given: str, key: str, sentence: Sentences) -> None:
    with sentence.raises(UsageError, key):
        check("teacher", config(base, given), asks=False)


def test_the_small_policy_has_no_served_teacher(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "train.method", hint="policy.base"):
        check("training", config("tiny"))


def test_a_policys_server_has_to_give_log_probabilities(base: Path) -> None:
    with pytest.raises(UsageError, match=r"policy\.server\.logprobs"):
        check("server", config(base, "policy.server.url=http://127.0.0.1:9/v1"), asks=False)
