"""The benchmark of real sizes: budget, arms that fail, bars by card, operations, and tiny runs of each part."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.gpu.real.__main__ import BASELINE, keep, main
from benchmarks.gpu.real.arms import FULL, MEASURED, Arm, Attempt, Budget, attempt, row_of, run_arms
from benchmarks.gpu.real.parts import PARTS, Baseline, bars_of, fastest, mfu_bar
from benchmarks.gpu.real.scale import GEOMETRY, layers_for, scale_of
from benchmarks.trl.ours import changed, needed
from benchmarks.trl.workload import Scale, write_workload
from learning.algorithms.method import method_of
from learning.engines.fsdp.engine import FsdpEngine
from learning.job import Job
from learning.learner import Learner
from schemas.config.training import TrainConfig

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"


def python(code: str, name: str = "ours", least: float = 1.0, missing: str = "") -> Arm:
    return Arm("sft", name, "", [sys.executable, "-c", code], "cpu", least, 16, missing)


def row(part: str, arm: str, rate: float, **more: Any) -> dict[str, Any]:
    return {"part": part, "arm": arm, "state": MEASURED, "samples/s": rate, "MFU": None, "free": 0.1, **more}


def test_an_arm_gets_the_time_that_the_arms_after_it_do_not_need() -> None:
    clock = [0.0]
    budget = Budget(500.0, lambda: clock[0])
    assert budget.limit(least=130.0, later=300.0) == 200.0
    clock[0] = 250.0
    assert budget.limit(least=130.0, later=300.0) == 130.0  # its own need comes first
    clock[0] = 400.0
    assert budget.limit(least=130.0, later=0.0) is None and budget.left == 100.0


def test_an_arm_without_time_or_without_trl_is_in_the_table_as_not_run() -> None:
    arms = [python("print('{}')", least=900.0), python("", "trl bf16", missing="there is no python")]
    long, missing = run_arms(arms, Budget(515.0, lambda: 0.0))
    assert long.state == "not run: needs 900 s, 515 s were left" and missing.state == "not run: there is no python"
    made = [row_of(arm, tried, 989e12, [], []) for arm, tried in zip(arms, (long, missing), strict=True)]
    assert [one["samples/s"] for one in made] == [None, None] and made[0]["state"] == long.state


@pytest.mark.parametrize(
    ("code", "state"),
    [
        ("raise SystemExit('torch.OutOfMemoryError: CUDA out of memory.')", FULL),
        ("raise SystemExit('train.token_cap is auto, and 3.1 GiB of memory lack before the first token.')", FULL),
        ("raise ValueError('no such key')", "failed: ValueError: no such key"),
    ],
)
def test_a_full_memory_is_a_result_and_another_error_a_failure(code: str, state: str) -> None:
    tried = attempt(python(code), 60.0)
    assert (tried.state, tried.numbers) == (state, {})


@pytest.mark.slow
def test_an_ended_arm_keeps_the_steps_that_it_made() -> None:
    lines = (
        "import json, sys, time\nfor n in range(1, {0} + 1): print(json.dumps({{'steps s': [1.0] * n}}), flush=True)\n"
    )
    ended = attempt(python(lines.format(4) + "time.sleep(60)"), 3.0)
    assert ended.state == MEASURED and len(ended.numbers["steps s"]) == 4
    early = attempt(python(lines.format(2) + "time.sleep(60)"), 3.0)
    assert early.state == "ended after 3 s and 2 steps"


def test_a_row_has_the_median_from_the_third_step_on_with_its_spread_and_the_first_steps_apart() -> None:
    numbers = {
        "steps s": [60.0, 9.0, 2.0, 4.0, 8.0], "waits s": [5.0, 5.0, 0.0, 0.7, 0.7], "peak MiB": 2048.0, "free": 0.07,
        "first loss": 12.2, "start s": 20.0, "pieces": 4,
    }  # fmt: skip
    made = row_of(python(""), Attempt(MEASURED, numbers), 100.0, [1.0, 1.0, 100.0, 200.0, 400.0], [0.0] * 5)
    assert (made["samples/s"], made["min"], made["max"]) == (4.0, 2.0, 8.0)
    assert (made["MFU"], made["warm-up s"], made["steps"]) == (0.5, 69.0, 3)
    assert made["waiting"] == pytest.approx(0.1) and made["free"] == 0.07 and made["peak GiB"] == 2.0


def test_bars_of_mfu_follow_the_cards_name() -> None:
    assert (mfu_bar(H200), mfu_bar(H100)) == (0.45, 0.38)
    assert [mfu_bar(name) for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H200 MIG 1g.18gb", "cpu")] == [None] * 3
    rows, baseline = [row("sft", "ours", 10.0, MFU=0.4)], Baseline.of(BASELINE)
    bars, lines = bars_of("sft", rows, H100, baseline)
    assert {bar.name: bar.ok for bar in bars}["sft: MFU"] and not lines
    bars, lines = bars_of("sft", rows, "NVIDIA L40S", baseline)
    assert not any("MFU" in bar.name for bar in bars) and "no bar for the MFU of NVIDIA L40S" in lines[0]
    (mfu, _), _ = bars_of("lora", [row("lora", "ours", 5.0, MFU=0.41)], H200, baseline)
    assert (mfu.bar, mfu.ok) == (0.40, True)


def test_ours_is_the_fastest_arm_that_leaves_five_percent_of_the_card() -> None:
    rows = [row("sft", "ours auto", 9.0, free=0.01), row("sft", "ours", 8.0, free=0.06), row("sft", "trl bf16", 3.0)]
    assert fastest(rows, "ours") == rows[1] and fastest(rows[:1], "ours") == rows[0]
    free = next(bar for bar in bars_of("sft", rows[:1], H200, Baseline.of(BASELINE))[0] if "free" in bar.name)
    assert not free.ok


def test_a_bar_over_trl_is_missed_if_one_of_its_arms_was_not_tried_to_the_end() -> None:
    ours, defaults = row("grpo", "ours", 9.0), row("grpo", "trl defaults", 2.0)

    def ratio(state: str) -> float:
        other = {**row("grpo", "trl bf16", 0.0), "state": state}
        return bars_of("grpo", [ours, defaults, other], H200, Baseline.of(BASELINE))[0][0].value

    assert ratio(FULL) == 4.5 and math.isnan(ratio("not run: needs 130 s, 20 s were left"))
    alone = bars_of("grpo", [ours, {**defaults, "state": FULL}], H200, Baseline.of(BASELINE))[0][0]
    assert alone.value == math.inf and alone.ok


def test_ratios_to_an_earlier_commit_are_of_its_own_card_only(tmp_path: Path) -> None:
    baseline, ours = Baseline.of(BASELINE), row("grpo", "ours", 6.0)
    assert baseline.times(ours, H200) == 4.0 and baseline.times(ours, H100) is None
    assert baseline.times(row("grpo", "trl bf16", 6.0), H200) is None
    assert baseline.times(row("generation", "ours first", 4.34), H200) == pytest.approx(2.0)
    assert baseline.times(row("generation", "ours later", 4.34), H200) is None
    bars, lines = bars_of("grpo", [ours], H100, baseline)
    assert len(bars) == 1 and "whose numbers are of NVIDIA H200" in lines[0]
    kept = row_of(python(""), Attempt(MEASURED, {}), None, [], []) | {"samples/s": 8.0}
    keep(tmp_path / "new.json", [kept], H100)
    assert Baseline.of(tmp_path / "new.json").times(row("sft", "ours", 16.0), H100) == 2.0


def test_the_whole_geometries_fit_their_cards_and_fewer_layers_a_smaller_card() -> None:
    gib = 2**30
    assert (layers_for("3b", 139 * gib), layers_for("3b", 79 * gib), layers_for("7b", 79 * gib)) == (36, 36, 28)
    assert 0 < layers_for("3b", 44 * gib) < 36
    with pytest.raises(ValueError, match="too small"):
        layers_for("3b", 8 * gib)
    assert set(GEOMETRY) == set(PARTS.values()) and scale_of("3b", "cpu", True).device == "cpu"


def test_a_setting_changes_keys_of_the_config() -> None:
    made = changed(TrainConfig(batch=4), "bf16 token_cap=auto memory.moments=8bit activation_checkpointing=56")
    assert (made.precision, made.token_cap, made.batch) == ("bfloat16", "auto", 4)
    assert (made.memory.moments, made.activation_checkpointing) == ("8bit", 56)


def test_operations_count_shared_prompts_once_and_no_gradients_of_frozen_weights(tmp_path: Path) -> None:
    scale = Scale({"kind": "qwen2_5_vl", "hidden": 64, "layers": 2}, steps=1, batch=4, mixed=((160, 224), (320, 256)))
    (work,) = write_workload(tmp_path, ["sft mixed"], scale)
    job = Job.model_validate_json(work.job.read_text())
    found: dict[str, tuple[float, float]] = {}
    for setting in ("fp32 token_cap=1024", "fp32", "fp32 lora.rank=4"):
        own = job.model_copy(update={"train": changed(job.train, setting)})
        engine = FsdpEngine(own, 0, 1)
        learner = Learner(own, method_of(own.train).read(own.samples), 0, 1, engine)
        found[setting] = needed(engine, own, range(4))
        if setting == "fp32":
            counted = engine.prepared(range(4)).operations
            assert found[setting][0] == pytest.approx(counted)
        learner.close()
    assert found["fp32"] == found["fp32 token_cap=1024"]  # micro-batches change nothing
    once, apart = found["fp32"]
    assert once < apart and 1 / 3 < found["fp32 lora.rank=4"][0] / once < 2 / 3 + 0.1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here, so nothing is skipped")
def test_without_a_gpu_it_prints_so_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sft"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("skipped: there is no GPU here") and printed.count("\n") == 1


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["sleep", "--device", "cpu"])
    assert "no part 'sleep': one of sft, generation, grpo, lora" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.parametrize(("part", "arms"), [("sft", 5), ("generation", 4), ("grpo", 4), ("lora", 3)])
def test_the_tiny_setting_measures_every_arm_of_a_part(part: str, arms: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu.real", part, "--device", "cpu", "--short"]
    command += ["--json", str(tmp_path / "out.json"), "--keep", str(tmp_path / "kept.json")]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=550
    )
    assert done.returncode == 0, done.stderr
    written = json.loads((tmp_path / "out.json").read_text())
    assert [one["state"] for one in written["rows"]] == [MEASURED] * arms and not written["bars"]
    assert all(one["samples/s"] > 0 and one["steps"] for one in written["rows"])
    assert len(Baseline.of(tmp_path / "kept.json").rows) == arms
