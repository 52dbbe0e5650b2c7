"""The policy over a checkpoint directory: the fast path says what `transformers` says, each row for itself."""

import io
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from models.families.family import ModelFamily
from models.policy import Context
from models.tiny.build import build_tiny
from models.tiny.generator import TinyModel, prompt_text
from models.tiny.layout import is_tiny, sizes_in
from models.tiny.network import Grid, TinyNet, pack, visible
from models.tiny.tokens import START
from models.vlm import VlmPolicy
from schemas.config.policy import SIZES, PolicyConfig
from schemas.failure import CheckpointError, UsageError
from schemas.observation import Observation, PastStep

CONFIG = PolicyConfig(hidden=64, layers=2, vision_hidden=64, vision_layers=2, max_new_tokens=6)
WINDOWS = CONFIG.model_copy(update={"vision_hidden": 32, "patch": 4, "merge": 4, "window": 32})
TEXTS = [f'Click on the "{name}" button.' for name in ("ok", "no", "go") for _ in range(8)]


@pytest.fixture(scope="module", params=[CONFIG, WINDOWS], ids=["whole screen", "windows"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("policy") / "tiny"
    build_tiny(request.param, TEXTS, 0, out)
    return out


def screen(number: int, size: tuple[int, int] = (96, 64)) -> Observation:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((5 * number, 10, 5 * number + 20, 30), fill="black")
    out = io.BytesIO()
    image.save(out, "png")
    return Observation(out.getvalue(), *size, "")


def context(number: int, size: tuple[int, int] = (96, 64)) -> Context:
    turns = tuple(PastStep("Wait.", "wait()", screen(0)) for _ in range(number % 3))
    return Context(TEXTS[number], turns, screen(number, size), number)


@pytest.mark.parametrize("blocks", [(2, 3), (1, 1), (4, 6), (5, 3)])
def test_logits_equal_those_of_plain_transformers(directory: Path, blocks: tuple[int, int]) -> None:
    from transformers import AutoModelForImageTextToText

    stock = AutoModelForImageTextToText.from_pretrained(directory, dtype=torch.float32)
    net = TinyNet.load(directory, torch.float32)
    merge, patch = net.vision["spatial_merge_size"], net.vision["patch_size"]
    rows, columns, tokens, image = blocks[0] * merge, blocks[1] * merge, blocks[0] * blocks[1], net.image_token
    torch.manual_seed(0)
    patches = torch.randn(2, rows * columns, 3 * patch**2)
    words = torch.randint(300, 600, (2, 16))
    first = net.start.tolist()
    ids = torch.cat([torch.tensor([[*first, *[image] * tokens]] * 2), words], dim=1)
    expected = stock(
        input_ids=ids,
        attention_mask=torch.ones_like(ids),
        mm_token_type_ids=(ids == image).int(),
        pixel_values=patches.flatten(0, 1),
        image_grid_thw=torch.tensor([[1, rows, columns]] * 2),
    ).logits
    packed = pack([[row] for row in words.tolist()], blocks, 1, 0, net.starts)
    seen, embedded, mask = (
        net.lead(net.see(patches, Grid(rows, columns)), 2),
        net.embed(packed.tokens),
        visible(packed.segments, net.dtype),
    )
    actual = net.logits(net.read(torch.cat([seen, embedded], dim=1), packed.positions, mask))
    assert torch.allclose(actual, expected, atol=1e-4)
    after = net.read_after(seen, embedded, packed.positions, mask[:, :, seen.shape[1] :]).hidden
    assert torch.allclose(net.logits(after), expected[:, len(first) + tokens :], atol=1e-4)


def test_transformers_does_not_run_the_small_policy_on_several_screens(directory: Path) -> None:
    for fields in ({"history_images": 2}, {"context": "fold", "live_images": 3, "fold_images": 2}):
        config = PolicyConfig(backend="transformers", **fields)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"on one grid.*set policy.history_images to 1"):
            VlmPolicy(directory, config)


def test_a_window_larger_than_the_screen_costs_no_more_than_the_screen(tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    build_tiny(WINDOWS.model_copy(update={"window": 1600}), TEXTS, 0, tmp_path / "tiny")
    net = TinyNet.load(tmp_path / "tiny", torch.float32)
    patches = torch.randn(2, 16 * 24, 48, generator=torch.Generator().manual_seed(0))
    tower = AutoModelForImageTextToText.from_pretrained(tmp_path / "tiny", dtype=torch.float32).model.visual
    found = tower(patches.flatten(0, 1), grid_thw=torch.tensor([[1, 16, 24]] * 2)).pooler_output
    torch.testing.assert_close(net.see(patches, Grid(16, 24)).flatten(0, 1), found, rtol=1e-4, atol=1e-4)


def test_equal_windows_are_encoded_once_with_the_tokens_and_gradients_of_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import AutoModelForImageTextToText

    build_tiny(WINDOWS, TEXTS, 0, tmp_path / "tiny")
    net, grid = TinyNet.load(tmp_path / "tiny", torch.float32), Grid(32, 36)
    patches = torch.zeros(2, 32 * 36, 48)  # 4 x 5 windows each, the last of a row with padding
    patches[0, 200:210] = torch.randn(10, 48, generator=torch.Generator().manual_seed(0))
    tower = AutoModelForImageTextToText.from_pretrained(tmp_path / "tiny", dtype=torch.float32).model.visual
    expected = tower(patches.flatten(0, 1), grid_thw=torch.tensor([[1, 32, 36]] * 2)).pooler_output
    encoded, product = list[int](), net.product
    monkeypatch.setattr(net, "product", lambda x, name: (encoded.append(len(x)), product(x, name))[1])
    net.gradients()
    found = net.see(patches, grid)
    assert set(encoded) == {16}, "of 40 windows"
    torch.testing.assert_close(found.flatten(0, 1), expected, rtol=1e-4, atol=1e-4)
    weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
    (found.flatten(0, 1) * weights).sum().backward()
    (expected * weights).sum().backward()
    for name, stock in (("merger.mlp.2", tower.merger.mlp[2]), ("blocks.0.attn.proj", tower.blocks[0].attn.proj)):
        ours = net.leaves[f"model.visual.{name}.weight"].grad
        torch.testing.assert_close(ours, stock.weight.grad, rtol=1e-3, atol=1e-3)


def test_both_releases_names_of_tensors_are_read(directory: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForImageTextToText

    other = Path(shutil.copytree(directory, tmp_path / "other"))
    model = AutoModelForImageTextToText.from_pretrained(directory)
    tensors = {name: tensor.clone() for name, tensor in model.state_dict().items() if not name.startswith("lm_head")}
    save_file(tensors, other / "model.safetensors", {"format": "pt"})
    assert torch.equal(TinyNet.load(other).flat, TinyNet.load(directory).flat)


def test_the_sizes_of_a_small_policy_are_those_it_was_built_with(directory: Path) -> None:
    found = sizes_in(json.loads((directory / "config.json").read_text()))
    assert found in ({name: getattr(config, name) for name in SIZES} for config in (CONFIG, WINDOWS))


@pytest.mark.parametrize("start", [None, -1, 151652, "1"])
def test_windows_without_a_start_token_are_refused_with_what_to_do(tmp_path: Path, start: object) -> None:
    build_tiny(WINDOWS, TEXTS, 0, folder := tmp_path / "tiny")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vision_start_token_id": start}))
    with pytest.raises(CheckpointError, match=r"vision_start_token_id is .*Train the base again"):
        VlmPolicy(folder, CONFIG)
    (folder / "config.json").write_text(json.dumps(config | {"vision_start_token_id": config["image_token_id"]}))
    with pytest.raises(CheckpointError, match=r"im_start.* is not vision_start_token_id"):
        VlmPolicy(folder, CONFIG)


@pytest.mark.parametrize("broken", [{"window_size": None}, {"patch_size": "4"}, {"spatial_merge_size": 0}])
def test_a_config_without_usable_windows_is_another_model(directory: Path, broken: dict[str, object]) -> None:
    config = json.loads((directory / "config.json").read_text()) | {"model_type": "qwen2_5_vl"}
    config["vision_config"] |= {"fullatt_block_indexes": [], "window_size": 32, **broken}
    assert not is_tiny(config)


def test_the_fast_path_answers_as_generate_does(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("models.tiny.network", "models.serving.local"):  # random weights have near ties in bf16
        monkeypatch.setattr(f"{module}.compute_dtype", lambda: torch.float32)
    contexts = [context(number) for number in range(3)]
    fast = VlmPolicy(directory, CONFIG).act(contexts)
    stock = VlmPolicy(directory, CONFIG.model_copy(update={"backend": "transformers"})).act(contexts)
    assert [reply.text for reply in fast] == [reply.text for reply in stock]


def test_the_prompt_is_the_chat_template_without_its_image_tokens(directory: Path) -> None:
    from transformers import AutoProcessor

    chat = ModelFamily(CONFIG).messages(context(2))
    processor = AutoProcessor.from_pretrained(directory)
    written = processor.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    start = START * TinyNet.load(directory).starts
    assert written == start + processor.image_token + prompt_text(chat)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_reply_does_not_depend_on_the_batch_it_is_in(directory: Path, temperature: float) -> None:
    policy = VlmPolicy(directory, CONFIG)
    contexts = [context(number, (96, 64 if number % 2 else 96)) for number in range(9)]
    alone = [policy.act([item], temperature)[0].text for item in contexts]
    assert [reply.text for reply in policy.act(contexts, temperature)] == alone


def test_a_seed_draws_the_same_reply_again_and_another_seed_another(directory: Path) -> None:
    policy = VlmPolicy(directory, CONFIG)
    first, again = policy.act([context(1)], 1.0), policy.act([context(1)], 1.0)
    other = policy.act([Context(TEXTS[1], context(1).turns, context(1).observation, 77)], 1.0)
    assert first == again and first[0].token_ids != other[0].token_ids


def test_tokens_come_with_their_log_probabilities(directory: Path) -> None:
    (reply,) = VlmPolicy(directory, CONFIG).act([context(0)], 1.0)
    assert reply.token_ids and reply.logprobs and len(reply.token_ids) == len(reply.logprobs)
    assert all(value <= 0 for value in reply.logprobs)


def test_no_context_no_reply(directory: Path) -> None:
    assert VlmPolicy(directory, CONFIG).act([]) == []


def broken(directory: Path, tmp_path: Path, kind: str) -> Path:
    copy = tmp_path / "broken"
    shutil.copytree(directory, copy)
    config = json.loads((copy / "config.json").read_text())
    if kind == "missing":
        return tmp_path / "nowhere"
    if kind == "weights cut short":
        (copy / "model.safetensors").write_bytes((copy / "model.safetensors").read_bytes()[:1000])
    if kind == "weights missing":
        (copy / "model.safetensors").unlink()
    if kind == "config no json":
        (copy / "config.json").write_text("{")
    if kind == "another shape":
        config["text_config"]["hidden_size"] = 32
    if kind == "another architecture":
        config["model_type"] = "no_such_model"
    if kind == "tokeniser broken":
        (copy / "tokenizer.json").write_text("[]")
    if kind not in ("config no json",):
        (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    "kind",
    [
        "missing",
        "weights cut short",
        "weights missing",
        "config no json",
        "another shape",
        "another architecture",
        "tokeniser broken",
    ],
)
def test_a_checkpoint_that_cannot_be_run_is_a_checkpoint_error(directory: Path, tmp_path: Path, kind: str) -> None:
    with pytest.raises(CheckpointError):
        VlmPolicy(broken(directory, tmp_path, kind), CONFIG)


def test_the_model_names_the_file_that_is_broken(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        TinyModel(broken(directory, tmp_path, "weights cut short"))
