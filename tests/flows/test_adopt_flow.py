"""A checkpoint from elsewhere becomes a challenger; a config of another policy than the lake's is refused."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from flows.flywheel import flywheel
from flows.policies import adopt
from models.random_vlm import build_random
from models.tiny.build import build_tiny
from schemas.config import Config
from schemas.config.policy import SIZES
from schemas.failure import CheckpointError, UsageError
from storage.lake import Lake
from tasks.adopt import adopt_checkpoint
from tasks.preflight.checks import require_descent
from tasks.promote.promote import roll_back
from tasks.shared.policies import champion, policy_row
from tasks.shared.status import iterations
from tasks.shared.weights import checkpoint_folder
from tests.flows.conftest import Turned


def with_policy(config: Config, **keys: object) -> Config:
    return config.model_copy(update={"policy": config.policy.model_copy(update=keys)})


def moved(folder: Path) -> Path:
    """The same model with one weight a little other."""
    weights = load_file(folder / "model.safetensors")
    first = weights[min(weights)]
    first.view(-1)[0] += 0.5
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.slow
def test_a_checkpoint_is_adopted_measured_and_challenges_the_champion(turned: Turned, tmp_path: Path) -> None:
    small = turned(1)
    lake = Lake.open(small.lake)
    before = iterations(lake)
    given = Path(shutil.copytree(checkpoint_folder(lake, "policy-0000"), tmp_path / "given"))
    (given / "notes.py").write_text("raise SystemExit")
    names = [adopt(small, str(moved(given))), adopt(small, str(moved(given)), "theirs")]
    assert names == ["adopted-0000", "theirs"]
    for name in names:
        row = policy_row(lake, name)
        assert (row.kind, row.method, row.parent) == ("adopted", "adopted", None)
        assert lake.count("evaluations", {"policy_version": name, "suite": "suite"}) == 6
    assert policy_row(lake, "theirs").status == "champion" == champion(lake).status
    assert policy_row(lake, "adopted-0000").status == "retired"
    copied = checkpoint_folder(lake, "theirs")
    assert (copied / "model.safetensors").read_bytes() == (given / "model.safetensors").read_bytes()
    assert not (copied / "notes.py").exists()
    assert iterations(lake) == before
    with pytest.raises(UsageError, match="`theirs` is taken"):
        adopt(small, str(moved(given)), "theirs")
    with pytest.raises(UsageError, match="the very weights of the champion, theirs"):
        adopt(small, str(copied))
    assert lake.count("policies", {"kind": "adopted"}) == 2
    roll_back(lake, None, "theirs is slow")
    flywheel(small, iterations=1)
    assert policy_row(lake, "policy-0001").parent == "adopted-0000"


def test_an_adoption_whose_process_died_is_taken_up_and_leaves_no_work_behind(turned: Turned, tmp_path: Path) -> None:
    small = turned(0)
    lake = Lake.open(small.lake)
    given = moved(Path(shutil.copytree(checkpoint_folder(lake, "policy-initial"), tmp_path / "given")))
    dying = "import sys; from storage.lake import Lake; from tasks.shared.lease import claim; "
    dying += "from schemas.config.sections import LakeConfig; "
    dying += "claim(Lake.open(LakeConfig(uri=sys.argv[1])), 'adopted', {'directory': sys.argv[2]})"
    subprocess.run([sys.executable, "-c", dying, lake.uri, str(given)], check=True)
    assert adopt(small, str(given)) == "adopted-0000"
    assert not list((tmp_path / "home" / "work" / lake.lake_id).glob("adopted-*"))


@pytest.mark.parametrize("keys", [{"hidden": 64}, {"patch": 4, "merge": 4, "window": 32, "vision_hidden": 16}])
def test_a_small_policy_of_other_sizes_is_adopted_with_them_and_run_by_any_config(
    turned: Turned, tmp_path: Path, keys: dict[str, object]
) -> None:
    small = turned(0)
    config = small.model_copy(update={"lake": small.lake.model_copy(update={"uri": str(tmp_path / "empty")})})
    theirs = with_policy(config, **keys)
    build_tiny(theirs.policy, ["Click it."] * 8, 0, tmp_path / "given")
    version = adopt_checkpoint(config, str(tmp_path / "given"), None)
    lake = Lake.open(config.lake)
    recorded = json.loads(policy_row(lake, version).config)["policy"]
    assert {name: recorded[name] for name in SIZES} == theirs.policy.model_dump(include=set(SIZES))
    for one in (config, theirs):
        require_descent(one, lake)
    with pytest.raises(UsageError, match=r"policy\.dialect=point"):
        require_descent(with_policy(config, dialect="point"), lake)


@pytest.mark.slow
def test_what_cannot_be_loaded_is_refused_and_nothing_is_written(turned: Turned, tmp_path: Path) -> None:
    small = turned(0)
    lake = Lake.open(small.lake)
    whole, before = checkpoint_folder(lake, "policy-initial"), lake.versions()
    stored = sorted(lake.blobs.store.sizes())
    pickled, broken, half = (Path(shutil.copytree(whole, tmp_path / name)) for name in ("pickled", "broken", "half"))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    weights = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    (half / "tokenizer.json").unlink()
    for folder, why in ((pickled, "pytorch_model.bin, which can run code"), (broken, "broken"), (half, "half")):
        with pytest.raises(CheckpointError, match=why):
            adopt(small, str(folder))
    with pytest.raises(UsageError, match="is not a directory"):
        adopt(small, str(tmp_path / "nothing"))
    assert lake.versions() == before and sorted(lake.blobs.store.sizes()) == stored


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"base": "other"}, r"policy\.base=.*other.*descends from policy-initial.*policy\.base=tiny"),
        ({"hidden": 96}, r"policy\.hidden=96.*policy\.hidden=192"),
        ({"dialect": "point"}, r"policy\.dialect=point.*policy\.dialect=box_v1"),
    ],
)
def test_another_policy_than_the_lakes_is_refused_with_what_can_be_done(
    turned: Turned, tmp_path: Path, keys: dict[str, object], said: str
) -> None:
    if "base" in keys:
        build_random("qwen3_vl", ["Click it."] * 8, 0, tmp_path / "other")
        keys = {"base": str(tmp_path / "other")}
    small = turned(0)
    lake = Lake.open(small.lake)
    before = lake.versions()
    with pytest.raises(UsageError, match=said + r".*lake\.uri.*flywheel adopt DIR"):
        flywheel(with_policy(small, **keys), iterations=1)
    assert lake.versions() == before
    flywheel(with_policy(small, max_new_tokens=16), iterations=0)
