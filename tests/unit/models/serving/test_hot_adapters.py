"""What a training with adapters made reaches a server as the adapter alone, beside the weights that it belongs to."""

import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

import models.serving.openai
from models.serving.updater import Updater
from models.weights import ADAPTER, Weights, write_parent
from schemas.failure import FlywheelError
from tests.fixtures.sentences import Sentences
from tests.unit.models.serving.test_served import CHAT, Vllm, completed, model_of, sampled, served, weights


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where the server's log is
    monkeypatch.setattr(models.serving.openai, "PAUSES", (0.01, 0.01))


class AdaptedVllm(Vllm):
    """vLLM with `--enable-lora` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`: what answers is the adapter asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.adapters: dict[str, str] = {}
        self.refuses = ""

    def __call__(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": name} for name in ("policy", *self.adapters)]})
        if path == "/v1/load_lora_adapter":
            self.calls.append(path)
            if self.refuses:
                return httpx.Response(400, json={"error": {"message": self.refuses}})
            self.adapters[body["lora_name"]] = body["lora_path"]
            return httpx.Response(200, text="Success: LoRA adapter added successfully.")
        if path == "/v1/unload_lora_adapter":
            self.calls.append(path)
            del self.adapters[body["lora_name"]]
            return httpx.Response(200, text="Success: LoRA adapter removed successfully.")
        if path == "/v1/chat/completions" and body["model"] != "policy":
            if body["model"] not in self.adapters:
                return httpx.Response(404, json={"error": {"message": "The model does not exist.", "code": 404}})
            return completed(sampled(f"{self.loaded} with {self.adapters[body['model']]}", body))
        return super().__call__(request)


def child(parent: Weights, version: str) -> Weights:
    """What a training with adapters made of a parent."""
    made = weights(parent.directory.parent, version)
    (made.directory / ADAPTER).mkdir()
    write_parent(made.directory / ADAPTER, parent.directory)
    return made


def said(of: Weights, parent: Weights) -> str:
    return f"{parent.directory} with {of.directory / ADAPTER}"


def answer(there: Any, of: Weights, patch: pytest.MonkeyPatch) -> str:
    (made,) = model_of(there, of, patch).generate([CHAT], [0], 0.0, 4)
    assert made.version == of.version
    return made.text


def test_an_adapter_joins_its_parent_without_a_pause_and_both_answer_in_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one, two = child(parent, "policy-0002"), child(parent, "policy-0003")
    there.begin(parent)
    server.calls.clear()
    for of, text in ((one, said(one, parent)), (parent, str(parent.directory)), (two, said(two, parent))):
        assert answer(there, of, monkeypatch) == text
    assert server.calls == ["/v1/load_lora_adapter"] * 2
    again = served(server)  # another process finds all of them there
    assert answer(again, two, monkeypatch) == said(two, parent)
    assert answer(again, parent, monkeypatch) == str(parent.directory)
    assert server.calls == ["/v1/load_lora_adapter"] * 2


@pytest.mark.parametrize("rule", ["finish", "drop"])
def test_requests_under_way_end_under_the_old_adapter_or_are_waited_for_where_they_are_to_be_dropped(
    rule: str, tmp_path: Path
) -> None:
    server = AdaptedVllm()
    there, parent = served(server, in_flight=rule), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(parent)
    with there.request(parent, follow=True) as (held, _):
        changing = threading.Thread(target=lambda: there.begin(one))
        changing.start()
        changing.join(0.5)
        assert held == parent and changing.is_alive() == (rule == "drop")
        if rule == "finish":
            with there.request(parent, follow=True) as (newer, named):
                assert newer == one and named == {"model": one.name}
    changing.join(5)
    assert ("/abort_requests" in server.calls) == (rule == "drop")


def test_a_parent_that_the_server_does_not_hold_is_brought_first_and_serves_the_next_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one, two = child(parent, "policy-0002"), child(parent, "policy-0003")
    there.begin(weights(tmp_path, "policy-0000"))
    assert answer(there, one, monkeypatch) == said(one, parent)
    server.calls.clear()
    assert answer(there, two, monkeypatch) == said(two, parent)
    assert server.calls == ["/v1/load_lora_adapter"]
    grandchild = child(two, "policy-0004")  # its parent is whole, merged
    assert answer(there, grandchild, monkeypatch) == said(grandchild, two)


def test_whole_weights_are_brought_where_the_parent_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    (parent.directory / "model.safetensors").write_text("something else")
    there.begin(weights(tmp_path, "policy-0000"))
    assert answer(there, one, monkeypatch) == str(one.directory)


def test_a_server_that_takes_no_adapters_is_asked_once_gets_whole_weights_and_its_log_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/load_lora_adapter":
            asked.append(request)
            return httpx.Response(404, json={"detail": "Not Found"})
        return server(request)

    server = Vllm()
    there, parent = served(handler), weights(tmp_path, "policy-0001")
    there.begin(parent)
    for of in (child(parent, "policy-0002"), child(parent, "policy-0003")):
        assert answer(there, of, monkeypatch) == str(of.directory)
        there.begin(parent)
    assert len(asked) == 1 and "404" in (tmp_path / "log").read_text()


def test_an_adapter_that_is_refused_is_brought_whole_and_the_next_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one, two = child(parent, "policy-0002"), child(parent, "policy-0003")
    there.begin(parent)
    server.refuses = "LoRA rank 64 is greater than max_lora_rank 16."
    for _ in range(2):
        assert answer(there, one, monkeypatch) == str(one.directory)
        there.begin(parent)
    assert server.calls.count("/v1/load_lora_adapter") == 1 and server.refuses in (tmp_path / "log").read_text()
    server.refuses = ""
    assert answer(there, two, monkeypatch) == said(two, parent)


def test_an_adapter_answers_beside_its_own_parent_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second iteration the candidate is an adapter beside the champion, itself one beside the first policy."""
    server = AdaptedVllm()
    there, first = served(server), weights(tmp_path, "policy-0001")
    champion = child(first, "policy-0002")
    candidate, other = child(champion, "policy-0003"), weights(tmp_path, "policy-0009")
    for of in (first, champion, candidate):
        there.begin(of)
    server.calls.clear()
    for _ in range(3):  # a contest
        assert answer(there, champion, monkeypatch) == str(champion.directory)
        assert answer(there, candidate, monkeypatch) == said(candidate, champion)
    assert not server.calls
    there.begin(other)
    assert answer(there, champion, monkeypatch) == said(champion, first)


def test_an_adapter_that_the_server_has_lost_is_brought_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(parent)
    assert answer(there, one, monkeypatch) == said(one, parent)
    server.adapters, server.loaded, server.version = {}, "base", "default"  # it was started anew by somebody
    assert answer(there, one, monkeypatch) == said(one, parent)


def test_all_who_ask_when_an_adapter_is_lost_are_answered_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, together = AdaptedVllm(), threading.Barrier(8, timeout=5)

    def handler(request: httpx.Request) -> httpx.Response:
        answer = server(request)
        if answer.status_code == 404 and request.url.path == "/v1/chat/completions":
            together.wait()  # all have been refused before any of them looks why
        return answer

    there, parent = served(handler), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(one)
    server.adapters.clear()
    model, made = model_of(there, one, monkeypatch), list[Any]()
    asking = [
        threading.Thread(target=lambda seed=seed: made.extend(model.generate([CHAT], [seed], 0.0, 4)))  # type: ignore[list-item]
        for seed in range(8)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(10)
    assert [(reply.text, reply.version) for reply in made] == [(said(one, parent), one.version)] * 8


def test_a_server_that_takes_no_adapter_loads_once_after_it_slept(tmp_path: Path) -> None:
    server = AdaptedVllm()
    there, parent = served(server, while_training="sleep"), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    server.refuses = "LoRA rank 64 is greater than max_lora_rank 16."
    there.begin(one)
    there.make_room()
    server.calls.clear()
    there.begin(one)
    assert server.calls.count("/collective_rpc") == 1


class Plain(Updater):
    """An updater of a user's own."""

    given = ""

    def replace(self, directory: Path, name: str) -> None:
        Plain.given = str(directory)


def test_an_updater_of_ones_own_that_knows_no_adapters_is_given_whole_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/chat/completions"
        return completed(sampled(Plain.given, json.loads(request.content)))

    parent = weights(tmp_path, "policy-0001")
    there, one = served(handler, update=f"{__name__}:Plain", model="policy"), child(parent, "policy-0002")
    there.begin(parent)
    assert answer(there, one, monkeypatch) == str(one.directory)


def test_a_server_keeps_two_adapters_and_those_that_still_answer(tmp_path: Path) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    made = [child(parent, f"policy-001{at}") for at in range(5)]
    there.begin(parent)
    there.begin(made[0])
    with there.request(made[0]):
        for of in made[1:4]:
            there.begin(of)
        assert list(server.adapters) == [of.name for of in (made[0], made[2], made[3])]
    there.begin(made[4])
    assert list(server.adapters) == [of.name for of in made[3:]]


@pytest.mark.parametrize("lost", [False, True], ids=["as it is known", "after all was forgotten"])
def test_adapters_leave_before_a_server_sleeps_and_come_back_when_it_is_awake(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdaptedVllm()
    there, parent = served(server, while_training="sleep"), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(one)
    if lost:
        there.lose()
        there.begin(parent)
    there.make_room()
    assert not server.adapters and server.asleep
    server.calls.clear()
    server.adapters["policy-0002-0123456789ab"] = "what another process has left"
    assert answer(there, one, monkeypatch) == said(one, parent)
    woken = next(at for at, call in enumerate(server.calls) if call.startswith("/wake_up"))
    assert server.calls.index("/v1/load_lora_adapter") > woken and list(server.adapters) == [one.name]


def test_weights_that_are_lost_while_a_request_is_made_up_are_not_taken_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(parent)
    there.begin(one)
    name = there._name

    def slow(of: Weights) -> str:
        losing = threading.Thread(target=there.lose)  # what another thread does that cannot reach the server
        losing.start()
        losing.join()
        return name(of)

    monkeypatch.setattr(there, "_name", slow)
    assert answer(there, one, monkeypatch) == said(one, parent)


def test_a_server_that_lists_no_adapters_is_not_blamed_for_losing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    server = AdaptedVllm()
    asked = []

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "policy"}]})
        if request.url.path == "/v1/chat/completions" and json.loads(request.content)["temperature"] == 0:
            asked.append(request)
            return httpx.Response(400, json={"error": {"message": "The input is longer than the context."}})
        return server(request)

    there, parent = served(handler), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(one)
    (made,) = model_of(there, one, monkeypatch).generate([CHAT], [0], 0.0, 4)  # type: ignore[list-item]
    assert len(asked) == 1
    sentence(made.failure)


def test_what_others_gave_the_server_meanwhile_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = AdaptedVllm()
    there, one, other = served(server), weights(tmp_path, "policy-0001"), weights(tmp_path, "policy-0009")
    replace = there.updater.replace

    def raced(directory: Path, name: str) -> None:
        replace(directory, name)
        server.loaded, server.version = str(other.directory), other.name
        monkeypatch.setattr(there.updater, "replace", replace)

    monkeypatch.setattr(there.updater, "replace", raced)
    there.begin(one)
    assert answer(there, one, monkeypatch) == str(one.directory)


def test_a_change_that_broke_off_leaves_no_weights_that_an_adapter_is_believed_to_stand_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, broken = AdaptedVllm(), list[str]()

    def handler(request: httpx.Request) -> httpx.Response:
        if request.url.path in broken:
            raise httpx.ReadTimeout("slow")
        return server(request)

    parent, other = weights(tmp_path, "policy-0001"), weights(tmp_path, "policy-0009")
    there, one = served(handler, patience_s=0.001), child(parent, "policy-0002")
    there.begin(parent)
    broken.append("/reset_prefix_cache")
    with pytest.raises(FlywheelError, match="did not reach"):
        there.begin(other)
    broken.clear()
    assert server.loaded == str(other.directory)
    assert answer(there, one, monkeypatch) == said(one, parent)


def test_weights_that_are_there_do_not_answer_before_log_probabilities_are_proven(
    tmp_path: Path, sentence: Sentences
) -> None:
    server = AdaptedVllm()  # which gives none
    there, parent = served(server, logprobs=True), weights(tmp_path, "policy-0001")
    for of in (parent, parent, child(parent, "policy-0002")):
        with sentence.raises(FlywheelError, hint="--logprobs-mode"), there.request(of):
            pass


def test_a_vllm_that_refuses_weights_is_not_left_paused(tmp_path: Path) -> None:
    server = AdaptedVllm()

    def handler(request: httpx.Request) -> httpx.Response:
        refused = request.url.path == "/collective_rpc"
        return httpx.Response(500, json={"error": "KeyError: 'qkv_proj'"}) if refused else server(request)

    with pytest.raises(FlywheelError, match="qkv_proj"):
        served(handler).begin(weights(tmp_path, "policy-0001"))
    assert not server.paused and server.version == "loading"


def test_sglang_is_asked_for_an_adapter_by_a_field_of_its_own(tmp_path: Path) -> None:
    calls, version = list[Any](), ["default"]

    def server(request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if path == "/model_info":
            return httpx.Response(200, json={"weight_version": version[0]})
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "default"}]})
        if path == "/v1/chat/completions":
            return completed(sampled("", body))
        calls.append((path, body))
        version[0] = body.get("weight_version") or version[0]
        return httpx.Response(200, json={"success": True})

    there, parent = served(server, update="sglang"), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(parent)
    with there.request(one) as (held, named):
        assert held == one and named == {"model": "default", "lora_path": one.name}
    loaded = {"lora_name": one.name, "lora_path": str(one.directory / ADAPTER)}
    assert [path for path, _ in calls] == ["/update_weights_from_disk", "/load_lora_adapter"]
    assert calls[1][1] == loaded
