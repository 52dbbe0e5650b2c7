"""What a checkpoint's weights are known by: what is in their files, wherever those lie."""

import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from models.tiny.layout import TRAINING
from models.weights import ADAPTER, Weights, fingerprint
from storage.blobs import Blobs
from storage.objects import open_store


def test_a_fingerprint_is_of_the_weights_wherever_they_lie_and_whatever_lies_beside_them(tmp_path: Path) -> None:
    one = tmp_path / "one"
    one.mkdir()
    state = {"embed": torch.zeros(1000, 100), "layer": torch.zeros(1000, 100)}
    save_file(state, one / "model.safetensors")
    before = fingerprint(one)
    shutil.copytree(one, tmp_path / "copy")
    (one / ADAPTER).mkdir()
    (one / "manifest.json").write_text("{}")
    assert fingerprint(tmp_path / "copy") == fingerprint(one) == before and len(before) == 12
    save_file({**state, "layer": state["layer"] + 1e-6}, one / "model.safetensors")  # after frozen embeddings
    assert fingerprint(one) != before
    assert fingerprint(tmp_path / "nowhere") == "" and Weights(tmp_path / "nowhere", "x").name == "x-unseen"


def test_a_copy_out_of_a_lake_has_the_fingerprint_of_what_was_put_there(tmp_path: Path) -> None:
    made = tmp_path / "policy-0001"
    (made / TRAINING).mkdir(parents=True)
    save_file({"layer": torch.zeros(10)}, made / "model.safetensors")
    (made / TRAINING / "masters").write_text("more")
    blobs = Blobs(open_store(tmp_path / "lake"))
    blobs.put_directory(made, "checkpoints/policy-0001")
    out = blobs.get_directory("checkpoints/policy-0001", tmp_path / "cache")
    assert fingerprint(out) == fingerprint(made)
    blobs.drop("checkpoints/policy-0001", TRAINING, lambda: False)
    assert fingerprint(blobs.get_directory("checkpoints/policy-0001", tmp_path / "cache")) == fingerprint(made)
