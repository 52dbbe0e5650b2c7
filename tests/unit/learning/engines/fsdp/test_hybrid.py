"""Qwen3.5: packed documents give the loss and the gradients of each document alone, in the library's own model."""

from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.launch_mode import Launches
from learning.engines.fsdp.costs import CPU, cluster_cost, shape_of
from learning.engines.fsdp.loading import model_of_config
from learning.engines.fsdp.model import load_model
from learning.parallel import packed_attention
from learning.parallel.delta_rule import DocumentChunks, mix
from learning.parallel.packed_attention import PackedDocuments
from models.random_vlm import build_random
from schemas.failure import PlanError

LENGTHS = (37, 65, 101, 37)
KINDS = ("qwen3_5", "qwen3_5_moe")


def documents() -> list[Tensor]:
    numbers = torch.Generator().manual_seed(1)
    return [torch.randint(5, 90, (1, length), generator=numbers) for length in LENGTHS]


def loss(model: Any, ids: Tensor, edges: list[int], **more: Any) -> Tensor:
    """Sum over documents of their tokens' negative log probabilities."""
    positions = torch.cat([torch.arange(end - start) for start, end in pairwise(edges)]).expand(3, 1, -1)
    hidden = model.base_model(input_ids=ids, position_ids=positions, use_cache=False, **more).last_hidden_state
    logprobs = model.get_output_embeddings()(hidden[0]).log_softmax(-1)
    parts = [-logprobs[start : end - 1].gather(1, ids[0, start + 1 : end, None]) for start, end in pairwise(edges)]
    return torch.cat(parts).sum()


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_packed_documents_have_their_own_loss_and_gradients(kind: Any, tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    build_random(kind, ["Click on the target."] * 8, 0, tmp_path, layers=3)
    alone: Any = AutoModelForImageTextToText.from_pretrained(tmp_path, dtype=torch.float32)
    own = [loss(alone, ids, [0, ids.shape[1]]) for ids in documents()]
    torch.stack(own).sum().backward()
    model = load_model(tmp_path).float()
    edges = [0, *accumulate(LENGTHS)]
    packed = PackedDocuments.of(tuple(edges))
    together = loss(model, torch.cat(documents(), dim=1), edges, packed=packed)
    together.backward()
    assert together.item() == pytest.approx(sum(one.item() for one in own), rel=1e-6)
    wanted, found = gradients(alone), gradients(model)
    assert found.keys() == wanted.keys() and any("linear_attn.A_log" in name for name in found)
    for name, one in wanted.items():
        assert torch.allclose(found[name], one, rtol=1e-4, atol=1e-5 * float(one.abs().max() + 1)), name
    leaking = loss(model, torch.cat(documents(), dim=1), edges, packed=PackedDocuments.of((0, edges[-1])))
    assert abs(leaking.item() - together.item()) > 1e-2  # one document of the same tokens


@pytest.mark.parametrize("lengths", [(64,), (1, 2, 3), (130, 64, 0, 5, 200), (70, 129)])
def test_documents_mixed_at_once_are_what_the_library_makes_of_each(lengths: tuple[int, ...], tmp_path: Path) -> None:
    """With several chunks, chunks of padding, documents shorter than the convolution, and one without tokens."""
    build_random("qwen3_5", ["Click."] * 8, 0, tmp_path, layers=3)
    mixer = load_model(tmp_path).float().base_model.language_model.layers[0].linear_attn
    numbers = torch.Generator().manual_seed(0)
    hidden = torch.randn(sum(lengths), mixer.hidden_size, generator=numbers, requires_grad=True)
    slope = torch.randn(hidden.shape, generator=numbers)
    chunks = DocumentChunks.of(lengths, mixer.conv_kernel_size - 1)
    assert mix(mixer.double(), hidden.double(), chunks).dtype == torch.float64  # the rule itself is in fp32
    held = [hidden, *mixer.float().parameters()]
    made = mix(mixer, hidden, chunks)
    parts = [mixer(hidden_states=part[None])[0] for part in hidden.split([length for length in lengths if length])]
    torch.testing.assert_close(made, torch.cat(parts), rtol=1e-5, atol=1e-5)
    found, wanted = (torch.autograd.grad(one, held, slope) for one in (made, torch.cat(parts)))
    for one, other in zip(found, wanted, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-5 * float(other.abs().max() + 1))


def test_the_work_from_chunk_to_chunk_does_not_grow_with_the_number_of_documents(tmp_path: Path) -> None:
    build_random("qwen3_5", ["Click."] * 8, 0, tmp_path, layers=3)
    mixer = load_model(tmp_path).float().base_model.language_model.layers[0].linear_attn
    calls = []
    for lengths in ((200,), (200, 150, 90, 10)):
        hidden = torch.randn(sum(lengths), mixer.hidden_size)
        chunks = DocumentChunks.of(lengths, mixer.conv_kernel_size - 1)
        with Launches("cpu") as counted, torch.no_grad():
            mix(mixer, hidden, chunks)
        calls.append(counted.calls.total())
    assert calls[0] == calls[1]


def test_kernels_get_the_edges_and_the_owners_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}

    class OnGpu(torch.Tensor):
        is_cuda = True

    class Mixer(torch.nn.Module):
        def forward(self, **arguments: Any) -> Tensor:
            given.update(arguments)
            return arguments["hidden_states"]

    monkeypatch.setattr(packed_attention, "find_spec", lambda name: name)
    tokens = torch.zeros(1, 9, 4).as_subclass(OnGpu)
    monkeypatch.setattr(OnGpu, "device", torch.device("cpu"), raising=False)
    mixer: Any = packed_attention._packed(Mixer)()
    mixer(tokens, packed=PackedDocuments.of((0, 4, 4, 9)))
    assert given["cu_seq_lens_q"].tolist() == [0, 4, 4, 9] and given["cu_seq_lens_q"].dtype == torch.int32
    assert given["seq_idx"].tolist() == [[0] * 4 + [2] * 5] and given["seq_idx"].dtype == torch.int32


def test_a_document_stays_on_one_rank_and_linear_layers_cost_no_pairs_of_tokens(tmp_path: Path) -> None:
    build_random("qwen3_5", ["Click."] * 8, 0, tmp_path / "hybrid", layers=4)
    build_random("qwen3_vl", ["Click."] * 8, 0, tmp_path / "full", layers=4)
    hybrid, full = (shape_of(model_of_config(tmp_path / name)) for name in ("hybrid", "full"))
    assert 4 * hybrid.language.quadratic == full.language.quadratic
    assert hybrid.language.linear > full.language.linear
    cost = cluster_cost(hybrid, 4, 4, 100, CPU)
    assert cost.degrees == (1,)
    with pytest.raises(PlanError):
        cost.least_degree(101)
