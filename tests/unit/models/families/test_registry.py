"""Which family a checkpoint is of where none is named, and what its image processor makes of a screen."""

import json
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.families import registry
from models.families.processor import read_limits, read_processor
from models.families.registry import FAMILIES, doubt, family_of, name_of
from models.families.screen import ImageLimits, limits_of
from models.random_vlm import build_random
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError, UsageError
from tests.fixtures.sentences import Sentences
from tests.unit.models.families.test_families import checkpoint


@pytest.mark.parametrize(
    "kind", ["qwen3_5", "qwen3_5_moe", "qwen4_exp", "glm5_next", "kimi_k25", "minicpmv4_7", "llava", "gemma4", "None"]
)
def test_an_architecture_whose_grammar_is_not_known_is_refused_with_the_key_to_set(
    tmp_path: Path, kind: str, sentence: Sentences
) -> None:
    base = checkpoint(tmp_path / "base", kind)
    with sentence.raises(UsageError, "policy.family", "model_type", kind, hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))
    assert name_of(PolicyConfig(base=str(base), family="thousandths")) == "thousandths"


XML, KEPT = "{{ '<function=' + name }}", "{% if preserve_thinking %}"
EFFORT = "{% if reasoning_effort == 'xhigh' %}"


@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_5_moe"])
@pytest.mark.parametrize("file", ["chat_template.jinja", "tokenizer_config.json", "chat_template.json"])
@pytest.mark.parametrize(
    ("marks", "family"), [(XML, "qwen3.5"), (XML + KEPT, "qwen3.6"), (EFFORT + XML + KEPT, "qwen3.8"), (KEPT, "")]
)
def test_the_chat_template_of_a_qwen3_5_or_a_successor_decides(
    tmp_path: Path, kind: str, file: str, marks: str, family: str, sentence: Sentences
) -> None:
    base = checkpoint(tmp_path / "base", kind)
    (base / file).write_text(marks if file.endswith("jinja") else json.dumps({"chat_template": marks}))
    if family:
        assert name_of(PolicyConfig(base=str(base))) == family
        (base / "README.md").write_text("---\nbase_model: Qwen/Qwen3.6-27B\n---\n# My agent\n")
        assert name_of(PolicyConfig(base=str(base))) == family
        return
    with sentence.raises(UsageError, "policy.family", "model_type", kind, hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))


def test_only_the_chat_template_that_transformers_takes_decides(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", "qwen3_5")
    (base / "chat_template.jinja").write_text(XML)
    (base / "tokenizer_config.json").write_text(json.dumps({"chat_template": EFFORT + XML}))
    assert name_of(PolicyConfig(base=str(base))) == "qwen3.5"
    (base / "chat_template.jinja").unlink()
    assert name_of(PolicyConfig(base=str(base))) == "qwen3.8"
    (base / "chat_template.jinja").write_text("\n")
    assert name_of(PolicyConfig(base=str(base))) == "qwen3.8"
    (base / "tokenizer_config.json").write_text(json.dumps({"chat_template": XML}), encoding="utf-8-sig")
    (base / "chat_template.json").write_text("[" * 100_000)
    assert name_of(PolicyConfig(base=str(base))) == "qwen3.5"
    escaped = json.dumps({"chat_template": XML}).replace("<", "\\u003c")
    (base / "tokenizer_config.json").write_text(escaped)
    assert name_of(PolicyConfig(base=str(base))) == "qwen3.5"


@pytest.mark.parametrize(
    ("called", "marks", "family"),
    [
        *(
            ("Qwen3.5-9B", XML, "qwen3.5"),
            ("Qwen3.6-27B", XML + KEPT, "qwen3.6"),
            ("Qwen3.7-9B", XML + KEPT, "qwen3.6"),
        ),
        *(("Qwen3.8-27B", EFFORT + XML, "qwen3.8"), ("my_qwen-3.8_run", EFFORT + XML, "qwen3.8")),
        *(("Qwen-CUA-35B-A3B", XML, "qwen3.6"), ("Qwen-CUA-35B-A3B", XML + KEPT, "qwen3.6"), ("Qwen3", XML, "qwen3.5")),
    ],
)
def test_a_name_with_a_version_agrees_with_the_chat_template(
    tmp_path: Path, called: str, marks: str, family: str
) -> None:
    base = checkpoint(tmp_path / called, "qwen3_5")
    (base / "chat_template.jinja").write_text(marks)
    assert name_of(PolicyConfig(base=str(base))) == family


@pytest.mark.parametrize(
    ("called", "marks", "meant", "found"),
    [
        ("Qwen3.5-9B", XML + KEPT, "qwen3.5", "qwen3.6"),
        ("Qwen3.8-27B", XML, "qwen3.8", "qwen3.5"),
        ("Qwen3.6-27B", EFFORT + XML + KEPT, "qwen3.6", "qwen3.8"),
    ],
)
def test_a_name_that_contradicts_the_chat_template_is_refused_with_both_families(
    tmp_path: Path, called: str, marks: str, meant: str, found: str, sentence: Sentences
) -> None:
    base = checkpoint(tmp_path / called, "qwen3_5")
    (base / "chat_template.jinja").write_text(marks)
    with sentence.raises(UsageError, called, meant, found, hint=f"{meant} or {found}"):
        name_of(PolicyConfig(base=str(base)))
    assert name_of(PolicyConfig(base=str(base), family=meant)) == meant


@pytest.mark.parametrize("called", ["Fara1.5-9B", "Holo3-35B-A3B", "UI-Venus-2-9B", "qwen3.5-9b-openwebrl-sft"])
def test_a_qwen3_5_by_another_models_name_is_refused(tmp_path: Path, called: str, sentence: Sentences) -> None:
    base = checkpoint(tmp_path / called, "qwen3_5")
    (base / "chat_template.jinja").write_text(XML)
    with sentence.raises(UsageError, "policy.family", called, hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("qwen2_5_vl", "Fara-7B"),
        ("qwen2_5_vl", "UI-TARS-1.5-7B"),
        ("qwen2_5_vl", "OpenCUA-32B"),
        ("qwen3_vl", "Holo2-8B"),
        ("qwen3_vl", "GUI-Owl-1.5-8B-Instruct"),
        ("qwen3_vl", "gelab-zero-sft"),
        ("qwen2_vl", "Qwen2-VL-7B-Instruct"),
        ("qwen2_5_vl", "fara"),
        ("qwen2_5_vl", "UI-TARS-1.5"),
        ("qwen2_5_vl", "qwen-fara-7B"),
        ("qwen2_5_vl", "my_scalecua_run"),
        ("qwen3_vl", "EvoCUA-20260105"),
        ("qwen3_vl_moe", "holo2-sft"),
        ("qwen3_vl", "OpenWebRL-4B"),
        ("qwen3_vl", "Qwen-UI-Agent-4B"),
        ("glm4v", "AutoGLM-Phone-9B"),
        ("glm4v", "autoglm"),
        ("internvl_chat", "ScaleCUA-InternVL-8B"),
    ],
)
@pytest.mark.parametrize("where", ["folder", "cache", "config", "path", "card", "html", "base", "bases"])
def test_a_checkpoint_that_goes_by_another_models_name_is_refused(
    tmp_path: Path, kind: str, called: str, where: str, sentence: Sentences
) -> None:
    (folder := tmp_path / (f"models--own--{called}" if where == "cache" else "x")).mkdir()
    base = checkpoint(folder / (called if where == "folder" else "base"), kind)
    if where == "config":
        (base / "config.json").write_text(json.dumps({"model_type": kind, "_name_or_path": f"own/{called}"}))
    if where == "path" and "Qwen2" not in called:
        config = {"model_type": kind, "_name_or_path": f"/models/{called}/checkpoint-300"}
        (base / "config.json").write_text(json.dumps(config))
    elif where in ("html", "path"):
        front = "---\r\n# metadata\r\nbase_model: Qwen/Some-VL-7B\r\n---\r\n"
        title = f"```\n# Install\n```\n<h1 align='center'>\n <b>{called}</b></h1>\r\n# More"
        (base / "README.md").write_bytes(f"{front}{title}".encode())
    if where == "base":
        (base / "README.md").write_text(f"---\nbase_model: own/{called}\n---\n# My agent\n")
    if where == "bases":
        (base / "README.md").write_text(
            f"---\n'base_model':\n\n  # merged\n  - Qwen/Some-VL\n  - own/{called}\nx: y\n---\n# My agent\n"
        )
    if where == "card":
        (base / "README.md").write_text(f"---\nlicense: mit\nbase_model:\n- Qwen/Some-VL-7B\n---\n# {called}\n\nText.")
    with sentence.raises(UsageError, "policy.family", called, hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))
    assert name_of(PolicyConfig(base=str(base), family="qwen2.5-vl")) == "qwen2.5-vl"


@pytest.mark.parametrize(
    ("kind", "called", "family"),
    [
        ("qwen2_5_vl", "Qwen2.5-VL-7B-Instruct", "qwen2.5-vl"),
        ("qwen3_vl_moe", "Qwen3-VL-30B-A3B-Thinking", "qwen3-vl"),
        ("qwen2_vl", "UI-TARS-7B-DPO", "ui-tars-1.0"),
        ("glm4v", "GLM-4.1V-9B-Thinking", "glm"),
        ("internvl_chat", "InternVL3-8B", "internvl"),
        ("qwen2_5_vl", "iteration-0003-step-1200", "qwen2.5-vl"),
        ("qwen2_5_vl", "my-run-3-step", "qwen2.5-vl"),
        ("qwen2_5_vl", "safaran-step", "qwen2.5-vl"),
        ("qwen2_5_vl", "holographic-step-7", "qwen2.5-vl"),
        ("qwen2_vl", "UI-TARS", "ui-tars-1.0"),
        ("glm4v", "GLM-4.5V-run", "glm"),
    ],
)
def test_a_checkpoint_that_goes_by_its_own_name_or_none_is_of_its_architectures_family(
    tmp_path: Path, kind: str, called: str, family: str
) -> None:
    base = checkpoint(tmp_path / called, kind)
    (base / "README.md").write_text(f"---\nbase_model: own/base\n---\n# {called}\n")
    if "step" in called:
        (base / "README.md").unlink()
    assert name_of(PolicyConfig(base=str(base))) == family


OF_ANOTHER = [
    "base_model: /data/OpenCUA-7B/checkpoint-300",
    "base_model: https://hub.test/xlangai/OpenCUA-7B/tree/main",
    "base_model: /hub/models--xlangai--OpenCUA-7B/snapshots/0123456789abcdef0123456789abcdef01234567",
    "base_model: Mininglamp-2718/Mano",
    "base_model: [[Qwen/Qwen2.5-VL-7B-Instruct, xlangai/OpenCUA-7B]]",
    "base_model: Qwen/Qwen2.5-VL-7B-Instruct, xlangai/OpenCUA-7B",
    "base_model: {first: xlangai/OpenCUA-7B}",
    "base_model: xlangai/OpenCUA-7B\nbase_model: Qwen/Qwen2.5-VL-7B-Instruct",
    "title: Agent: the best\nbase_model: xlangai/OpenCUA-7B",
    "license: {{ license }}\nbase_model:\n- 'xlangai/OpenCUA-7B'",
    "by:\t@me\nbase_model: xlangai/OpenCUA-7B",
    "x: !!int ''\ny: !!bool q\nbase_model: xlangai/OpenCUA-7B",
    "x: " + "[" * 900 + "\nbase_model: xlangai/OpenCUA-7B",
]
OF_QWEN = [
    "base_model: /hub/models--Qwen--Qwen2.5-VL-7B-Instruct/snapshots/cc594898137f460bfe9f0759e9844b3ce807cfb5",
    "base_model: /models/Qwen2.5-VL/7B",
    "base_model: https://hub.test/models/Qwen/Qwen2.5-VL-7B-Instruct",
    "base_model: ~",
    "base_model: []",
    "license: mit",
]


@pytest.mark.parametrize("front", [*OF_ANOTHER, *OF_QWEN])
def test_the_base_of_a_model_card_is_read_however_it_is_written(
    tmp_path: Path, front: str, sentence: Sentences
) -> None:
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    (base / "README.md").write_text(f"---\n{front}\n---\n# My agent\n")
    if front in OF_ANOTHER:
        with sentence.raises(UsageError, "policy.family", hint="policy.family"):
            name_of(PolicyConfig(base=str(base)))
    else:
        assert name_of(PolicyConfig(base=str(base))) == "qwen2.5-vl"


def test_a_card_whose_values_hold_each_other_is_read(tmp_path: Path) -> None:
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    levels = [f"x{at}: &x{at} [*x{at - 1}, *x{at - 1}]" if at else "x0: &x0 [a, b]" for at in range(4)]
    (base / "README.md").write_text("---\n" + "\n".join([*levels, "base_model: *x3"]) + "\n---\n# My agent\n")
    assert name_of(PolicyConfig(base=str(base))) == "qwen2.5-vl"


@pytest.mark.parametrize("folder", ["mano/base", "snapshots/cc594898137f460bfe9f0759e9844b3ce807cfb5"])
def test_a_folder_above_a_checkpoint_or_a_revision_names_no_model(tmp_path: Path, folder: str) -> None:
    (tmp_path / "models--Qwen--Qwen2.5-VL-7B-Instruct" / folder).parent.mkdir(parents=True)
    base = checkpoint(tmp_path / "models--Qwen--Qwen2.5-VL-7B-Instruct" / folder, "qwen2_5_vl")
    (base / "README.md").write_text("---\nlicense: mit\n---\n")
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps({**config, "_name_or_path": f"/home/{folder}"}))
    assert name_of(PolicyConfig(base=str(base))) == "qwen2.5-vl"


def test_an_image_processor_of_a_name_that_no_release_has_is_read_as_the_architectures(tmp_path: Path) -> None:
    """Qwen/Qwen2.5-VL-7B-Instruct of 2025-01: `Qwen2_5_VLImageProcessor`, absent from transformers 5.23.0."""
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    limits = read_limits(base)
    path = base / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "image_processor_type": "Qwen2_5_VLImageProcessor"}))
    assert read_limits(base) == limits == ImageLimits(28, 3136, 2116800)
    assert family_of(PolicyConfig(base=str(base))).sides((1920, 1080)) == (1932.0, 1092.0)


def test_a_processor_that_pads_is_shown_a_screen_that_it_need_not_pad() -> None:
    """transformers 5.23.0, `Glm5NextImageProcessorPil`, run beside on screens of every size."""
    stock_of: Any = import_module("transformers.models.glm5_next.image_processing_pil_glm5_next")
    stock = stock_of.Glm5NextImageProcessorPil(min_image_tokens=16, max_image_tokens=400)
    limits = limits_of(stock)
    assert limits is not None
    assert limits == ImageLimits(28, 16 * 28 * 28, 400 * 28 * 28, pads=True)
    for screen in ((160, 210), (640, 480), (390, 844), (1280, 720), (37, 900), (28, 28)):
        shown = limits.resized(screen)
        assert limits.resized(shown) == shown
        for width, height in (screen, shown):
            made = stock(
                np.full((height, width, 3), 255, np.uint8), return_tensors="np", input_data_format="channels_last"
            )
            _, rows, columns = made["image_grid_thw"][0]
            assert (int(columns) * 14, int(rows) * 14) == shown
        assert float(made["pixel_values"].min()) > 1.0  # no pixel is filled with black


def test_a_checkpoint_without_a_tokenizer_is_refused_by_the_files_that_it_lacks(
    tmp_path: Path, sentence: Sentences
) -> None:
    build_random("qwen3_vl", ["Click here."] * 8, 0, tmp_path / "base")
    assert read_processor(tmp_path / "base").tokenizer
    (tmp_path / "base" / "tokenizer.json").unlink()
    with sentence.raises(CheckpointError, "tokenizer.json"):
        read_processor(tmp_path / "base")


@pytest.mark.parametrize("before", ["\n", "\r\n\r\n", "  \n\t\n", "\ufeff\n"])
def test_front_matter_of_a_card_may_follow_blank_lines(tmp_path: Path, before: str, sentence: Sentences) -> None:
    """huggingface_hub 1.7.1, `repocard.py`: `REGEX_YAML_BLOCK`."""
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    (base / "README.md").write_text(f"{before}---\nbase_model: xlangai/OpenCUA-7B\n---\n", encoding="utf-8")
    with sentence.raises(UsageError, "'OpenCUA-7B'", hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))


@pytest.mark.parametrize("piece", ["<h1>", "<h1 ", "<H1><b", "<", "# ", "```\n", "<h1></h1", "\n", "---\n"])
def test_a_card_is_read_in_linear_time(tmp_path: Path, piece: str, sentence: Sentences) -> None:
    base = checkpoint(tmp_path / "base", "qwen2_5_vl")
    for text in (piece * (100_000 // len(piece)), f"<h1>{piece * (100_000 // len(piece))}</h1>"):
        (base / "README.md").write_text(text)
        began = time.process_time()
        assert name_of(PolicyConfig(base=str(base))) == "qwen2.5-vl"
        assert time.process_time() - began < 2
    (base / "README.md").write_text(
        "---\nbase_model: a/b\n---\n" + "<h1>" * 100 + "\n<h1 id='a'>\n<b>Fara</b>-7B </h1>"
    )
    with sentence.raises(UsageError, "'Fara-7B'", hint="policy.family"):
        name_of(PolicyConfig(base=str(base)))


def test_a_family_that_an_error_suggests_exists() -> None:
    assert set(registry._FAMILIES_OF) <= set(registry._TRAINED)
    assert {name for names in registry._FAMILIES_OF.values() for name in names} <= set(FAMILIES.names)


@pytest.mark.parametrize(
    ("kind", "called", "family", "why"),
    [
        ("qwen2_5_vl", "UI-TARS-1.5-7B", "qwen2.5-vl", "'UI-TARS-1.5-7B', as ui-tars-1.5 or ui-tars-1.0 or ui-tars-2"),
        ("qwen2_5_vl", "UI-TARS-1.5-7B", "ui-tars-1.5", ""),
        ("qwen3_vl", "Qwen3-VL-8B-Instruct", "evocua", "it calls itself 'Qwen3-VL-8B-Instruct', as qwen3-vl"),
        ("qwen3_vl", "my-run", "evocua", ""),
        ("qwen3_vl", "my-run", "qwen2.5-vl", "its model_type qwen3_vl and its chat template are those of qwen3-vl"),
        ("qwen3_vl", "Qwen3-VL-8B-Instruct", "qwen3-vl", ""),
        ("qwen3_vl", "Qwen3-VL-8B-Instruct", "auto", ""),
        ("qwen3_vl", "Qwen3-VL-8B-Instruct", "own.module:Family", ""),
        ("qwen3_5", "Qwen3.5-9B", "qwen3.8", "are those of qwen3.5"),
        ("qwen3_5", "Holo3-35B-A3B", "holo-3", ""),
        ("glm5_next", "GLM-5V", "glm", ""),
    ],
)
def test_a_named_family_that_the_checkpoint_contradicts_is_doubted(
    tmp_path: Path, kind: str, called: str, family: str, why: str
) -> None:
    base = checkpoint(tmp_path / called, kind)
    (base / "tokenizer_config.json").write_text(json.dumps({"chat_template": XML, "more": "<tool_call>"}))
    found = doubt(family, base)
    assert (why in found) if why else not found
