"""A server and the weights that it holds: requests and changes never meet, and every answer is of one version."""

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import models.serving.openai
from models.serving.openai import Unready
from models.serving.proof import HOT
from models.serving.served import ModelServer
from models.serving.server import ServerModel
from models.weights import Weights
from schemas.config.policy import PolicyConfig, ServerConfig
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences

URL = "http://model.test/v1"
CHAT = [{"role": "user", "content": [{"type": "text", "text": "?"}]}]
Handler = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where the server's log is
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.01, 0.01))


class Vllm:
    """vLLM's endpoints without a model: an answer says which weights it is from.

    As in `EngineCore` (`v1/engine/core.py`) of vLLM 0.16.0, 0.17.0, 0.20.0, 0.24.0, 0.28.0 and 0.31.0 to 0.33.0: from
    0.17 one that is paused says that it sleeps, and one that sleeps is paused; `/wake_up` resumes it, whatever part of
    the memory it was asked for, in 0.17 and 0.20, and once all of it is there from 0.24 on. Names of weights, and an
    answer of `/wake_up`, are there from 0.32 on.
    """

    def __init__(self, release: tuple[int, int] = (0, 33)) -> None:
        self.release = release
        self.held = 0
        """How often emptying the cache of prefixes fails."""
        self.calls: list[str] = []
        self.loaded, self.version = "base", "default"
        self.paused = False
        self.asleep: bool | None = False
        """None: a release that does not say."""
        self.dies_at = ""
        """The call that a kill of the flywheel falls before; once."""
        self.given_up = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path = request.url.path
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "policy"}]})
        if path in ("/weight_info", "/update_weight_version") and self.release < (0, 32):
            return httpx.Response(404)
        if path == "/weight_info":
            return httpx.Response(200, json={"weight_version": self.version})
        if path == "/is_sleeping":
            sleeping = {"is_sleeping": self.asleep or (self.paused and self.release >= (0, 17))}
            return httpx.Response(404) if self.asleep is None else httpx.Response(200, json=sleeping)
        if path == "/is_paused":
            return httpx.Response(200, json={"is_paused": self.paused or bool(self.asleep)})
        body = json.loads(request.content or b"{}")
        if path == "/v1/chat/completions":
            return self.chat(body)
        if path == self.dies_at:
            self.dies_at = ""
            raise KeyboardInterrupt
        self.calls.append(path + (f"?{request.url.query.decode()}" if request.url.query else ""))
        if path == "/pause":
            self.paused = True
        elif path == "/resume":
            self.paused = False
        elif path == "/sleep":
            self.asleep = None if self.asleep is None else True
            self.paused = self.paused or self.release >= (0, 17)
        elif path == "/wake_up":
            self.asleep = self.asleep and "kv_cache" not in request.url.query.decode()
            if self.release >= (0, 17) and (self.release < (0, 24) or self.asleep is False):
                self.paused = False
            if self.release >= (0, 32):
                return httpx.Response(200, json={"status": "sleeping" if self.asleep else "awake"})
            return httpx.Response(200)
        elif path == "/collective_rpc":
            assert self.paused and body["method"] == "reload_weights"
            self.loaded = body["kwargs"]["weights_path"]
        elif path == "/reset_prefix_cache":
            self.held -= 1
            return httpx.Response(200, json={"success": self.held < 0} if self.release >= (0, 31) else None)
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        return httpx.Response(200, json={})

    def chat(self, body: dict[str, Any]) -> httpx.Response:
        if self.paused:
            return httpx.Response(503, json={"error": "paused"})
        if self.given_up:
            self.given_up -= 1
            return completed("ha", finish_reason="abort")
        spans = [{"version": self.version, "start": 0, "end": 1}]
        named = body.get("return_weight_versions") and self.release >= (0, 32)
        more = {"weight_versions": spans} if named else {}
        return completed(sampled(self.loaded, body), **more)


def sampled(text: str, body: dict[str, Any]) -> str:
    """What a model answers: of a high temperature another answer for each seed."""
    return f"{text} {body['seed']}" if body["temperature"] == HOT else text


def completed(text: str, **more: Any) -> httpx.Response:
    return httpx.Response(200, json={"choices": [{"message": {"content": text}, **more}]})


def served(handler: Handler, **more: Any) -> ModelServer:
    config = ServerConfig.model_validate({"url": URL, "update": "vllm", "retries": 0, "patience_s": 5.0, **more})
    return ModelServer(config, Path("log"), httpx.MockTransport(handler))


def weights(tmp_path: Path, version: str) -> Weights:
    directory = tmp_path / version
    directory.mkdir(exist_ok=True)
    (directory / "model.safetensors").write_text(version)
    return Weights(directory, version)


def model_of(there: ModelServer, of: Weights, monkeypatch: pytest.MonkeyPatch) -> ServerModel:
    monkeypatch.setattr("models.serving.server.served_by", lambda *_: there)
    config = PolicyConfig(server=ServerConfig(url=URL, update="vllm", patience_s=5.0))
    return ServerModel(of.directory, config, of.version)


def test_weights_are_loaded_between_a_pause_and_the_emptying_of_caches(tmp_path: Path) -> None:
    server = Vllm()
    there, one = served(server), weights(tmp_path, "policy-0001")
    with there.request(one) as (held, named):
        assert (held, named["model"], server.loaded, server.version) == (one, "policy", str(one.directory), one.name)
    assert server.calls == [
        "/pause?mode=wait",
        "/update_weight_version",
        "/collective_rpc",
        "/reset_prefix_cache?reset_running_requests=true",
        "/reset_encoder_cache",
        "/update_weight_version",
        "/resume",
    ]
    with there.request(one):
        assert len(server.calls) == 7
    again = served(server)  # another process
    with again.request(one):
        assert len(server.calls) == 7


@pytest.mark.parametrize("says", [True, False], ids=["a release that says it sleeps", "one that does not"])
@pytest.mark.parametrize("killed", [False, True], ids=["this process goes on", "another one takes over"])
def test_a_server_that_sleeps_while_the_policy_is_trained_is_woken_with_the_weights_that_are_asked(
    tmp_path: Path, says: bool, killed: bool
) -> None:
    server, one = Vllm(), weights(tmp_path, "policy-0001")
    server.asleep = False if says else None
    there = served(server, while_training="sleep")
    with there.request(one):
        pass
    there.make_room()
    assert server.calls[-2:] == ["/update_weight_version", "/sleep?level=2"] and server.version == "asleep"
    server.calls.clear()
    there = served(server, while_training="sleep") if killed else there
    with there.request(one):
        assert server.calls == [
            "/wake_up?tags=weights",
            "/pause?mode=wait",
            "/update_weight_version",
            "/collective_rpc",
            "/reset_prefix_cache?reset_running_requests=true",
            "/reset_encoder_cache",
            "/update_weight_version",
            "/wake_up?tags=kv_cache",
            "/resume",
        ]
    assert not server.asleep and server.version == one.name


@pytest.mark.parametrize("killed", [False, True], ids=["this process goes on", "another one takes over"])
def test_sglang_is_woken_once_and_only_where_it_sleeps(tmp_path: Path, killed: bool) -> None:
    calls, version = list[str](), ["default"]

    def server(request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if path == "/model_info":
            return httpx.Response(200, json={"weight_version": version[0]})
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "x"}]})
        calls.append(path)
        version[0] = body.get("new_version") or body.get("weight_version") or version[0]
        return httpx.Response(200, json={"success": True})

    there, one = served(server, update="sglang", while_training="sleep", model="x"), weights(tmp_path, "policy-0001")
    with there.request(one):
        assert calls == ["/update_weights_from_disk"]
    there.make_room()
    there = served(server, update="sglang", while_training="sleep", model="x") if killed else there
    with there.request(one):
        assert calls[1:] == [
            "/update_weight_version",
            "/release_memory_occupation",
            "/resume_memory_occupation",
            "/update_weight_version",
            "/update_weights_from_disk",
        ]


def test_two_policies_in_turn_are_each_answered_by_their_own_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = served(Vllm())
    one, two = (weights(tmp_path, name) for name in ("policy-0001", "policy-0002"))
    models_of = [model_of(there, of, monkeypatch) for of in (one, two, one)]
    made = [model.generate([CHAT], [0], 0.0, 4)[0] for model in models_of]  # type: ignore[list-item]
    assert [(reply.text, reply.version) for reply in made] == [
        (str(of.directory), of.version) for of in (one, two, one)
    ]


def test_a_change_waits_for_requests_and_holds_back_new_ones(tmp_path: Path) -> None:
    server = Vllm()
    there = served(server)
    one, two = (weights(tmp_path, name) for name in ("policy-0001", "policy-0002"))
    there.begin(one)
    seen: list[str] = []

    def ask() -> None:
        with there.request(one, follow=True) as (held, _):
            seen.append(held.version)

    with there.request(one, follow=True) as (held, _):
        changing = threading.Thread(target=lambda: there.begin(two))
        changing.start()
        time.sleep(0.1)
        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.1)
        assert held == one and not seen and server.version == one.name
    changing.join(5)
    asking.join(5)
    assert seen == ["policy-0002"] and server.version == two.name


def test_a_request_that_is_given_up_or_meets_a_pause_is_asked_again_and_is_nobodys_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Vllm()
    there, one = served(server), weights(tmp_path, "policy-0001")
    model = model_of(there, one, monkeypatch)
    model.begin()
    server.given_up, server.paused = 2, True
    threading.Timer(0.2, lambda: setattr(server, "paused", False)).start()
    (made,) = model.generate([CHAT], [0], 1.0, 4)  # type: ignore[list-item]
    assert (made.text, made.failure, made.version) == (str(one.directory), "", "policy-0001")


def test_a_server_that_never_comes_back_is_a_failure_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Vllm()
    there, one = served(server), weights(tmp_path, "policy-0001")
    model = model_of(there, one, monkeypatch)
    model.begin()
    model.config = model.config.model_copy(update={"patience_s": 0.2})
    server.paused = True
    (made,) = model.generate([CHAT], [0], 1.0, 4)  # type: ignore[list-item]
    assert "503" in made.failure and not made.text


@pytest.mark.parametrize("dies_at", ["/pause", "/collective_rpc", "/reset_prefix_cache", "/resume"])
def test_a_kill_between_two_calls_leaves_old_weights_or_new_ones_and_never_trusts_what_is_between(
    dies_at: str, tmp_path: Path
) -> None:
    server = Vllm()
    one, two = (weights(tmp_path, name) for name in ("policy-0001", "policy-0002"))
    served(server).begin(one)
    server.dies_at = dies_at
    with pytest.raises(KeyboardInterrupt):
        served(server).begin(two)
    again = served(server)
    for of in (one, two):
        with again.request(of):
            assert (server.loaded, server.version) == (str(of.directory), of.name)
            if dies_at != "/resume":
                assert not server.paused


RELEASES = [(0, minor) for minor in (16, 17, 20, 24, 28, 31, 32, 33)]


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: ".".join(map(str, release)))
@pytest.mark.parametrize("paused", [False, True], ids=["running", "left paused"])
@pytest.mark.parametrize("asleep", [False, True], ids=["awake", "left asleep"])
def test_weights_are_loaded_under_a_pause_whichever_state_a_release_was_left_in(
    release: tuple[int, int], paused: bool, asleep: bool, tmp_path: Path
) -> None:
    """`Vllm` asserts the pause: from 0.17 `/wake_up` ends one, and before 0.32 it does not say whether it did."""
    server, one = Vllm(release), weights(tmp_path, "policy-0001")
    server.paused, server.asleep = paused or (asleep and release >= (0, 17)), asleep
    with served(server).request(one):
        assert server.loaded == str(one.directory) and not server.paused and not server.asleep
    loaded = server.calls.index("/collective_rpc")
    assert "/pause?mode=wait" in server.calls[:loaded] and server.calls[-1] == "/resume"
    if asleep:
        assert server.calls[0] == "/wake_up?tags=weights" and server.calls[-2] == "/wake_up?tags=kv_cache"


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: ".".join(map(str, release)))
def test_every_release_that_sleeps_while_the_policy_is_trained_answers_by_the_next_weights(
    release: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Vllm(release)
    there = served(server, while_training="sleep")
    for version in ("policy-0001", "policy-0002"):
        one = weights(tmp_path, version)
        (made,) = model_of(there, one, monkeypatch).generate([CHAT], [0], 0.0, 4)  # type: ignore[list-item]
        assert (made.text, made.failure) == (str(one.directory), "")
        there.make_room()
        assert server.asleep


def test_a_cache_of_prefixes_that_is_held_is_emptied_again_before_anybody_is_answered(
    tmp_path: Path, sentence: Sentences
) -> None:
    """vLLM 0.33.0 answers `{"success": false}` while blocks are held (`entrypoints/serve/dev/cache/api_router.py`)."""
    server, one = Vllm(), weights(tmp_path, "policy-0001")
    server.held = 2
    with served(server).request(one):
        assert sum(call.startswith("/reset_prefix_cache") for call in server.calls) == 3
    server, one = Vllm(), weights(tmp_path, "policy-0002")
    server.held = 10**6
    with sentence.raises(FlywheelError, hint="flywheel doctor"):
        served(server, patience_s=0.01).begin(one)
    assert server.paused and server.version == "loading", "nobody takes it for the new weights"
    server.held = 0
    with served(server).request(one):
        assert (server.loaded, server.version, server.paused) == (str(one.directory), one.name, False)


class Sglang:
    """SGLang 0.5.23's endpoints: `/update_weights_from_disk` renames the model (`srt/managers/tokenizer_manager.py`),
    and of another name with a colon the end is taken for an adapter's (`srt/entrypoints/openai/serving_base.py`)."""

    def __init__(self, name: str, spans: tuple[str, ...] = ()) -> None:
        self.name, self.version, self.spans = name, "default", spans

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if path == "/model_info":
            return httpx.Response(200, json={"weight_version": self.version})
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": self.name}]})
        if path == "/update_weights_from_disk":
            self.name, self.version = body["model_path"], body["weight_version"]
        if path != "/v1/chat/completions":
            return httpx.Response(200, json={"success": True})
        if body["model"] != self.name and ":" in body["model"]:
            return httpx.Response(400, json={"message": f"no adapter {body['model'].partition(':')[2]}"})
        versions = (*self.spans, self.version)
        spans = [{"version": one, "start": at, "end": at + 1} for at, one in enumerate(versions)]
        metadata = {"weight_version": self.version, **({"weight_versions": spans} if self.spans else {})}
        self.spans = ()
        choice = {"message": {"content": sampled(self.name, body)}}
        return httpx.Response(200, json={"choices": [choice], "metadata": metadata})


@pytest.mark.parametrize("model", ["{checkpoint}", "qwen:7b", "plain"])
def test_sglang_is_asked_for_the_name_that_it_has_since_its_last_weights(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Sglang("qwen:7b")
    there = served(server, update="sglang", model=model)
    for version in ("policy:1", "policy:2"):
        one = weights(tmp_path, version)
        used = model_of(there, one, monkeypatch)
        used.begin()
        (made,) = used.generate([CHAT], [0], 1.0, 4)  # type: ignore[list-item]
        assert (made.text, made.failure) == (str(one.directory), "")


def test_an_answer_of_two_weights_is_not_taken_for_the_last_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    """SGLang 0.5.23 lists all of them in `metadata.weight_versions` (`srt/utils/weight_versions.py`)."""
    server, one = Sglang("policy"), weights(tmp_path, "policy-0001")
    there = served(server, update="sglang")
    used = model_of(there, one, monkeypatch)
    used.begin()
    server.spans = ("before",)
    with sentence.raises(Unready, one.name, NAME=one.name), there.request(one):
        there.check(there.ask(one, {"model": server.name, "messages": [], "seed": 0}, 0.0))
    server.spans = ("before",)
    (made,) = used.generate([CHAT], [0], 0.0, 4)  # type: ignore[list-item]
    assert (made.version, made.failure, server.spans) == ("policy-0001", "", ())


def test_an_answer_of_other_weights_is_not_taken_and_the_right_ones_are_brought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Vllm()
    there, one = served(server), weights(tmp_path, "policy-0001")
    model = model_of(there, one, monkeypatch)
    model.begin()
    server.loaded, server.version = "base", "default"  # it was started anew by somebody
    (made,) = model.generate([CHAT], [0], 1.0, 4)  # type: ignore[list-item]
    assert made.text == str(one.directory) and server.version == one.name


def test_a_server_without_the_endpoints_is_refused_with_the_switch_to_set(tmp_path: Path) -> None:
    there = served(lambda _: httpx.Response(404, json={"detail": "Not Found"}))
    with pytest.raises(FlywheelError, match="VLLM_SERVER_DEV_MODE=1"):
        there.begin(weights(tmp_path, "policy-0001"))


def test_what_a_request_leaves_to_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies: list[dict[str, Any]] = []
    server = Vllm()

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("completions"):
            bodies.append(json.loads(request.content))
        return server(request)

    model_of(served(handler), weights(tmp_path, "policy-0001"), monkeypatch).generate([CHAT], [3], 0.7, 9)  # type: ignore[list-item]
    (body,) = (one for one in bodies if one["temperature"] != HOT)
    del body["messages"]
    assert body == {
        "model": "policy",
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "skip_special_tokens": True,
        "watermarking": False,
        "watermark": {"enabled": False},
        "max_tokens": 9,
        "seed": 3,
        "return_token_ids": True,
        "return_weight_versions": True,
    }


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"url": URL, "command": "serve {port}"}, "url and policy.server.command"),
        ({"command": "serve"}, "{port}"),
        ({"command": "serve {port}", "update": "vllm"}, "{checkpoint}"),
        ({"url": URL, "update": "restart"}, "update is restart"),
        ({"url": URL, "while_training": "stop"}, "while_training is stop"),
        ({"url": URL, "model": "fixed"}, "policy.server.model"),
        ({"url": URL, "logprobs": True, "extra": {"top_p": 0.9}}, "extra has top_p"),
        ({"url": URL, "extra": {"temperature": 0.3}}, "extra has temperature"),
        ({"url": URL, "extra": {"model": "other"}}, "extra has model"),
        ({"url": URL, "extra": {"seed": 1, "max_tokens": 9}}, "extra has max_tokens"),
        ({"url": URL, "logprobs": True, "extra": {"watermarking": True}}, "extra has watermarking"),
        ({"url": URL, "extra": {"generation_config": "{}"}}, "extra has generation_config"),
    ],
)
def test_a_server_that_could_not_follow_is_refused_by_its_field(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named.replace("{", r"\{").replace("}", r"\}")):
        ServerConfig.model_validate(given)


def test_an_updater_that_is_none_is_named() -> None:
    with pytest.raises(UsageError, match=r"policy\.server\.update.*nobody"):
        served(Vllm(), update="nobody")


def test_unready_is_heard_by_whoever_waits(tmp_path: Path) -> None:
    there = served(lambda _: httpx.Response(503))
    with pytest.raises(Unready):
        there.client.chat({})
