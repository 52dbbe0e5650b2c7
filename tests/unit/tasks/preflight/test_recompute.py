"""`train.group.recompute` is for servers without log probabilities alone, and is checked before anything is spent."""

import pytest

from schemas.config import load_config
from schemas.failure import UsageError
from tasks.preflight.preflight import probes
from tests.fixtures.sentences import Sentences

SERVER = "policy.server.url=http://127.0.0.1:9/v1"
RECOMPUTE = "train.group.recompute=true"


def check(*given: str) -> str:
    (probe,) = [one for one in probes(load_config("miniwob", list(given), {}), False) if one.name == "server"]
    return probe.examine()


def test_a_server_without_log_probabilities_needs_a_trainer_that_computes_them(sentence: Sentences) -> None:
    assert "not asked" in check("train.method=grpo", SERVER, RECOMPUTE)
    with sentence.raises(UsageError, "policy.server.logprobs", hint="train.group.recompute"):
        check("train.method=grpo", SERVER)
    with pytest.raises(UsageError, match=r"policy\.server\.logprobs"):
        check("train.method=ppo", SERVER, RECOMPUTE)


def test_log_probabilities_that_come_with_the_replies_are_not_recomputed(sentence: Sentences) -> None:
    with sentence.raises(UsageError, "train.group.recompute"):
        check("train.method=grpo", SERVER, RECOMPUTE, "policy.server.logprobs=true")
    with pytest.raises(UsageError, match=r"train\.group\.recompute"):
        check("train.method=grpo", RECOMPUTE)


@pytest.mark.parametrize("given", ["train.group.advantage=adaptive", "train.stream.on=true"])
def test_what_needs_the_servers_log_probabilities_is_refused_with_them_unknown(given: str) -> None:
    with pytest.raises(UsageError, match="recompute"):
        load_config("miniwob", ["train.method=grpo", SERVER, RECOMPUTE, given], {})
