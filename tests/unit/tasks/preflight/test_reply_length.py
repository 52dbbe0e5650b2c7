"""A reply's maximum is refused if it fills the context that a checkpoint names."""

import json
from pathlib import Path

import pytest

from schemas.config import load_config
from schemas.failure import UsageError
from tasks.preflight.preflight import _require_room  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    "config", [{"max_position_embeddings": 4096}, {"text_config": {"max_position_embeddings": 4096}}]
)
def test_a_reply_has_to_leave_room_for_the_prompt(tmp_path: Path, config: dict[str, object]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    for tokens in (512, 4095):
        _require_room(load_config("smoke", [f"policy.base={tmp_path}", f"policy.max_new_tokens={tokens}"]).policy)
    with pytest.raises(UsageError, match=r"`policy\.max_new_tokens` is 4096, .* context of 4096 tokens"):
        _require_room(load_config("smoke", [f"policy.base={tmp_path}", "policy.max_new_tokens=4096"]).policy)
