"""A name on the Hub in `policy.base` is fetched once, and refused with the command that downloads it."""

import importlib.util
import json
from pathlib import Path

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id

from apps.commands.lineage import lineage_of
from models import hub
from models.families.registry import name_of
from models.hub import OFF, fetched_base, given_revision
from models.safe import weights_of
from schemas.config import config_of
from schemas.config.hub import HubModel, _cache, hub_model  # pyright: ignore[reportPrivateUsage]
from schemas.config.policy import PolicyConfig
from schemas.failure import UsageError
from storage.lake import Lake
from tasks.preflight.preflight import require_base
from tasks.prepare import first_policy
from tests.fixtures.hub import COMMIT
from tests.fixtures.hub import hub as serving
from tests.fixtures.sentences import Sentences
from tests.tiny_qwen import build_tiny_qwen

NAME = "Owner/Tiny-VL"


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, and no server."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", OFF)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.chdir(tmp_path)
    hub._fetch.cache_clear()  # pyright: ignore[reportPrivateUsage]


@pytest.mark.slow
@pytest.mark.parametrize("base", [NAME, f"{NAME}@{COMMIT}"])
def test_a_model_of_the_hub_is_fetched_once_and_its_commit_recorded(
    base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    build_tiny_qwen("qwen3_5", model)
    (model / "pytorch_model.bin").write_bytes(b"unused")
    suite = {"tasks": ["click-target"], "held_out": []}
    config = config_of(
        {
            "lake": {"uri": str(tmp_path / "lake")},
            "environments": {"fake": {}},
            "suite": suite,
            "policy": {"base": base, "family": "qwen3.5"},
        }
    )
    with serving(NAME, model) as (address, asked):
        monkeypatch.setenv("HF_ENDPOINT", address)
        require_base(config)
        assert asked and not any(path.endswith(".bin") for path in asked)
        require_base(config)
        assert capsys.readouterr().err.count(f"fetching {NAME}") == 1
    folder = fetched_base(config.policy)
    assert weights_of(folder) and name_of(config.policy) == "qwen3.5"
    lake = Lake.open(config.lake)
    row = first_policy(config, lake)
    assert json.loads(row.metrics) == {"hub": NAME, "revision": COMMIT} == given_revision(config.policy)
    assert json.loads(row.config)["policy"]["base"] == base
    assert lineage_of(lake, row.policy_version).chain[-1].metrics == row.metrics  # pyright: ignore


def test_a_model_that_cannot_be_fetched_is_refused_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sentence: Sentences
) -> None:
    (tmp_path / "empty").mkdir()
    with sentence.raises(UsageError, NAME, hint=f"hf download {NAME} --local-dir DIR"):
        fetched_base(PolicyConfig(base=NAME))
    with serving("Another/Model", tmp_path / "empty") as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        with sentence.raises(UsageError, hint="--revision v1.0"):
            fetched_base(PolicyConfig(base=f"{NAME}@v1.0"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with sentence.raises(UsageError, "HF_HUB_OFFLINE is set"):
        fetched_base(PolicyConfig(base="Owner/Other"))


def test_a_folder_is_no_name_on_the_hub(tmp_path: Path) -> None:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    assert fetched_base(PolicyConfig(base="models/mine")) == Path("models/mine")
    for base in ("tiny", "/models/mine", "models/of/mine", "./mine"):
        assert fetched_base(PolicyConfig(base=base)) == Path(base)


SHARDS = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """The folder of the model in the cache, with its config alone."""
    folder = tmp_path / "hub" / "hub" / "models--Owner--Tiny-VL"
    for part in ("refs", "blobs", f"snapshots/{COMMIT}"):
        (folder / part).mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    (folder / f"snapshots/{COMMIT}/config.json").write_text("{}")
    return folder / "snapshots" / COMMIT


def link(snapshot: Path, name: str) -> Path:
    """Store a file as the cache does; returns its content."""
    blob = snapshot.parent.parent / "blobs" / name
    blob.write_text("")
    (snapshot / name).symlink_to(blob)
    return blob


def test_a_cached_model_is_used_if_its_config_and_weights_are_there(snapshot: Path) -> None:
    assert PolicyConfig(base=NAME).folder == Path(NAME)
    blob = link(snapshot, "model.safetensors")
    (blob.parent / "abc.incomplete").write_text("")
    assert PolicyConfig(base=NAME).folder == fetched_base(PolicyConfig(base=NAME)) == snapshot
    blob.unlink()
    assert PolicyConfig(base=NAME).folder == Path(NAME)


def test_a_cached_model_in_shards_is_used_if_all_are_there(snapshot: Path) -> None:
    weights = {"weight_map": dict(zip("abc", [*SHARDS, SHARDS[0]], strict=True))}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(weights))
    link(snapshot, SHARDS[0])
    assert PolicyConfig(base=NAME).folder == Path(NAME)
    link(snapshot, SHARDS[1])
    assert PolicyConfig(base=NAME).folder == snapshot
    (snapshot / "model.safetensors.index.json").write_text("[]")
    assert PolicyConfig(base=NAME).folder == Path(NAME)


def test_an_incomplete_cached_model_is_refused_with_the_command_if_it_cannot_be_fetched(snapshot: Path) -> None:
    with pytest.raises(UsageError) as raised:
        fetched_base(PolicyConfig(base=NAME))
    assert f"hf download {NAME} --local-dir DIR" in str(raised.value.hint) and "config.json" not in str(raised.value)


def test_a_model_of_the_hub_without_safetensors_is_refused_by_the_missing_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    for name in ("config.json", "pytorch_model.bin"):
        (tmp_path / "model" / name).write_text("{}")
    with serving(NAME, tmp_path / "model") as (address, _):
        monkeypatch.setenv("HF_ENDPOINT", address)
        with pytest.raises(UsageError, match=r"it has no model\.safetensors"):
            fetched_base(PolicyConfig(base=NAME))


CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")


@pytest.mark.parametrize(
    "given",
    [
        {},
        *({name: value} for name in CACHES for value in ("", "~/models", "$HOME/models")),
        {"HF_HUB_CACHE": "", "HUGGINGFACE_HUB_CACHE": "b", "HF_HOME": "c"},
        {"HUGGINGFACE_HUB_CACHE": "b", "HF_HOME": "c"},
    ],
)
def test_the_cache_is_that_of_huggingface_hub(given: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CACHES:
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    constants = importlib.util.find_spec("huggingface_hub.constants")
    assert constants and constants.loader
    loaded = importlib.util.module_from_spec(constants)
    constants.loader.exec_module(loaded)
    assert _cache() == Path(loaded.HF_HUB_CACHE)


@pytest.mark.parametrize(
    "name",
    [
        "gpt2", "a/b", "Qwen/Qwen3-VL-4B-Instruct", "a_/b", "a/_b", "_a/b_c", "a..b/c", "a/b..c", "a--b/c", "a/b--c",
        "a/b.git", "a.git/b", ".a/b", "a/.b", "a/b.", "a-/b", "-a/b", "a/-b", "a/b/c", "/a", "a/", "", "a b/c",
        "caf\u00e9/a", "a/b\n", "a" * 96, "a" * 97, "a" * 96 + "/" + "b" * 96, "a/" + "b" * 97, "0", "~/a", "./a",
    ],
)  # fmt: skip
def test_names_are_those_that_huggingface_hub_takes(name: str) -> None:
    try:
        validate_repo_id(name)
        valid = True
    except HFValidationError:
        valid = False
    for base, revision in ((name, "main"), (f"{name}@v1", "v1")):
        assert hub_model(base) == (HubModel(name, revision) if valid else None)


def test_the_small_policy_is_no_model_of_the_hub() -> None:
    assert hub_model("tiny") is None and not PolicyConfig().given
