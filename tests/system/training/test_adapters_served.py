"""A server with vLLM's or SGLang's endpoints, asked to answer as a policy that was trained with adapters.

The server is ours (`tests.system.parts.model_server`); the model is a real architecture with random weights, the
adapter a training's own, and peft applies it.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from learning.data.files import write_rollouts
from learning.data.sample import write_screenshots
from learning.job import Job
from learning.trainer import train
from learning.writing import result_of
from models.serving.served import ModelServer
from models.serving.server import ServerModel
from models.weights import ADAPTER, Weights
from schemas.config.policy import PolicyConfig, ServerConfig
from schemas.config.training import LoraConfig
from tests.unit.learning.replies import job, rolled_out

LOADS = {"vllm": "/v1/load_lora_adapter", "sglang": "/load_lora_adapter"}
WHOLE = {"vllm": "/collective_rpc", "sglang": "/update_weights_from_disk"}
FAR = 3e-2
"""A learning rate by which a few steps are felt."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("trained")
    plan = job(folder, "qwen3_vl", "grpo", lora=LoraConfig(rank=4, alpha=16.0)).model_copy(
        update={"learning_rate": FAR}
    )
    train(plan)
    return plan


class Server:
    """A server of the test's own, and its policies."""

    def __init__(self, kind: str, folder: Path, *more: str) -> None:
        self.calls_in = folder / "calls"
        command = f"{sys.executable} -m tests.system.parts.model_server {kind} {{checkpoint}} {{port}} {self.calls_in} "
        given = {"command": command + " ".join(more), "update": kind, "logprobs": True, "concurrency": 4}
        self.config = PolicyConfig(server=ServerConfig.model_validate(given))
        self.served = ModelServer(self.config.server, folder / "log")

    def model(self, directory: Path, version: str, patch: pytest.MonkeyPatch) -> ServerModel:
        patch.setattr("models.serving.server.served_by", lambda *_: self.served)
        return ServerModel(directory, self.config, version)

    def calls(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.calls_in.read_text().splitlines()]


def mismatch(plan: Job, folder: Path, runner: ServerModel | None, by: Path) -> float:
    """How far the log probabilities that a server gave are from those of a trainer whose parent is `by`, in nats."""
    folder.mkdir()
    rollouts, pngs = rolled_out(by, 6, runner)
    write_rollouts(folder / "samples.parquet", rollouts)
    write_screenshots(folder / "screenshots.parquet", pngs)
    again = plan.model_copy(
        update={
            "parent": by,
            "out": folder / "out",
            "samples": folder / "samples.parquet",
            "screenshots": folder / "screenshots.parquet",
        }
    )
    train(again)
    return float(result_of(again)["numbers"]["mismatch"])


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["vllm", pytest.param("sglang", marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_what_answers_is_the_adapter_and_its_log_probabilities_are_the_trainers(
    kind: str, trained: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(kind, tmp_path, "lora")
    try:
        parent = server.model(trained.parent, "policy-0001", monkeypatch)
        child = server.model(trained.out, "policy-0002", monkeypatch)
        parent.begin()
        rolled_out(trained.parent, 2, parent)
        child.begin()
        assert mismatch(trained, tmp_path / "child", child, trained.out) < 0.02
        compared = server.model(trained.parent, "policy-0001", monkeypatch)  # and does not follow
        assert mismatch(trained, tmp_path / "parent", compared, trained.out) > 0.05
        calls = server.calls()
        assert [one["path"] for one in calls if one["path"] in (LOADS[kind], WHOLE[kind])] == [LOADS[kind]]
        loading = next(one for one in calls if one["path"] == LOADS[kind])
        assert loading["body"]["lora_path"] == str(trained.out / ADAPTER)
        name = Weights(trained.out, "policy-0002").name
        assert {one["adapter"] for one in calls if one["path"] == "chat"} == {"", name}
    finally:
        server.served.close()


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_server_that_cannot_change_the_weights_below_adapters_is_started_anew_with_the_parent(
    trained: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server("vllm", tmp_path, "lora", "stiff")
    try:
        server.model(trained.out, "policy-0000", monkeypatch).begin()  # started with it, merged
        other = job(tmp_path, "qwen3_vl", "grpo", lora=trained.train.lora)
        train(other.model_copy(update={"out": tmp_path / "other", "learning_rate": FAR}))
        child = server.model(tmp_path / "other", "policy-0001", monkeypatch)
        assert mismatch(trained, tmp_path / "child", child, tmp_path / "other") < 0.02
        assert "restarting the server" in (tmp_path / "log").read_text()
        assert server.calls()[-1]["adapter"] == Weights(tmp_path / "other", "policy-0001").name
    finally:
        server.served.close()
