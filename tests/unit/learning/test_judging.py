"""The wheel's own judge: learns from a small set, is saved, is read again, and never sees the page."""

import io
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from learning.judging import Cases, Effort, Example, Fitted, LabelledPoint, Points, best_threshold, fit, platt
from models.judges.judge import JudgeCase
from models.judges.local import (
    CANVAS,
    CONFIG,
    CROP,
    LocalJudge,
    LocalOptions,
    canvas_of,
    crop_of,
    features_of,
    grams_of,
    stacked,
)
from models.judges.registry import judge_of
from schemas.config.curating import JudgeConfig
from schemas.failure import FlywheelError, UsageError


def screen(shade: int, size: tuple[int, int] = (60, 80)) -> bytes:
    png = io.BytesIO()
    Image.new("L", size, shade).save(png, "png")
    return png.getvalue()


def case(done: bool, x: float = 0.5) -> JudgeCase:
    """A click that darkens the screen, or does not."""
    action = json.dumps({"type": "click", "x": x, "y": 0.5})
    return JudgeCase("Make it dark.", ("Action: click()",), (screen(255), screen(40 if done else 255)), (action,))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    folder = tmp_path_factory.mktemp("judge")
    examples = [Example(case(bool(n % 2), n / 40), bool(n % 2), f"fake/dark {n}") for n in range(40)]
    readings = [
        LabelledPoint(screen(shade), 0.5, 0.5, name, "button") for shade, name in ((40, "dark"), (255, "light"))
    ]
    train, validation = Cases(folder / "train"), Cases(folder / "validation")
    for at in range(0, 40, 7):
        train.add(examples[at : at + 7])
    validation.add(examples[:20])
    points = Points(folder / "points", random.Random(0), most=8)
    for one in readings:
        points.add(one)
    return fit(train, validation, points, Effort(reading_steps=3, epochs=12, batch=8, readings=4), seed=0)


@pytest.mark.slow
def test_it_learns_the_verifiers_word_and_says_the_same_when_it_is_read_again(fitted: Fitted, tmp_path: Path) -> None:
    fitted.write(tmp_path)
    judge = LocalJudge(LocalOptions(checkpoint=str(tmp_path)))
    scores = [one.score or 0.0 for one in judge.score([case(True), case(False)] * 40)]
    threshold = judge.config.threshold
    assert all((score >= threshold) == (number % 2 == 0) for number, score in enumerate(scores))
    assert LocalJudge(LocalOptions(checkpoint=str(tmp_path))).version == judge.version
    assert judge.knows("fake/dark", 3) and not judge.knows("fake/dark", 40) and not judge.knows("fake/other", 3)


@pytest.mark.slow
def test_another_training_is_another_version(fitted: Fitted, tmp_path: Path) -> None:
    fitted.write(tmp_path / "a")
    other = Fitted(fitted.net, fitted.config.model_copy(update={"shift": 1.0}))
    other.write(tmp_path / "b")
    assert len({LocalJudge(LocalOptions(checkpoint=str(tmp_path / one))).version for one in "ab"}) == 2


def test_a_folder_that_holds_no_judge_is_refused_by_name(fitted: Fitted, tmp_path: Path) -> None:
    def config(folder: Path) -> JudgeConfig:
        return JudgeConfig(kind="local", options={"checkpoint": str(folder)})

    with pytest.raises(FlywheelError, match=r"judge\.options\.checkpoint.*missing"):
        judge_of(config(tmp_path / "missing"))
    fitted.write(tmp_path)
    with pytest.raises(UsageError, match=r"judge\.votes"):
        judge_of(config(tmp_path).model_copy(update={"votes": 2}))
    (tmp_path / CONFIG).write_text("{}")
    with pytest.raises(FlywheelError, match="holds no judge"):
        judge_of(config(tmp_path))


def test_odd_cases_are_judged_too(fitted: Fitted, tmp_path: Path) -> None:
    fitted.write(tmp_path)
    judge = LocalJudge(LocalOptions(checkpoint=str(tmp_path)))
    wide = JudgeCase("<b>" * 500 + ' "', ("?",), (screen(90, (1920, 1080)),), (None,))
    number = JudgeCase("9" * 5000, (), (b"no picture",), ('{"type":"drag","x":1,"y":1,"to_x":0,"to_y":0}',))
    assert all(0 <= (one.score or 0.0) <= 1 for one in judge.score([wide, number, JudgeCase("", (), ())]))


def test_around_a_point_the_screen_keeps_its_pixels_and_beyond_its_edge_it_is_white() -> None:
    pixels = np.arange(60 * 100, dtype=np.int64).reshape(60, 100).astype(np.uint8)
    rows, columns = CROP
    assert (
        crop_of(pixels, 0.5, 0.5) == pixels[30 - rows // 2 : 30 + rows // 2, 50 - columns // 2 : 50 + columns // 2]
    ).all()
    corner = crop_of(pixels, 0.0, 0.0)
    assert (corner[: rows // 2] == 255).all() and (corner[rows // 2 :, columns // 2 :] == pixels[:16, :40]).all()
    assert canvas_of(np.zeros((2000, 20), np.uint8)).shape == CANVAS


def test_a_case_becomes_arrays_of_one_size_and_a_name_is_read_by_its_parts() -> None:
    assert features_of(case(True)).numbers.shape == features_of(JudgeCase("", (), ())).numbers.shape
    assert (grams_of("Ok") == grams_of(" ok ")).all() and not (grams_of("ok") == grams_of("no")).all()
    assert not grams_of("").any()


def test_calibration_finds_the_scale_that_made_the_outcomes_and_the_threshold_the_best_f1() -> None:
    logits = torch.linspace(-4, 4, 4000)
    known = (torch.sigmoid(2 * logits - 1) > torch.rand(4000, generator=torch.Generator().manual_seed(0))).float()
    scale, shift = platt(logits, known)
    assert scale == pytest.approx(2, abs=0.2) and shift == pytest.approx(-1, abs=0.2)
    assert best_threshold(torch.tensor([0.2, 0.4, 0.6]), torch.tensor([0.0, 1.0, 1.0])) == 0.4


def test_of_many_points_a_fair_draw_is_kept_and_each_keeps_its_name(tmp_path: Path) -> None:
    points = Points(tmp_path / "points", random.Random(1), most=50)
    for number in range(1000):
        points.add(LabelledPoint(screen(number % 250), 0.5, 0.5, f" Name-{number} ", "a" if number < 500 else "b"))
    assert len(points) == 50 and points.kinds == ["", "a", "b"]
    crops, names, which, kinds = points.draw(400, np.random.default_rng(0), points.kinds)
    assert crops.shape == (400, *CROP) and which.min() >= 0 and names.shape[0] == int(which.max()) + 1 <= 50
    assert 0.3 < float((kinds == 2).float().mean()) < 0.7
    named = {grams_of(f"name-{number}").tobytes(): number for number in range(1000)}
    drawn = [named[names[int(one)].numpy().tobytes()] for one in which]
    assert all(number % 250 in crop for number, crop in zip(drawn, crops, strict=True))


def test_cases_are_read_from_the_disk_as_they_were_added(tmp_path: Path) -> None:
    cases, examples = (
        Cases(tmp_path / "cases"),
        [Example(case(bool(n % 2), n / 9), n % 2 > 0, str(n)) for n in range(9)],
    )
    cases.add(examples[:4])
    assert len(cases.batch([0, 3])["words"]) == 2
    cases.add([])
    cases.add(examples[4:])
    expected = stacked([features_of(one.case) for one in examples])
    found = cases.batch(np.array([8, 0, 5]))
    assert all((found[name].numpy() == array[[8, 0, 5]]).all() for name, array in expected.items())
    assert found["words"].dtype == torch.int64
    assert cases.pages == [str(n) for n in range(9)] and cases.truth.tolist() == [float(n % 2) for n in range(9)]
