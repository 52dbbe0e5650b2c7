"""Log probabilities of what is sampled are told from those of before the temperature, by asking."""

import json
import math
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from models.serving.openai import NoAnswer, OpenAIClient, Rejected
from models.serving.proof import NEUTRAL, Sampling, prove, require_sampling, stock, whole
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


def server(
    answer: Callable[[dict[str, Any]], httpx.Response], asked: list[dict[str, Any]] | None = None
) -> OpenAIClient:
    def handler(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if asked is not None:
            asked.append(body)
        return answer(body)

    config = ServerConfig(url="http://model.test/v1", retries=0)
    return OpenAIClient(endpoint_of(config), httpx.MockTransport(handler))


def said(text: str) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": text}}]})


def strict(body: dict[str, Any]) -> httpx.Response:
    """`transformers serve` 5.23.0 (`cli/serving/utils.py`, `_validate_request`) refuses fields beyond the protocol."""
    unexpected = {"top_k", "min_p", "repetition_penalty", "skip_special_tokens", "watermark"} & body.keys()
    return httpx.Response(422, json={"detail": f"Unexpected fields: {unexpected}"}) if unexpected else said("ok")


def test_a_server_that_gives_one_answer_for_two_seeds_is_refused() -> None:
    asked: list[dict[str, Any]] = []
    with pytest.raises(FlywheelError, match="does not sample: two seeds gave the same answer 3 times"):
        require_sampling(Sampling(server(lambda _: said("click"), asked)).ask, {"model": "m"})
    assert [body["seed"] for body in asked] == [0, 1, 2, 3, 4, 5]
    assert len({json.dumps(body["messages"]) for body in asked}) == 1 and asked[0]["temperature"] == 2.0


def test_a_server_that_samples_passes_also_where_two_answers_are_once_alike() -> None:
    require_sampling(Sampling(server(lambda body: said(str(body["seed"])))).ask, {"model": "m"})
    require_sampling(Sampling(server(lambda body: said(str(body["seed"] == 5)))).ask, {"model": "m"})


def test_every_request_says_all_that_is_sampled_from_in_the_form_that_the_server_takes() -> None:
    asked: list[dict[str, Any]] = []
    sampling = Sampling(server(strict, asked))
    for _ in range(2):
        assert sampling.ask({"model": "m"}, 0.7)["text"] == "ok"
    assert [set(body) for body in asked] == [{"model", *form(0.7)} for form in (whole, stock, stock)]
    assert json.loads(asked[-1]["generation_config"]) == {**NEUTRAL, "do_sample": True}
    assert json.loads(stock(0.0)["generation_config"])["do_sample"] is False
    assert asked[-1]["frequency_penalty"] == 0.0, "which it adds to 1 for its repetition penalty"


def test_a_request_that_a_server_refuses_for_another_reason_changes_no_form() -> None:
    sampling = Sampling(server(lambda body: httpx.Response(400) if body["long"] else said("ok")))
    with pytest.raises(Rejected, match="400"):
        sampling.ask({"long": True}, 1.0)
    sampling.ask({"long": False}, 1.0)
    asked: list[dict[str, Any]] = []
    sampling._client = server(lambda _: httpx.Response(400), asked)
    with pytest.raises(NoAnswer):
        sampling.ask({"long": True}, 1.0)
    assert [set(body) for body in asked] == [{"long", *whole(1.0)}]


def test_what_the_config_asks_for_itself_is_kept() -> None:
    asked: list[dict[str, Any]] = []
    Sampling(server(lambda _: said("ok"), asked)).ask({"repetition_penalty": 1.1}, 1.0)
    assert asked[0]["repetition_penalty"] == 1.1
