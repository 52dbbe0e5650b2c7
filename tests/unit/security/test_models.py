"""Model directories from anywhere: nothing in them is run, and no part of this project reads what could run."""

import ast
import json
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.safe import SAFE, SAFE_WEIGHTS, weight_files
from models.serving.local import TransformersModel
from schemas.config import load_config
from schemas.failure import CheckpointError
from tasks.preflight.preflight import planned
from tests.fixtures.sentences import Sentences

ROOT = Path(__file__).parents[3]
PACKAGES = ("apps", "flows", "tasks", "rollout", "curation", "learning", "models", "environments", "storage", "schemas")
RUNS = {
    "torch.load", "pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.loads", "shelve.open", "joblib.load",
    "dill.load", "numpy.load", "np.load", "yaml.load", "eval", "exec", "os.system", "os.popen", "compile",
}  # fmt: skip
"""Calls by which data runs code."""


class Runs:
    """What a pickle can do when it is read."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


def calls() -> Iterator[tuple[str, str, ast.Call]]:
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", ast.unparse(node.func), node


def test_nothing_of_this_project_reads_what_could_run() -> None:
    found = [f"{where} {name}" for where, name, node in calls() if name in RUNS or _shell(node)]
    assert not found


def _shell(node: ast.Call) -> bool:
    return any(word.arg == "shell" and ast.unparse(word.value) != "False" for word in node.keywords)


def test_every_model_directory_is_read_by_the_safe_settings() -> None:
    assert SAFE["trust_remote_code"] is False and SAFE_WEIGHTS["use_safetensors"] is True
    read = [(where, name, ast.unparse(node)) for where, name, node in calls() if name.endswith(".from_pretrained")]
    assert len(read) >= 6
    for where, name, text in read:
        settings = name.removeprefix("transformers.").startswith(("AutoProc", "AutoTok", "AutoImageProc", "AutoConfig"))
        wanted = "**SAFE)" if settings else "**SAFE_WEIGHTS)"
        assert wanted in text, f"{where}: {text}"


def test_a_directory_with_pickled_weights_is_refused_by_the_file_s_name_and_nothing_runs(
    tmp_path: Path, sentence: Sentences
) -> None:
    model, mark = tmp_path / "model", tmp_path / "ran"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl"}))
    (model / "pytorch_model.bin").write_bytes(pickle.dumps(Runs(mark)))
    config = load_config("laptop", [f"policy.base={model}"], {})
    check = next(part for part in planned(config) if part.name == "policy").check()
    assert not check.ok
    sentence(check.detail, "pytorch_model.bin")
    with sentence.raises(CheckpointError, "pytorch_model.bin"):
        weight_files(model)
    with pytest.raises(CheckpointError):
        TransformersModel(model)
    assert not mark.exists()


def test_a_directory_s_own_code_is_not_imported(tmp_path: Path) -> None:
    model, mark = tmp_path / "model", tmp_path / "ran"
    model.mkdir()
    own = {"AutoConfig": "code.Config", "AutoModelForImageTextToText": "code.Own", "AutoProcessor": "code.Processor"}
    (model / "config.json").write_text(json.dumps({"model_type": "own", "auto_map": own}))
    (model / "processor_config.json").write_text(json.dumps({"auto_map": own}))
    (model / "code.py").write_text(f"from pathlib import Path\nPath({str(mark)!r}).touch()\n")
    (model / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError):
        TransformersModel(model)
    assert not mark.exists()
