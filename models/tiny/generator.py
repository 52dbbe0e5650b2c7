"""Generates with the small policy: encodes prompts and decodes batches with a key-value cache.

Optionally it runs dynamic int8 on the CPU: weights in int8 by row, activations in int8 at run time, and everything else
in fp32. This is only for acting and measuring; training always uses the full weights. The products run in PyTorch's own
kernels (`torch.ao.quantization`, its x86 or ARM engine). Expert weights of mixtures are no linear layers and stay in
fp32.

A row's samples depend only on its own seed, so a trajectory does not depend on other trajectories of its batch.
"""

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.ao.quantization.qconfig import per_channel_dynamic_qconfig

from models.completion import Completion
from models.families.outside import as_text
from models.families.prompt import Message, screens_of
from models.language_model import LanguageModel
from models.sampling import choose
from models.tiny.build import canvas_of, grid_of, patches_of, pixels_of
from models.tiny.layout import read_config, start_tokens
from models.tiny.network import HIDDEN, Grid, TinyNet, pack, visible
from models.tiny.tokens import END, IMAGE, PAD, START
from schemas.config.policy import PolicyConfig
from schemas.failure import CheckpointError


def quantized(model: nn.Module) -> nn.Module:
    """Returns the same model with every linear layer in int8 and the rest in fp32."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the warning that a separate package replaces it
        scheme = {nn.Linear: per_channel_dynamic_qconfig}
        return torch.ao.quantization.quantize_dynamic(model.float(), scheme, dtype=torch.qint8, inplace=True)


class Int8Net(TinyNet):
    """The small policy's network with matrices in int8; the embeddings, which also compute the logits, stay in fp32."""

    def __init__(
        self, config: dict[str, Any], state: dict[str, Tensor], dtype: torch.dtype | None = torch.float32
    ) -> None:
        super().__init__(config, state, dtype)
        self._layers: dict[str, nn.Module] = {}

    def product(self, x: Tensor, name: str) -> Tensor:
        """Computes `TinyNet.product` in int8."""
        layer = self._layers.get(name)
        if layer is None:
            layer = self._layers[name] = self._layer(name)
        return layer(x)

    def _layer(self, name: str) -> nn.Module:
        weight, bias = self.leaves[f"{name}.weight"], self.leaves.get(f"{name}.bias")
        full = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        full.weight = nn.Parameter(weight.detach())
        if bias is not None:
            full.bias = nn.Parameter(bias.detach())
        return quantized(nn.Sequential(full))


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """An encoded prompt."""

    screens: list[bytes]
    ids: list[int]
    seed: int


def read_tokenizer(directory: Path) -> Tokenizer:
    """Loads a checkpoint's tokeniser, which reads marked text as text; raises `CheckpointError` if it cannot be
    loaded."""
    try:
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception as error:  # the library raises bare Exception
        raise CheckpointError(f"{directory}/tokenizer.json: {error}.", "The checkpoint is broken.") from error
    as_text(tokenizer)
    return tokenizer


def prompt_text(messages: Sequence[Message]) -> str:
    """Writes a chat by the small policy's template, without its screens."""
    texts = []
    for message in messages:
        if message["role"] == "system":
            continue
        text = "".join(part["text"] for part in message["content"] if part["type"] == "text")
        texts.append(f"{START}{text}{END}" if message["role"] == "assistant" else text)
    return "".join([*texts, START])


class TinyPrompts:
    """Makes the tokens of chats for the small policy: first the screens, on canvases of equal size, then the text.

    Args:
        directory: the checkpoint.
    """

    def __init__(self, directory: Path) -> None:
        config = read_config(directory)
        self._tokenizer, self._image = read_tokenizer(directory), int(config["image_token_id"])
        self._start = start_tokens(config)
        self._patch, self._merge = (int(config["vision_config"][name]) for name in ("patch_size", "spatial_merge_size"))

    def __call__(self, chat: Sequence[Message]) -> list[int]:
        """Computes the tokens of the prompt, including the tokens of its screens."""
        screens = screens_of(list(chat))
        height, width = max(one.height for one in screens), max(one.width for one in screens)
        grid = grid_of(height, width, self._patch, self._merge)
        one = [*self._start, *[self._image] * (grid.rows * grid.columns // self._merge**2)]
        return one * len(screens) + self._tokenizer.encode(prompt_text(chat)).ids


class TinyModel(LanguageModel):
    """The small policy's network, tokeniser and decode loop.

    Args:
        directory: the checkpoint.
        config: the precision.
        version: the policy's name, which no result depends on.
        dtype: number type of the network without int8; `models.weights.compute_dtype()` if None.

    Raises:
        CheckpointError: the directory holds another kind of checkpoint.
    """

    def __init__(
        self,
        directory: Path,
        config: PolicyConfig | None = None,
        version: str = "",
        dtype: torch.dtype | None = None,
    ) -> None:
        self.net = _net(directory, config.precision if config else "full", dtype)
        self.tokenizer = read_tokenizer(directory)
        if self.tokenizer.get_vocab_size() > self.net.text["vocab_size"]:
            raise CheckpointError(f"{directory}: more tokens than embeddings.", "Tokeniser and weights do not match.")
        self.pad, self.end = (token_id(self.tokenizer, token) for token in (PAD, END))
        if token_id(self.tokenizer, IMAGE) != self.net.image_token:
            raise CheckpointError(f"{directory}: {IMAGE} is not image_token_id.", "Tokeniser and weights do not match.")
        if (start := self.net.start.tolist()) and start != [token_id(self.tokenizer, START)]:
            raise CheckpointError(
                f"{directory}: {START} is not vision_start_token_id.", "Tokeniser and weights do not match."
            )

    @torch.inference_mode()
    def generate(
        self, chats: Sequence[Sequence[Message]], seeds: Sequence[int], temperature: float, max_tokens: int
    ) -> list[Completion]:
        """Returns one completion of at most `max_tokens` tokens per chat; temperature 0 is greedy."""
        prompts = []
        for chat, seed in zip(chats, seeds, strict=True):
            screens = [observation.png for observation in screens_of(list(chat))]
            prompts.append(EncodedPrompt(screens, self.tokenizer.encode(prompt_text(chat)).ids, seed))
        completions: dict[int, Completion] = {}
        images = [[pixels_of(png) for png in item.screens] for item in prompts]
        patch, merge = self.net.vision["patch_size"], self.net.vision["spatial_merge_size"]
        groups: dict[tuple[Grid, int], list[int]] = {}
        for index, shown in enumerate(images):
            height, width = (max(image.shape[axis] for image in shown) for axis in (0, 1))
            groups.setdefault((grid_of(height, width, patch, merge), len(shown)), []).append(index)
        for (grid, count), members in groups.items():
            canvases = [canvas_of(image, grid, patch) for index in members for image in images[index]]
            seen = self.net.see(patches_of(canvases, patch, merge, self.net.dtype), grid)
            seen = self.net.lead(seen, len(members))
            made = self._decode(seen, [prompts[index] for index in members], grid, count, temperature, max_tokens)
            completions.update(zip(members, made, strict=True))
        return [completions[index] for index in range(len(prompts))]

    def _decode(
        self, seen: Tensor, prompts: list[EncodedPrompt], grid: Grid, screens: int, temperature: float, max_tokens: int
    ) -> list[Completion]:
        net, merge = self.net, self.net.vision["spatial_merge_size"]
        blocks = (grid.rows // merge, grid.columns // merge)
        packed = pack([[item.ids] for item in prompts], blocks, screens, self.pad, net.starts)
        cache = net.new_cache(len(prompts), packed.segments.shape[1] + max_tokens)
        mask = visible(packed.segments, net.dtype, seen.shape[1])
        hidden = net.read_after(seen, net.embed(packed.tokens), packed.positions, mask, cache).hidden
        rows, last = torch.arange(len(prompts)), torch.tensor(packed.lengths) - 1
        hidden, place = hidden[rows, last], packed.positions[0, rows, last + seen.shape[1]]
        past = torch.where(packed.segments < 0, HIDDEN, 0.0).to(net.dtype)[:, None, None]
        samplers = [random.Random(item.seed) for item in prompts]
        tokens: list[list[int]] = [[] for _ in prompts]
        logprobs: list[list[float]] = [[] for _ in prompts]
        for _ in range(max_tokens):
            chosen = self._choose(net.logits(hidden), samplers, temperature, tokens, logprobs)
            if all(row[-1] == self.end for row in tokens):
                break
            place = place + 1
            past = torch.cat([past, past.new_zeros(len(prompts), 1, 1, 1)], dim=-1)
            hidden = net.read(net.embed(chosen)[:, None], place.expand(3, 1, -1).transpose(1, 2), past, cache)[:, 0]
        return [
            Completion(self.tokenizer.decode(ids), tuple(ids), tuple(logs))
            for ids, logs in zip(tokens, logprobs, strict=True)
        ]

    def _choose(
        self,
        logits: Tensor,
        samplers: list[random.Random],
        temperature: float,
        tokens: list[list[int]],
        logprobs: list[list[float]],
    ) -> Tensor:
        """Samples the next token of every row that has not ended, and records the token with its log probability."""
        chosen, shares = choose(logits, samplers, temperature)
        for row, token in enumerate(chosen.tolist()):
            if not tokens[row] or tokens[row][-1] != self.end:
                tokens[row].append(token)
                logprobs[row].append(min(float(shares[row, token]), 0.0))
        return chosen


def _net(directory: Path, precision: str, dtype: torch.dtype | None) -> TinyNet:
    if precision == "full":
        return TinyNet.load(directory, dtype)

    return Int8Net.load(directory, torch.float32)


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Finds the id of a token that the small policy must have; raises `CheckpointError` if it has none."""
    number = tokenizer.token_to_id(token)
    if number is None:
        raise CheckpointError(f"tokenizer.json: no token {token!r}.", "The checkpoint is not the small policy's.")
    return number
