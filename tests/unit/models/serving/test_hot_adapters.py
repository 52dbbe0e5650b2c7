"""What a training with adapters made reaches a server as the adapter alone, beside the weights that it belongs to."""

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

import models.serving.openai
from models.weights import ADAPTER, Weights, fingerprint, write_parent
from tests.unit.models.serving.test_served import CHAT, Vllm, completed, model_of, served, weights


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
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
            return completed(f"{self.loaded} with {self.adapters[body['model']]}")
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


@pytest.mark.parametrize("refusal", ["LoRA rank 64 is greater than max_lora_rank 16.", ""])
def test_a_server_that_takes_no_adapter_gets_whole_weights_and_its_log_says_why(
    refusal: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Vllm = AdaptedVllm() if refusal else Vllm()
    if isinstance(server, AdaptedVllm):
        server.refuses = refusal

    def handler(request: httpx.Request) -> httpx.Response:
        missing = not refusal and request.url.path == "/v1/load_lora_adapter"
        return httpx.Response(404, json={"detail": "Not Found"}) if missing else server(request)

    monkeypatch.chdir(tmp_path)
    there, parent = served(handler), weights(tmp_path, "policy-0001")
    one, two = child(parent, "policy-0002"), child(parent, "policy-0003")
    there.begin(parent)
    for of in (one, two):
        assert answer(there, of, monkeypatch) == str(of.directory)
    assert server.calls.count("/v1/load_lora_adapter") == bool(refusal)
    assert (refusal or "404") in (tmp_path / "log").read_text()


def test_an_adapter_that_the_server_has_lost_is_brought_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = AdaptedVllm()
    there, parent = served(server), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(parent)
    assert answer(there, one, monkeypatch) == said(one, parent)
    server.adapters, server.loaded, server.version = {}, "base", "default"  # it was started anew by somebody
    assert answer(there, one, monkeypatch) == said(one, parent)


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


def test_adapters_leave_before_a_server_sleeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = AdaptedVllm()
    there, parent = served(server, while_training="sleep"), weights(tmp_path, "policy-0001")
    one = child(parent, "policy-0002")
    there.begin(one)
    there.make_room()
    assert not server.adapters and server.asleep
    assert answer(there, one, monkeypatch) == said(one, parent)


def test_sglang_is_asked_for_an_adapter_by_a_field_of_its_own(tmp_path: Path) -> None:
    calls, version = list[Any](), ["default"]

    def server(request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, json.loads(request.content or b"{}")
        if path == "/model_info":
            return httpx.Response(200, json={"weight_version": version[0]})
        if path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "default"}]})
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


def test_a_fingerprint_is_of_what_is_in_the_files_wherever_they_lie(tmp_path: Path) -> None:
    one = weights(tmp_path, "policy-0001").directory
    (one / "big.bin").write_bytes(bytes(3_000_000))
    print_of_one = fingerprint(one)
    time.sleep(0.01)
    shutil.copytree(one, tmp_path / "copy")
    assert fingerprint(tmp_path / "copy") == print_of_one and len(print_of_one) == 12
    (one / ADAPTER).mkdir()
    assert fingerprint(one) == print_of_one
    with (one / "big.bin").open("r+b") as file:
        for at in range(0, 3_000_000, 30_000):  # as a training that changes every layer
            file.seek(at)
            file.write(b"x")
    assert fingerprint(one) != print_of_one and fingerprint(tmp_path / "nowhere") != print_of_one
