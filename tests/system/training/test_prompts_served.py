"""The prompts of an export in ATIF are what a server of the policy says it read."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.completion import Completion
from models.random_vlm import build_random
from models.vlm import VlmPolicy
from rollout.actor import Actor
from tests.system.training.test_adapters_served import Server
from tests.unit.models.test_vlm import TEXTS
from tests.unit.tasks.exchange.test_prompts import THOUGHTS, VERSION, collect, place_of, planned, replies_of, told


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["vllm", pytest.param("sglang", marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_the_prompts_of_an_export_are_those_that_the_server_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_random("qwen3_vl", TEXTS, 0, tmp_path / "base")
    server = Server(kind, tmp_path)
    try:
        given = server.config.server.model_dump()
        place = place_of(tmp_path / "base", tmp_path, "qwen3_vl", server=given)
        monkeypatch.setattr("models.serving.server.served_by", lambda *_: server.served)
        policy, left = VlmPolicy(place.directory, place.config.policy, VERSION), replies_of(place, *THOUGHTS)
        generate = policy.model.generate

        def answered(chats: Sequence[Any], *how: Any) -> list[Completion]:
            made = generate(chats, *how)
            place.read += [list(one.prompt_ids) for one in made]
            return [replace(told(left.pop(0)), prompt_ids=one.prompt_ids) for one in made]

        monkeypatch.setattr(policy.model, "generate", answered)
        with Actor(policy, 1.0) as actor:
            steps = collect(place, actor, planned())
    finally:
        server.served.close()
    assert [step.thought for step in steps] == list(THOUGHTS)
    found = place.export(tmp_path / "out")
    assert len(place.read) == 5 and all(place.read)
    assert found.prompts == place.read and found.notes == []
