"""The GPU benchmarks without a GPU: one plain line and no error; on a CPU their tiny setting runs to the table."""

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForImageTextToText

from benchmarks.gpu.learning import base_of, timed
from benchmarks.gpu.real import BYTES, FREE, LAYERS, layers_for

NAMES = ["cost_model", "replay", "save_stall", "train_step"]
TEXT = {
    "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16, "num_key_value_heads": 2,
    "vocab_size": 151_936,
}  # fmt: skip
VISION = {"hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "num_heads": 16, "out_hidden_size": 2048}
"""Qwen2.5-VL-3B's, as its config.json has them."""
ENVIRON = {**os.environ, "OMP_NUM_THREADS": "1"}


def started(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"benchmarks.gpu.{name}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRON, timeout=250)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, so nothing is skipped")
@pytest.mark.parametrize("words", [("cost_model",), ("learning", "rl"), ("real",)])
def test_without_a_gpu_a_gpu_benchmark_says_so_in_one_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *arguments = words
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    assert importlib.import_module(f"benchmarks.gpu.{name}").main() == 0
    said = capsys.readouterr().out
    assert said.startswith("skipped: there is no GPU here") and said.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_the_tiny_setting_measures_every_arm(name: str, tmp_path: Path) -> None:
    done = started(name, "--device", "cpu", "--short", "--json", str(tmp_path / "out.json"))
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    arms = {"cost_model": 2, "replay": 4, "save_stall": 3, "train_step": 2}
    assert len(written["rows"]) >= arms[name] and not written["bars"]


def test_the_real_geometry_takes_as_many_layers_as_a_gpu_holds(tmp_path: Path) -> None:
    with torch.device("meta"):
        text = {**TEXT, "num_hidden_layers": 3}
        config = AutoConfig.for_model("qwen2_5_vl", text_config=text, vision_config=VISION, tie_word_embeddings=False)
        model = AutoModelForImageTextToText.from_config(config)
    weights = sum(one.numel() for one in model.parameters())
    assert [layers_for(int(weights * share * BYTES / (1 - FREE))) for share in (0.99, 1.01)] == [2, 3]
    assert layers_for(10**12) == LAYERS
    with pytest.raises(ValueError, match="a GPU of 8 GiB is too small"):
        layers_for(8 * 2**30)


def test_what_takes_too_long_is_stopped_and_what_ends_keeps_its_code() -> None:
    started_at = time.monotonic()
    assert timed([sys.executable, "-c", "import time; time.sleep(60)"], minutes=0.02) is None
    assert time.monotonic() - started_at < 30
    assert timed([sys.executable, "-c", "raise SystemExit(3)"], minutes=1) == 3


def test_the_gpu_trains_more_than_100_million_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLYWHEEL_HOME", str(tmp_path))
    weights = AutoModelForImageTextToText.from_pretrained(base_of("cuda"), device_map="meta")
    assert sum(weight.numel() for weight in weights.parameters()) > 100_000_000
