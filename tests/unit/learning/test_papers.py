"""Every golden value of the papers that the methods are taken from (`tests/golden/papers.json`)."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from curation.converters.units import PARSER, scale_of
from learning.algorithms.advantages import analytic, of_group, soft_overlong
from learning.algorithms.losses import clipped_loss, dpo_loss
from learning.algorithms.returns import advantages, length_adaptive_lambda
from models.families.dialects import THOUSANDTHS, parse_reply
from models.families.screen import smart_resize

GOLDEN: dict[str, Any] = json.loads((Path(__file__).parents[2] / "golden" / "papers.json").read_text())


def rewards(n: int, successes: int) -> np.ndarray:
    return np.array([1.0] * successes + [0.0] * (n - successes))


def strength(n: int, successes: int, k: int) -> float:
    return float(np.abs(analytic(rewards(n, successes), k)).sum())


def test_no_golden_value_is_left_out() -> None:
    tested = {"passk", "passk_eta_argmax_N32", "gae", "la_gae", "dapo_soft_overlong", "clip_higher", "dpo"}
    assert set(GOLDEN) == tested | {"smart_resize_hw", "coord"}


def test_pass_at_k_advantages_are_the_papers() -> None:
    for case in GOLDEN["passk"]:
        n, c, k = case["N"], case["c"], case["k"]
        found = of_group(rewards(n, c), lambda group, k=k: analytic(group, k))
        if c:
            assert found[0] == pytest.approx(case["adv_pos"], abs=1e-12), case
        if c < n:
            assert found[-1] == pytest.approx(case["adv_neg"], abs=1e-12), case


def test_pass_at_k_learns_most_where_the_papers_peak_is() -> None:
    for k, peak in GOLDEN["passk_eta_argmax_N32"].items():
        assert max(range(33), key=lambda c, k=int(k): strength(32, c, k)) == peak


def test_generalised_advantages_are_the_papers_also_where_tokens_are_skipped() -> None:
    for case in GOLDEN["gae"]:
        found = advantages(case["r"], case["V"], case["mask"], case["gamma"], case["lam"])
        assert found == pytest.approx(case["adv_unwhitened"], abs=1e-12)


def test_length_adaptive_lambdas_are_the_papers_and_never_negative() -> None:
    for case in GOLDEN["la_gae"]:
        found = float(length_adaptive_lambda(case["l"], case["alpha"]))
        assert found == pytest.approx(case["lam_clamped"], abs=1e-12)
        assert found == pytest.approx(max(0.0, case["lam_raw"]), abs=1e-12)


def test_the_soft_overlong_penalty_is_the_papers() -> None:
    for case in GOLDEN["dapo_soft_overlong"]:
        assert float(soft_overlong(case["L"], case["Lmax"], case["Lcache"])) == pytest.approx(case["r"], abs=1e-12)


def test_the_clipped_loss_is_the_papers() -> None:
    for case in GOLDEN["clip_higher"]:
        ratio, gain = (torch.tensor([case[name]], dtype=torch.float64) for name in ("ratio", "A"))
        found = clipped_loss(ratio.log(), torch.zeros(1), gain, case["eps_low"], case["eps_high"])
        assert found.item() == pytest.approx(case["loss"], abs=1e-12)


def test_the_preference_loss_is_the_papers() -> None:
    for case in GOLDEN["dpo"]:
        chosen, rejected, ref_chosen, ref_rejected = (
            torch.tensor([float(case[name])], dtype=torch.float64) for name in ("pol_c", "pol_r", "ref_c", "ref_r")
        )
        found = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, case["beta"])
        assert found.item() == pytest.approx(case["loss"], abs=1e-12)
    assert GOLDEN["dpo"][0]["loss"] == pytest.approx(math.log(2))


def test_screens_and_coordinates_are_the_papers() -> None:
    for (height, width), expected in GOLDEN["smart_resize_hw"]:
        assert smart_resize(height, width, *PARSER) == tuple(expected)
    for case in GOLDEN["coord"]:
        width, height = case["screen_wh"]
        x, y = case["raw"]
        sides = scale_of("resized_pixels", width, height) if case["model"] == "qwen25vl" else THOUSANDTHS
        action: Any = parse_reply(f"Action: click(start_box='({x},{y})')", sides).first
        assert [int(action.x * width), int(action.y * height)] == [int(place) for place in case["px"]]
