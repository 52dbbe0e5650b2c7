"""Log probabilities of what is sampled are told from those of before the temperature, by asking."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.cli.serving.chat_completion import ChatCompletionHandler

from models.serving.openai import OpenAIClient, Rejected
from models.serving.proof import FIXED, NEUTRAL, Sampling, prove, require_sampling, stock, whole
from models.serving.served import endpoint_of
from schemas.config.policy import ServerConfig
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences

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


TAKEN = {
    "model", "messages", "stream", "max_tokens", "seed", "temperature", "top_p", "frequency_penalty", "presence_penalty"
}  # fmt: skip
HERE = Path("a checkpoint that has no files")


def strict(body: dict[str, Any]) -> httpx.Response:
    """`transformers serve` 5.24.0 (`cli/serving/utils.py`, `_validate_request`) refuses fields beyond the protocol."""
    unexpected = body.keys() - TAKEN - {"generation_config"}
    detail = f"Unexpected fields in the request: {set(unexpected)}"
    return httpx.Response(422, json={"detail": detail}) if unexpected else said("ok")


def asked_of(of: OpenAIClient) -> Callable[[dict[str, Any], float], dict[str, Any]]:
    sampling = Sampling(of)
    return lambda body, temperature: sampling.ask(body, temperature, HERE)


def test_a_server_that_gives_one_answer_for_two_seeds_is_refused(sentence: Sentences) -> None:
    asked: list[dict[str, Any]] = []
    with sentence.raises(FlywheelError):
        require_sampling(asked_of(server(lambda _: said("click"), asked)), {"model": "m"})
    assert [body["seed"] for body in asked] == [0, 1, 2, 3, 4, 5]
    assert len({json.dumps(body["messages"]) for body in asked}) == 1 and asked[0]["temperature"] == 2.0


def test_a_server_that_samples_passes_also_where_two_answers_are_once_alike() -> None:
    require_sampling(asked_of(server(lambda body: said(str(body["seed"])))), {"model": "m"})
    require_sampling(asked_of(server(lambda body: said(str(body["seed"] == 5)))), {"model": "m"})


def test_every_request_says_all_that_is_sampled_from_in_the_form_that_the_server_takes() -> None:
    asked: list[dict[str, Any]] = []
    sampling = Sampling(server(strict, asked))
    for _ in range(2):
        assert sampling.ask({"model": "m"}, 0.7, HERE)["text"] == "ok"
    assert [set(body) for body in asked] == [{"model", *form(0.7)} for form in (whole, stock, stock)]
    assert json.loads(asked[-1]["generation_config"]) == {**NEUTRAL, "do_sample": True}
    assert json.loads(stock(0.0)["generation_config"])["do_sample"] is False
    assert asked[-1]["frequency_penalty"] == 0.0, "which it adds to 1 for its repetition penalty"


def test_a_request_that_a_server_refuses_for_another_reason_changes_no_form() -> None:
    asked: list[dict[str, Any]] = []
    ask = asked_of(server(lambda body: httpx.Response(400) if body["long"] else said("ok"), asked))
    for long in (True, False, True):
        if long:
            with pytest.raises(Rejected, match="400"):
                ask({"long": True}, 1.0)
        else:
            ask({"long": False}, 1.0)
    assert [set(body) for body in asked] == [{"long", *whole(1.0)}] * 3


def enforced(body: dict[str, Any]) -> httpx.Response | None:
    """SGLang 0.5.23 that enforces a watermark for all."""
    message = "request watermark enabled=false is not allowed when the server enforces watermarking"
    return httpx.Response(400, json={"message": message}) if body.get("watermark") == {"enabled": False} else None


def echoed(body: dict[str, Any]) -> httpx.Response | None:
    """FastAPI's own refusal, which shows the whole request, fields and all."""
    detail = [{"loc": ["body", "n"], "msg": "Unexpected fields in the request", "input": str(body)}]
    return httpx.Response(422, json={"detail": detail}) if "top_k" in body else None


def some(body: dict[str, Any]) -> httpx.Response | None:
    """One that does not know some of the fields, and would leave the rest to the checkpoint."""
    detail = "Unexpected fields in the request: {'watermark', 'watermarking'}"
    return httpx.Response(422, json={"detail": detail}) if "watermark" in body else None


@pytest.mark.parametrize("refuses", [enforced, echoed, some])
def test_only_a_server_that_refuses_all_fields_by_name_is_asked_as_transformers_serve(
    refuses: Callable[[dict[str, Any]], httpx.Response | None],
) -> None:
    """Each would take the other form, ignore it, and sample as the checkpoint says."""
    asked: list[dict[str, Any]] = []
    ask = asked_of(server(lambda body: refuses(body) or said("ok"), asked))
    for _ in range(2):
        with pytest.raises(Rejected):
            ask({"model": "m"}, 1.0)
    assert [set(body) for body in asked] == [{"model", *whole(1.0)}] * 2


def test_a_long_refusal_and_more_fields_of_the_config_are_read_to_the_end() -> None:
    of = server(lambda body: strict({**body, **dict.fromkeys(f"an_extra_field_{at}" for at in range(9))}))
    with pytest.raises(Rejected, match="Unexpected fields"):
        asked_of(of)({}, 1.0)  # the fields of the config are refused in the other form, too
    asked: list[dict[str, Any]] = []

    def older(body: dict[str, Any]) -> httpx.Response:
        names = {*(f"a{at:080}" for at in range(9)), *body}
        refused = httpx.Response(422, json={"detail": f"Unexpected keys in the request: {names}"})
        return refused if "top_k" in body else said("ok")

    assert asked_of(server(older, asked))({}, 1.0)["text"] == "ok" and set(asked[-1]) == set(stock(1.0))


@pytest.mark.parametrize("field", FIXED)
@pytest.mark.parametrize("written", [("generation_config.json", False), ("config.json", False), ("config.json", True)])
def test_a_checkpoint_that_decides_what_transformers_serve_samples_is_refused_by_file_and_field(
    field: str, written: tuple[str, bool], tmp_path: Path
) -> None:
    name, nested = written
    file, set_ = tmp_path / name, {field: [3]}
    file.write_text(json.dumps({"text_config": set_} if nested else set_))
    asked: list[dict[str, Any]] = []
    sampling = Sampling(server(strict, asked))
    for _ in range(2):
        with pytest.raises(FlywheelError, match=f"{name}: {field} affects sampling"):
            sampling.ask({"model": "m"}, 1.0, tmp_path)
    assert [set(body) for body in asked] == [{"model", *whole(1.0)}], "nothing is sampled"
    if name == "config.json":
        (tmp_path / "generation_config.json").write_text("{}")  # which is read in its place
    else:
        file.write_text(json.dumps({field: None, "top_k": 1, "repetition_penalty": 1.05, "chat_format": "chatml"}))
    assert sampling.ask({"model": "m"}, 1.0, tmp_path)["text"] == "ok"
    of_vllm = Sampling(server(lambda _: said("ok")))
    file.write_text(json.dumps(set_))
    assert of_vllm.ask({"model": "m"}, 1.0, tmp_path)["text"] == "ok", "its requests say all"


KEPT = {
    "eos_token_id bos_token_id pad_token_id decoder_start_token_id": "where a prompt begins and an answer ends",
    "temperature top_p do_sample max_new_tokens max_length": "what a request says",
    "use_cache cache_implementation cache_config max_cache_len prefill_chunk_size low_memory compile_config "
    "disable_compile continuous_batching_config": "how it is computed",
    "is_assistant num_assistant_tokens num_assistant_tokens_schedule assistant_confidence_threshold "
    "max_matching_ngram_size assistant_lookbehind target_lookbehind": "of a model that only guesses for another",
    "output_attentions output_hidden_states output_scores output_logits return_dict_in_generate": "what is given back",
    "_from_model_config transformers_version": "where it is from",
}


def test_every_field_of_a_generation_config_is_set_refused_or_known_to_decide_nothing() -> None:
    """By the fields of `GenerationConfig` of transformers 5.24.0 (`generation/configuration_utils.py`)."""
    kept = {name for names in KEPT for name in names.split()}
    assert sorted([*NEUTRAL, *FIXED, *kept]) == sorted(GenerationConfig().to_dict())


DECIDED: list[dict[str, Any]] = [
    {"top_k": 1},
    {"min_p": 0.9},
    {"typical_p": 0.1},
    {"epsilon_cutoff": 0.5},
    {"eta_cutoff": 0.9},
    {"top_p": 0.01, "temperature": 0.01},
    {"repetition_penalty": 9.0},
    {"no_repeat_ngram_size": 1},
    {"suppress_tokens": list(range(2, 32))},
    {"begin_suppress_tokens": list(range(2, 32))},
    {"sequence_bias": [[[7], 50.0]]},
    {"min_new_tokens": 16},
    {"min_length": 20},
    {"max_time": 1e-9},
    {"num_beams": 4, "length_penalty": 9.0, "early_stopping": True},
    {"num_beams": 4, "num_return_sequences": 3},
    {"penalty_alpha": 0.6, "top_k": 4},
    {"renormalize_logits": True, "remove_invalid_values": True},
]


@pytest.mark.nightly
def test_what_transformers_serve_samples_is_the_same_whatever_a_checkpoint_sets() -> None:
    """By `_build_generation_config` and `generate` of transformers 5.24.0."""
    handler: Any = ChatCompletionHandler.__new__(ChatCompletionHandler)
    handler.generation_state = SimpleNamespace(_compile=False)
    torch.manual_seed(0)
    sizes: Any = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model: Any = LlamaForCausalLM(LlamaConfig(vocab_size=32, **sizes)).eval()

    def drawn(form: dict[str, Any] | None, **decided: Any) -> list[list[int]]:
        model.generation_config = GenerationConfig(eos_token_id=1, pad_token_id=0, **{"do_sample": True, **decided})
        config = handler._build_generation_config({**(form or {}), "max_tokens": 8}, model.generation_config)
        answers: list[list[int]] = []
        for seed in range(6):
            torch.manual_seed(seed)
            answers += model.generate(torch.tensor([[5, 6, 7]]), generation_config=config).tolist()
        return answers

    expected = drawn(stock(1.0))
    assert expected == drawn({"generation_config": json.dumps({"top_k": 0, "do_sample": True})}), "nothing is cut away"
    for decided in DECIDED:
        assert drawn(stock(1.0), **decided) == expected, decided
    assert drawn(None, suppress_tokens=list(range(2, 32))) != expected
    greedy = drawn(stock(0.0))
    assert greedy == drawn(stock(0.0), **DECIDED[-2]) and len({tuple(answer) for answer in greedy}) == 1


def test_what_the_config_asks_for_itself_is_kept() -> None:
    asked: list[dict[str, Any]] = []
    asked_of(server(lambda _: said("ok"), asked))({"repetition_penalty": 1.1}, 1.0)
    assert asked[0]["repetition_penalty"] == 1.1
