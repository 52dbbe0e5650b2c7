"""Log probabilities of what is sampled are told from those of before the temperature, by asking."""

import json
import math
from typing import Any

import httpx
import pytest

from models.serving.openai import OpenAIClient
from models.serving.proof import prove
from models.serving.served import endpoint_of
from schemas.config.serving import ServerConfig
from schemas.failure import FlywheelError

LOGITS = {"a": 2.0, "b": 1.0, "c": -1.0}
HINT = "Start it with --logprobs-mode processed_logprobs."


def client(
    raw: bool = False, ids: bool = True, logprobs: bool = True, logits: dict[str, float] = LOGITS
) -> OpenAIClient:
    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        scale = 1.0 if raw else body["temperature"]
        total = math.log(sum(math.exp(value / scale) for value in logits.values()))
        top = [{"token": token, "logprob": value / scale - total} for token, value in logits.items()]
        choice: dict[str, Any] = {"message": {"content": "a"}}
        if logprobs:
            choice["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
        return httpx.Response(200, json={"choices": [{**choice, **({"token_ids": [1]} if ids else {})}]})

    return OpenAIClient(endpoint_of(ServerConfig(url="http://model.test/v1")), httpx.MockTransport(handler))


def test_log_probabilities_after_the_temperature_pass() -> None:
    prove(client(), {"model": "m"}, HINT)


def test_those_of_before_it_are_refused_with_the_flag_to_set() -> None:
    with pytest.raises(FlywheelError, match=r"policy\.server\.logprobs.*--logprobs-mode processed_logprobs"):
        prove(client(raw=True), {"model": "m"}, HINT)


@pytest.mark.parametrize(("given", "reason"), [({"ids": False}, "no token ids"), ({"logprobs": False}, "no log prob")])
def test_a_server_that_keeps_them_to_itself_is_refused(given: dict[str, bool], reason: str) -> None:
    with pytest.raises(FlywheelError, match=reason):
        prove(client(**given), {"model": "m"}, HINT)


def test_of_a_model_that_knows_nothing_nothing_can_be_told() -> None:
    prove(client(raw=True, logits=dict.fromkeys(LOGITS, 0.0)), {"model": "m"}, HINT)
