"""A policy behind a server: what is asked, what is tried again, and that its failures are never the policy's."""

import asyncio
import base64
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

import models.serving.openai
from environments.pool import SandboxPool
from models.families.family import ModelFamily
from models.families.screen import ImageLimits
from models.serving.proof import HOT
from models.serving.server import ServerModel, require_server
from models.thinkers.asked import EndpointThinker
from models.thinkers.thinker import THINKERS, ThinkerCase, ThinkerResources
from models.tiny.build import build_tiny
from models.vlm import VlmPolicy
from rollout.actor import Actor
from rollout.session import roll_out
from rollout.trajectory import FinishedTrajectory, PlannedTrajectory
from schemas.action import Click
from schemas.config import config_of
from schemas.config.policy import PolicyConfig, ServerConfig
from schemas.context import ContextRule
from schemas.failure import FlywheelError, UsageError, is_environment_failure
from tests.fixtures.sentences import Sentences
from tests.parts import FAKE
from tests.unit.models.test_vlm import CONFIG, TEXTS, context

SERVER = ServerConfig(url="http://model.test/v1", retries=2)
STOCK = CONFIG.model_copy(update={"backend": "transformers"})
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.0, 0.0))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("served") / "tiny"
    build_tiny(CONFIG, TEXTS, 0, out)
    return out


def served_by(handler: Handler, config: ServerConfig = SERVER) -> ServerModel:
    policy = CONFIG.model_copy(update={"server": config})
    return ServerModel(Path("/models/one"), policy, "policy-0003", httpx.MockTransport(handler))


def sampling(handler: Handler) -> Handler:
    """A server that samples, as the test before the first rollout asks; the handler gets all other requests."""

    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        return completed(f"word {body['seed']}") if body["temperature"] == HOT else handler(request)

    return answer


def completed(text: str, **more: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": text}, **more}]})


def test_chats_go_out_in_the_protocol_and_answers_come_back_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []
    monkeypatch.setenv("OPENAI_API_KEY", "secret")

    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url == "http://model.test/v1/chat/completions"
        assert request.headers["Authorization"] == "Bearer secret"
        body = json.loads(request.content)
        bodies.append(body)
        time.sleep(0.02 * (5 - body["seed"]))
        return completed(f"answer {body['seed']}")

    chats = [ModelFamily(PolicyConfig()).messages(context(number)) for number in range(5)]
    completions = served_by(sampling(handler)).generate(chats, range(5), 0.7, 9)
    assert [one.text for one in completions] == [f"answer {number}" for number in range(5)]
    body = next(body for body in bodies if body["seed"] == 1)
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("/models/one", 0.7, 9)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "user"]
    assert body["messages"][1]["content"] == TEXTS[1]
    (screen,) = body["messages"][3]["content"]
    png = base64.b64decode(screen["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert png == context(1).observation.png
    assert "logprobs" not in body


def test_rollouts_on_a_server_that_does_not_sample_fail_before_the_first_and_greedy_ones_do_not() -> None:
    asked: list[float] = []

    def same(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["temperature"])
        return completed("click")

    chats = [ModelFamily(PolicyConfig()).messages(context(number)) for number in range(3)]
    assert [one.text for one in served_by(same).generate(chats, range(3), 0.0, 9)] == ["click"] * 3
    model = served_by(same)
    asked.clear()
    with pytest.raises(FlywheelError, match="does not sample"):
        model.generate(chats, range(3), 1.0, 9)
    assert set(asked) == {HOT}
    asked.clear()
    assert len(served_by(sampling(same)).generate(chats, range(3), 1.0, 9)) == 3 and set(asked) == {1.0}


def test_threads_that_begin_at_once_wait_for_one_test_of_a_server() -> None:
    tests: list[int] = []

    def slow(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        if body["temperature"] == HOT:
            tests.append(body["seed"])
            time.sleep(0.1)
        return completed(f"word {body['seed']}")

    model, chat = served_by(slow), ModelFamily(PolicyConfig()).messages(context(0))
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda seed: model.generate([chat], [seed], 1.0, 9)[0].text, range(8)))
    assert made == [f"word {seed}" for seed in range(8)] and tests == [0, 1]


def test_a_server_that_does_not_sample_is_tested_once_for_all_that_wait() -> None:
    asked: list[int] = []

    def same(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["seed"])
        time.sleep(0.02)
        return completed("click")

    model, chat = served_by(same), ModelFamily(PolicyConfig()).messages(context(0))

    def refused(seed: int) -> bool:
        with pytest.raises(FlywheelError, match="does not sample"):
            model.generate([chat], [seed], 1.0, 9)
        return True

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(refused, range(8)))
    assert asked == sorted(set(asked))


def test_a_server_that_refuses_the_test_is_an_error_and_no_failed_trajectories() -> None:
    model = served_by(lambda _: httpx.Response(400, text="no images"))
    with pytest.raises(FlywheelError, match=r"refuses a chat with an image.*no images"):
        model.generate([ModelFamily(PolicyConfig()).messages(context(0))], [0], 1.0, 9)


def test_what_may_pass_is_tried_again() -> None:
    answers = iter([httpx.Response(503), httpx.Response(429), completed("ok")])
    (completion,) = served_by(lambda _: next(answers)).generate(
        [ModelFamily(PolicyConfig()).messages(context(0))], [0], 0.0, 4
    )
    assert completion.text == "ok" and not completion.failure


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8000", "Write http://localhost:8000/v1"),
        ("localhost:8000/v1", "Write http://localhost:8000/v1"),
        ("ftp://host/v1", "Write http://host/v1"),
    ],
)
def test_an_address_that_is_none_is_refused_with_one_that_is(url: str, said: str, sentence: Sentences) -> None:
    with pytest.raises(UsageError) as refused:
        require_server(ServerConfig(url=url))
    sentence(refused.value, "policy.server.url", url, said)


def test_a_server_that_does_not_answer_is_named_with_one_full_stop(sentence: Sentences) -> None:
    def ended(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("It ended.", request=request)

    with sentence.raises(FlywheelError):
        require_server(SERVER, httpx.MockTransport(ended))


def test_an_address_of_a_page_is_no_server(sentence: Sentences) -> None:
    page = httpx.MockTransport(lambda _: httpx.Response(200, html="<html>login</html>"))
    with sentence.raises(FlywheelError, "policy.server.url", "login", hint="OpenAI-compatible"):
        require_server(SERVER, page)


@pytest.mark.parametrize(
    ("status", "answer", "url", "hint"),
    [
        (200, {"message": "welcome"}, "http://model.test", "http://model.test/v1"),
        (200, ["welcome"], "http://model.test/", "http://model.test/v1"),
        (200, {"data": ["welcome"]}, "http://model.test/v1", "OpenAI-compatible"),
        (404, {"detail": "Not Found"}, "http://model.test", "http://model.test/v1"),
    ],
)
def test_a_server_that_lists_no_models_is_another_server_or_lacks_the_version(
    status: int, answer: object, url: str, hint: str, sentence: Sentences
) -> None:
    config = SERVER.model_copy(update={"url": url})
    with sentence.raises(FlywheelError, "policy.server.url", url, hint=hint):
        require_server(config, httpx.MockTransport(lambda _: httpx.Response(status, json=answer)))


def test_a_server_that_never_answers_is_named_with_the_wait(sentence: Sentences) -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("timed out", request=request)

    with sentence.raises(FlywheelError, "policy.server.url", "10 s", hint="load"):
        require_server(SERVER, httpx.MockTransport(silent))

    def closed(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectTimeout("timed out", request=request)

    with sentence.raises(FlywheelError, "policy.server.url", "10 s", hint="address"):
        require_server(SERVER, httpx.MockTransport(closed))


def test_a_rejected_key_is_told_from_a_missing_one(monkeypatch: pytest.MonkeyPatch, sentence: Sentences) -> None:
    rejecting = httpx.MockTransport(lambda _: httpx.Response(401))
    monkeypatch.delenv(SERVER.key_variable, raising=False)
    with sentence.raises(FlywheelError, hint=SERVER.key_variable) as missing:
        require_server(SERVER, rejecting)
    monkeypatch.setenv(SERVER.key_variable, "sesame-123")
    with sentence.raises(FlywheelError, hint="policy.server.key_variable") as rejected:
        require_server(SERVER, rejecting)
    assert "rejected" in rejected.value.hint and missing.value.hint != rejected.value.hint


def unreachable(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


@pytest.mark.parametrize(
    ("handler", "requests", "reason"),
    [
        (unreachable, 3, "ConnectError"),
        (lambda _: httpx.Response(500, text="out of memory"), 3, "out of memory"),
        (lambda _: httpx.Response(400, text="too long"), 1, "too long"),  # in either form
        (lambda _: httpx.Response(200, text="<html>"), 1, "<html>"),
        (lambda _: httpx.Response(200, json={"choices": []}), 1, "no answer"),
    ],
)
def test_a_server_that_fails_ends_the_trajectory_as_an_environment_failure(
    handler: Handler, requests: int, reason: str, directory: Path
) -> None:
    seen: list[httpx.Request] = []

    def counted(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return handler(request)

    policy = VlmPolicy(directory, CONFIG.model_copy(update={"server": SERVER}))
    policy.model = served_by(sampling(counted))
    planned = PlannedTrajectory("lake", "run", 0, FAKE.task("click-target"), 1, "policy", "p")

    async def once() -> FinishedTrajectory:
        with Actor(policy, 1.0) as actor:
            async with SandboxPool([FAKE]) as pool:
                return await roll_out(pool, planned, [actor], False, ContextRule(1))

    made = asyncio.run(once()).trajectory
    assert made.failure_boundary == "server" and is_environment_failure(made.failure_boundary)
    assert made.success is None and made.reward is None
    assert reason in (made.failure_reason or "")
    assert len(seen) == requests


@pytest.mark.parametrize(("status", "hint"), [(401, "key_variable"), (404, "policy.server.model")])
def test_what_would_fail_every_trajectory_is_an_error_that_names_the_hint(status: int, hint: str) -> None:
    asked = served_by(lambda _: httpx.Response(status, text="no"))
    with pytest.raises(FlywheelError, match=hint):
        asked.generate([ModelFamily(PolicyConfig()).messages(context(0))] * 3, [0, 1, 2], 0.0, 4)


@pytest.mark.parametrize(
    ("more", "names", "tokens"),
    [({"token_ids": [7, 8]}, ("a", "b"), (7, 8)), ({}, ("token_id:7", "token_id:8"), (7, 8)), ({}, ("a", "b"), ())],
)
def test_log_probabilities_are_kept_if_the_server_gives_them(
    more: dict[str, Any], names: tuple[str, ...], tokens: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.serving.served.prove", lambda *_: None)

    def handler(request: httpx.Request) -> httpx.Response:
        assert json.loads(request.content)["logprobs"] is True
        content = [{"token": name, "logprob": -0.5} for name in names]
        return completed("ok", logprobs={"content": content}, **more)

    (completion,) = served_by(sampling(handler), SERVER.model_copy(update={"logprobs": True})).generate(
        [ModelFamily(PolicyConfig()).messages(context(0))], [0], 1.0, 4
    )
    assert completion.token_ids == tokens and completion.logprobs == (-0.5, -0.5)


@pytest.mark.parametrize("beside", [True, False], ids=["vllm", "sglang"])
def test_the_tokens_that_the_server_read_are_kept_wherever_it_names_them(beside: bool) -> None:
    read = {"prompt_token_ids": [5, 6]}
    choice = {"message": {"content": "ok"}, **({} if beside else read)}

    def handler(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"choices": [choice], **(read if beside else {})})

    (completion,) = served_by(sampling(handler)).generate(
        [ModelFamily(PolicyConfig()).messages(context(0))], [0], 1.0, 4
    )
    assert completion.prompt_ids == (5, 6)


def test_a_model_name_that_is_the_same_for_every_policy_is_refused() -> None:
    with pytest.raises(UsageError, match=r"policy\.server"):
        config_of({"suite": {"tasks": ["click-target"]}, "policy": {"server": {"model": "always-this"}}})
    asked: list[str] = []

    def handler(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content)["model"])
        return completed("")

    served_by(handler, SERVER.model_copy(update={"model": "wheel/{version}"})).generate([[]], [0], 0.0, 4)
    assert asked == ["wheel/policy-0003"]


def test_a_server_that_does_not_answer_is_known_before_anything_is_spent() -> None:
    require_server(ServerConfig())
    require_server(SERVER, httpx.MockTransport(lambda _: httpx.Response(200, json={"data": []})))
    with pytest.raises(FlywheelError, match=r"policy\.server\.url.*model\.test"):
        require_server(SERVER, httpx.MockTransport(unreachable))
    with pytest.raises(FlywheelError, match="key_variable"):
        require_server(SERVER, httpx.MockTransport(lambda _: httpx.Response(401)))


@pytest.fixture(scope="module")
def turned(directory: Path) -> Path:
    """The same model with Qwen's own beginning of a turn, which `transformers serve` looks for in its answers."""
    copy = directory.with_name("turned")
    shutil.copytree(directory, copy)
    written = (copy / "chat_template.jinja").read_text()
    end = "<|im_start|>{% endif -%}"
    assert written.endswith(end)
    (copy / "chat_template.jinja").write_text(
        written.removesuffix(end) + "{{ '<|im_start|>assistant\\n' }}{% endif -%}"
    )
    return copy


@pytest.fixture(scope="module")
def served(directory: Path) -> Iterator[str]:
    """The address of `transformers serve`, as a process of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "transformers.cli.transformers", "serve", "--host", "127.0.0.1"]
    command += ["--dtype", "float32"]  # in bf16 a random model's likeliest tokens change places by rounding
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    log = directory.with_name("serve.log")
    with (
        log.open("w") as out,
        subprocess.Popen([*command, "--port", str(port)], stdout=out, stderr=out, env=environ) as server,
    ):
        address, end = f"http://127.0.0.1:{port}", time.monotonic() + 200
        while time.monotonic() < end and server.poll() is None:
            try:
                httpx.get(f"{address}/health").raise_for_status()
                break
            except httpx.HTTPError:
                time.sleep(0.5)
        else:
            server.kill()
            raise AssertionError(log.read_text()[-2000:])
        yield f"{address}/v1"
        server.terminate()


@pytest.mark.slow
def test_transformers_serve_says_what_the_model_says_here(served: str, turned: Path) -> None:
    config = CONFIG.model_copy(update={"server": ServerConfig(url=served, concurrency=2)})
    require_server(config.server)
    contexts = [context(number) for number in range(3)]
    stock = VlmPolicy(turned, STOCK)
    stock.model.model.float()  # type: ignore[attr-defined]
    there, here = VlmPolicy(turned, config).act(contexts), stock.act(contexts)
    assert not any(reply.failure for reply in there), there[0].failure
    assert [reply.text for reply in there] == [reply.text for reply in here]
    gone = config.model_copy(update={"server": config.server.model_copy(update={"url": f"{served}/nothing"})})
    with pytest.raises(FlywheelError, match="404"):
        VlmPolicy(turned, gone).act(contexts[:1])


@pytest.mark.slow
def test_what_transformers_serve_samples_from_is_not_decided_by_the_checkpoint(
    served: str, turned: Path, tmp_path: Path
) -> None:
    """By transformers 5.23.0: greedy without `do_sample`, and a `generation_config.json` whose fields are heeded."""
    decided = tmp_path / "decided"
    shutil.copytree(turned, decided)
    written = (
        json.loads((turned / "generation_config.json").read_text())
        if (turned / "generation_config.json").exists()
        else {}
    )
    punished = {"repetition_penalty": 1.9, "no_repeat_ngram_size": 2, "top_k": 1, "min_new_tokens": 20, "num_beams": 2}
    (decided / "generation_config.json").write_text(json.dumps({**written, **punished}))
    config = CONFIG.model_copy(update={"server": ServerConfig(url=served, concurrency=1)})
    chats = [ModelFamily(config).messages(context(0))] * 4
    for directory in (turned, decided):
        there, here = ServerModel(directory, config, "policy"), VlmPolicy(directory, STOCK).model
        here.model.float()  # type: ignore[attr-defined]
        there.begin()
        sampled = [one.text for one in there.generate(chats, range(4), 1.0, 24)]
        assert len(set(sampled)) > 1, "greedy"
        (greedy,), (alike,) = (model.generate(chats[:1], [0], 0.0, 24) for model in (there, here))
        assert (greedy.text, greedy.failure) == (alike.text, "")


def test_a_served_model_explains_a_step(served: str, turned: Path) -> None:
    # of several pictures in one message `transformers serve` 5.23 says that shapes do not match
    given = {"url": served, "model": str(turned), "max_tokens": 8, "concurrency": 2, "history_images": 1}
    options = THINKERS.options(["endpoint"], {"endpoint": given})["endpoint"]
    EndpointThinker.require(options)  # type: ignore[arg-type]
    thinker = EndpointThinker(options, ThinkerResources(lambda: pytest.fail("nobody acts")))  # type: ignore[arg-type]
    thoughts = thinker.think([ThinkerCase(context(number), Click(x=0.5, y=0.5)) for number in range(3)], 0)
    assert len(thoughts) == 3 and not any(thought.failure for thought in thoughts), thoughts[0].failure
    assert all(thought.tokens > 0 for thought in thoughts)


def test_a_reply_that_was_cut_says_so_and_one_that_was_given_up_is_asked_for_again() -> None:
    answers = iter(
        [completed("wait()", finish_reason="length"), completed("wa", finish_reason="abort"), completed("x")]
    )
    chats = [ModelFamily(PolicyConfig()).messages(context(0))] * 2
    cut, whole = served_by(lambda _: next(answers)).generate(chats, [0, 1], 0.0, 4)
    assert (cut.cut, cut.failure, whole.cut) == (True, "", False)
    assert (whole.text, whole.failure) == ("x", "")


def test_a_reply_that_is_always_given_up_is_the_servers_failure() -> None:
    asked = served_by(lambda _: completed("wa", finish_reason="abort"), SERVER.model_copy(update={"patience_s": 0.05}))
    (given_up,) = asked.generate([ModelFamily(PolicyConfig()).messages(context(0))], [0], 0.0, 4)
    assert "abort" in given_up.failure and not given_up.text


def test_a_screen_is_sent_in_the_size_that_the_family_shows_it_in() -> None:
    bodies: list[dict[str, Any]] = []

    def handler(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return completed("wait()")

    family = ModelFamily(PolicyConfig())
    family.fit(ImageLimits(28, 3136, 12845056))
    png = io.BytesIO()
    Image.new("RGB", (160, 210)).save(png, "png")
    seen = replace(context(0).observation, png=png.getvalue(), width=160, height=210)
    served_by(handler).generate([family.messages(replace(context(0), observation=seen))], [0], 0.0, 4)
    url = bodies[0]["messages"][-1]["content"][0]["image_url"]["url"]
    sent = Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))
    assert sent.size == (168, 224)
