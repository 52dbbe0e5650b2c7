"""Videos in prompts are sampled, resized and written as transformers' own processors do it, for three families.

`tests/golden/video_prompts.json` holds what these processors made of each clip (transformers 5.24.0, torchvision
0.28.0). They need torchvision, which nothing else here does, so they are asked again only where it is installed. Their
functions without torchvision are asked always.
"""

import importlib
import json
import sys
import types
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models.families.processor import PromptTokens, read_processor, read_video_rule
from models.families.prompt import video_question
from models.families.registry import family_of
from models.families.video import Clip, clip_of, frame_at
from schemas.config.policy import PolicyConfig
from schemas.failure import FlywheelError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.models.families.published import write_directory

GOLDEN = Path(__file__).parents[3] / "golden" / "video_prompts.json"
KINDS = ("qwen2_5_vl", "qwen3_vl", "thinking")
FAMILIES = {"qwen2_5_vl": "qwen2.5-vl", "qwen3_vl": "qwen3-vl", "thinking": "qwen3.5"}
CLIPS = (
    Clip(320, 200, 60, 10.0), Clip(320, 240, 61, 29.97), Clip(1280, 720, 300, 30.0), Clip(64, 48, 37, 10.0),
    Clip(321, 233, 9, 10.0), Clip(1920, 1080, 1800, 30.0), Clip(20, 400, 5, 1.0), Clip(160, 210, 36000, 10.0),
)  # fmt: skip
every_kind = pytest.mark.parametrize("kind", KINDS)
every_clip = pytest.mark.parametrize("clip", CLIPS, ids=str)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {kind: write_directory(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def ours(folder: Path, kind: str, clip: Clip) -> dict[str, Any]:
    """What this project makes of a question about a clip."""
    rule, processor = read_video_rule(folder), read_processor(folder)
    family = family_of(PolicyConfig(base=str(folder), family=FAMILIES[kind]))
    assert rule is not None and family.video == rule
    sampled = rule.sampled(clip)
    ids = PromptTokens(processor, family.limits, rule)(video_question("What changed?", clip))
    return facts(processor, ids, sampled.grid, sampled.frames) | {
        "grid_seconds": None if rule.stamped else round(sampled.grid_seconds, 5)
    }


def theirs(folder: Path, clip: Clip) -> dict[str, Any]:
    """What the directory's own processor makes of it."""
    from transformers import AutoProcessor

    processor: Any = AutoProcessor.from_pretrained(folder)
    chat = [{"role": "user", "content": [{"type": "video"}, {"type": "text", "text": "What changed?"}]}]
    text = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    pixels = np.broadcast_to(np.uint8(0), (clip.total, 3, clip.height, clip.width))
    about = {"fps": clip.rate, "total_num_frames": clip.total, "duration": clip.total / clip.rate}
    fps = {"fps": 2.0} if processor.video_processor.fps is None else {}  # Qwen2.5-VL's class states none
    made = processor(
        text=[text], videos=[pixels], video_metadata=[about], do_sample_frames=True, return_metadata=True,
        return_tensors="pt", **fps,
    )  # fmt: skip
    frames = np.asarray(made["video_metadata"][0].frames_indices).tolist()
    grid, each = made["video_grid_thw"][0].tolist(), processor.video_processor.temporal_patch_size
    frames += [frames[-1]] * (-len(frames) % each)
    seconds = made.get("second_per_grid_ts")
    return facts(processor, made["input_ids"][0].tolist(), grid, frames) | {
        "grid_seconds": None if seconds is None else round(float(seconds[0]), 5)
    }


def facts(processor: Any, ids: list[int], grid: Any, frames: Any) -> dict[str, Any]:
    """The prompt in short: each run of video tokens as a number, and the text around it."""
    video = processor.tokenizer.convert_tokens_to_ids("<|video_pad|>")
    runs = [(one, len(list(run)) if one else processor.tokenizer.decode(list(run)))
            for one, run in groupby(ids, key=lambda token: token == video)]  # fmt: skip
    return {"prompt": [piece for _, piece in runs], "length": len(ids), "grid": list(grid), "frames": list(frames)}


def golden(kind: str, clip: Clip) -> dict[str, Any]:
    return json.loads(GOLDEN.read_text())[kind][str(clip)]


@every_kind
@every_clip
def test_a_video_in_a_prompt_is_that_of_transformers(folders: dict[str, Path], kind: str, clip: Clip) -> None:
    found, wanted = ours(folders[kind], kind, clip), golden(kind, clip)
    assert found["length"] == wanted["length"]
    assert found == wanted


@every_kind
@every_clip
def test_the_golden_prompts_are_those_of_the_installed_processors(
    folders: dict[str, Path], kind: str, clip: Clip
) -> None:
    pytest.importorskip("torchvision", reason="transformers' video processors: install torchvision of torch's build")
    assert theirs(folders[kind], clip) == golden(kind, clip)


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The classes of the video processors; without torchvision only their functions that need no pixels can run."""
    if "torchvision" not in sys.modules:
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        functional = types.ModuleType("torchvision.transforms.v2.functional")
        monkeypatch.setitem(sys.modules, functional.__name__, functional)
        sys.modules["torchvision.transforms.v2"].functional = functional  # type: ignore[attr-defined]
    models = "transformers.models"
    qwen2 = importlib.import_module(f"{models}.qwen2_vl.video_processing_qwen2_vl")
    qwen3 = importlib.import_module(f"{models}.qwen3_vl.video_processing_qwen3_vl")
    return {"qwen2_5_vl": qwen2.Qwen2VLVideoProcessor, "qwen3_vl": qwen3.Qwen3VLVideoProcessor}


@pytest.mark.parametrize("kind", KINDS[:2])
@every_clip
def test_frames_and_patches_are_those_of_the_processors_functions(
    folders: dict[str, Path], processors: dict[str, Any], kind: str, clip: Clip
) -> None:
    rule = read_video_rule(folders[kind])
    assert rule is not None
    size = {"shortest_edge": rule.least, "longest_edge": rule.most}
    own = SimpleNamespace(
        fps=2.0, num_frames=None, min_frames=4, max_frames=768, temporal_patch_size=2, patch_size=rule.patch,
        merge_size=2, size=size, cap_pixels_per_frame=None,
    )  # fmt: skip
    about = SimpleNamespace(total_num_frames=clip.total, fps=clip.rate)
    frames = np.asarray(processors[kind].sample_frames(own, about)).tolist()
    sampled = rule.sampled(clip)
    assert list(sampled.frames[: len(frames)]) == frames and set(sampled.frames[len(frames) :]) <= {frames[-1]}
    patches = processors[kind].get_num_of_video_patches(own, len(frames), clip.height, clip.width, {})
    assert patches == int(np.prod(sampled.grid))


def test_a_clip_too_short_for_two_frames_is_refused(folders: dict[str, Path], sentence: Sentences) -> None:
    rule = read_video_rule(folders["qwen3_vl"])
    assert rule is not None
    with sentence.raises(FlywheelError, "video.clip_s"):
        rule.sampled(Clip(320, 200, 1, 10.0))


def test_the_frame_that_is_shown_at_a_time_is_the_last_that_has_appeared() -> None:
    times = (0.0, 1.5, 4.0)
    assert [frame_at(times, second) for second in (0.0, 1.4, 1.5, 3.9, 4.0, 99.0)] == [0, 0, 1, 1, 2, 2]
    assert clip_of((320, 200), 4.04, 10.0) == Clip(320, 200, 40, 10.0)


def test_a_model_that_takes_no_video_is_refused_by_its_family(tmp_path: Path, sentence: Sentences) -> None:
    folder = write_directory("qwen2_vl", tmp_path)
    assert read_video_rule(folder) is None
    family = family_of(PolicyConfig(base=str(folder), family="ui-tars-1.0"))
    with sentence.raises(UsageError, "policy.family"):
        family.video_rule()
    with sentence.raises(UsageError, "train.video"):
        family_of(PolicyConfig()).video_rule()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("video_preprocessor_config.json", {"fps": 4, "max_frames": 16, "patch_size": 16}),
        ("processor_config.json", {"video_processor": {"fps": 4, "max_frames": 16, "patch_size": 16}}),
    ],
)
def test_settings_are_read_from_the_checkpoints_files(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    folder = write_directory("qwen3_vl", tmp_path)
    (folder / name).write_text(json.dumps(given))
    rule = read_video_rule(folder)
    assert rule is not None and (rule.fps, rule.max_frames, rule.least) == (4.0, 16, 128 * 32 * 32)
    assert len(rule.sampled(Clip(320, 200, 600, 10.0)).frames) == 16


def test_limits_in_the_older_spelling_are_read(tmp_path: Path) -> None:
    folder = write_directory("qwen2_5_vl", tmp_path)
    (folder / "video_preprocessor_config.json").write_text(json.dumps({"min_pixels": 3136, "max_pixels": 50_000}))
    rule = read_video_rule(folder)
    assert rule is not None and (rule.least, rule.most, rule.patch) == (3136, 50_000, 14)


if __name__ == "__main__":  # writes the golden file, where torchvision is installed
    import tempfile

    made = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = write_directory(kind, Path(temporary))
            made[kind] = {str(clip): theirs(folder, clip) for clip in CLIPS}
    GOLDEN.write_text(json.dumps(made) + "\n")
