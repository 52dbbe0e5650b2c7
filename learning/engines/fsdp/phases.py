"""Runs one micro-batch on one rank: makes its input, and runs two phases as one forward pass.

The vision tower runs over the screens that the plan gave this rank. Its outputs go to the ranks that hold the screens'
tokens (`learning.parallel.dispatch`), together with DeepStack's features. The language model runs over packed documents
(`learning.parallel.packed_attention`). A rank without screens encodes a blank screen, and a rank without samples reads
one token of padding without a target. So both take part in every collective, without a contribution to the gradient.

Inputs of the vision tower are computed from the sizes of the screens, outside of the training step.

In every forward pass, `transformers` would compute the windows of screens, the positions of patches, and the
interpolation of learned positions from the grids. Its loops read numbers that a GPU must first transfer back. This
module computes them on the CPU, in the thread that decodes the screens.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from learning.algorithms.losses import entropies, token_logprobs
from learning.data.documents import Document
from learning.engines.fsdp.chats import Chat, Chats, Encoded, Measure
from learning.engines.fsdp.copies import ComputeCopies
from learning.engines.fsdp.costs import Shape
from learning.engines.fsdp.experts import imbalance
from learning.parallel.delta_rule import DocumentChunks
from learning.parallel.dispatch import AllToAll, Route, all_to_all, route
from learning.parallel.packed_attention import PackedDocuments, PatchWindows
from learning.parallel.ulysses import GroupPool
from learning.planning.sequence_plan import Group
from learning.planning.shared_prompts import Segment, share
from learning.planning.step_plan import MicroBatch, edges_of, encoded, fragments, stretch_of
from models.attention_kernels import Heads, KernelChoice, choice_of

Precomputed = dict[str, Tensor | int | PatchWindows | PackedDocuments]
"""Tensors by the names under which the model accepts them."""
_SCREENS = "image_packed"
"""Name of the screens' edges among them."""
_LANGUAGE, _TOWER = "language model", "vision tower"


def precomputed_of(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the tower's inputs from these grids; nothing for an unknown tower.

    Args:
        tower: the vision tower of Qwen2.5-VL, Qwen3-VL, Qwen3.5 or their mixtures of experts; its weights are not used.
        grids: (screens, 3) patches of each screen in time, rows, columns, on the CPU.
    """
    made = _MAKERS.get(tower.config.model_type)
    return {f"image_{name}": one for name, one in made(tower, grids).items()} if made else {}


def _each(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower whose patches attend within their screen."""
    from transformers.vision_utils import get_vision_cu_seqlens, get_vision_position_ids

    edges = get_vision_cu_seqlens(grids)
    places = get_vision_position_ids(grids, tower.spatial_merge_size)
    packed = PackedDocuments(tuple(edges.tolist()), edges, _longest(edges))
    return {"position_ids": places, "cu_seqlens": edges, "max_seqlen": packed.longest, "packed": packed}


def _windowed(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower whose patches attend only within their window in most layers."""
    from transformers.vision_utils import get_vision_window_index

    order, edges = get_vision_window_index(grids, tower.spatial_merge_size, tower.window_size, tower.patch_size)
    lengths = edges.diff().long()
    windows, ordered = PatchWindows.of(lengths)
    tokens = order.split((lengths // tower.spatial_merge_unit).tolist())
    made: Precomputed = {
        "window_index": torch.cat([tokens[one] for one in ordered]),
        "cu_window_seqlens": edges,
        "max_window_seqlen": _longest(edges),
        "windows": windows,
    }
    return {**_each(tower, grids), **made}


def _between(tower: Any, grids: Tensor) -> Precomputed:
    """Computes the inputs of a tower with a square table of learned positions, interpolated for each patch."""
    from transformers.vision_utils import get_vision_interpolation_indices_and_weights

    entries, weights = get_vision_interpolation_indices_and_weights(
        grids,
        num_grid_per_side=tower.num_grid_per_side,
        mode=tower.interpolation_mode,
        align_corners=tower.interpolation_align_corners,
        spatial_merge_size=tower.config.spatial_merge_size,
    )
    return {**_each(tower, grids), "interp_indices": entries, "interp_weights": weights}


_MAKERS = {"qwen2_5_vl": _windowed, "qwen2_5_vl_vision": _windowed, "qwen3_vl": _between, "qwen3_vl_vision": _between}
_MAKERS |= {"qwen3_vl_moe": _between, "qwen3_vl_moe_vision": _between}
_MAKERS |= {"qwen3_5": _between, "qwen3_5_vision": _between, "qwen3_5_moe": _between, "qwen3_5_moe_vision": _between}


def _longest(edges: Tensor) -> int:
    return int(edges.diff().max())


@dataclass(slots=True)
class RankWork:
    """Input of one rank for one micro-batch."""

    pixels: Tensor
    """(patches, width of a patch) of the screens that the rank encodes; a blank screen's if it has none."""
    grids: Tensor
    """(screens, 3), on the CPU if the tower is known (`precomputed`)."""
    precomputed: Precomputed
    """Inputs of the tower that are computed in advance from the grids."""
    seen: int
    """Number of tokens that the vision tower makes of the screens; 0 for a blank screen."""
    way: Route | None
    """Route of those tokens to the ranks that hold them; None for one rank."""
    rows_of_screens: Tensor | None
    """(k,) for each of the rank's tokens of screens, the row of the received outputs; None if all rows are in order."""
    ids: Tensor
    """(1, n) tokens that the rank holds."""
    screens: Tensor
    """(k,) indices of the rank's tokens that are tokens of screens, not of a reply that names a placeholder."""
    positions: Tensor
    """(axes, 1, n), or (1, n) for a model with one axis."""
    packed: PackedDocuments
    documents: int
    """Number of sequences of the step."""
    owners: Tensor
    """(n,) number of each token's document, or one of its documents, among the packed ones; for padding, the number of
    packed documents."""
    lengths: Tensor
    """(packed documents,) lengths in tokens."""
    places: Tensor
    """(m,) indices of the rank's tokens that are followed by a target."""
    targets: Tensor
    """(m,)."""
    tokens: Tensor
    """(m,) number of each target among the targets of all documents."""
    rows: Tensor
    """(m,) number of each target's document in the step."""
    temperatures: Tensor | None
    """(m,) divisors of the logits; None for 1."""

    def operations(self, shape: Shape) -> float:
        """Counts this rank's operations of forward and backward passes."""
        ranks = self.packed.group.size() if self.packed.group else 1
        patches = [int(grid.prod()) for grid in self.grids] if self.seen else []
        return shape.operations(self.packed.spans, [], 0) / ranks + shape.operations((), patches, len(self.places))

    def pinned(self) -> "RankWork":
        """Moves all tensors into pinned memory, from which a GPU can copy while it computes."""
        return self._map(Tensor.pin_memory)

    def to(self, device: torch.device) -> "RankWork":
        """Moves all tensors to a device, without waiting; the grids stay on the CPU if the tower is known."""
        return self._map(lambda one: one.to(device, non_blocking=True))

    def _map(self, moved: Callable[[Tensor], Tensor]) -> "RankWork":
        for one in fields(self):
            held = getattr(self, one.name)
            if isinstance(held, Tensor) and (one.name != "grids" or not self.precomputed):
                setattr(self, one.name, moved(held))
        for name, one in self.precomputed.items():
            if isinstance(one, PatchWindows):
                order, places, starts = map(moved, (one.order, one.places, one.starts))
                self.precomputed[name] = replace(one, order=order, places=places, starts=starts)
            elif isinstance(one, PackedDocuments):
                self.precomputed[name] = one.map(moved)
            elif isinstance(one, Tensor):
                self.precomputed[name] = moved(one)
        self.packed = self.packed.map(moved)
        if self.way is not None:
            self.way = replace(self.way, order=moved(self.way.order), place=moved(self.way.place))
        return self


class TwoPhases(nn.Module):
    """Runs a model on `RankWork` in one forward pass, so that weights outside of blocks are gathered once.

    Args:
        model: the network.
        exchange: the all-to-all between the phases.
        chunk: number of targets whose logits are held at a time; None for all targets.
        balance: the weight of the auxiliary loss of a mixture of experts.
    """

    def __init__(
        self, model: Any, exchange: AllToAll = all_to_all, chunk: int | None = None, balance: float = 0.0
    ) -> None:
        super().__init__()
        self.model, self._exchange, self._chunk, self._balance = model, exchange, chunk, balance
        self._copies: ComputeCopies | None = None
        self._kernels: dict[str, KernelChoice] = {}
        if hasattr(model.base_model.language_model, "_deepstack_process"):
            model.base_model.language_model._deepstack_process = _add_level

    def compute_in(self, compute: torch.dtype) -> None:
        """Lets passes compute in a type, with copies of the weights that have another one."""
        copies = ComputeCopies(self, compute)
        self._copies = copies if copies.needed else None

    def choose_kernels(self, device: torch.device, compute: torch.dtype) -> None:
        """Lets passes that compute in a type attend with the fastest kernels of a GPU."""
        text, vision = self.model.config.get_text_config(), self.model.config.vision_config
        heads, seen = text.num_attention_heads, getattr(vision, "num_heads", None)
        keys = getattr(text, "num_key_value_heads", None) or heads
        width = getattr(text, "head_dim", None) or text.hidden_size // heads
        self._kernels[_LANGUAGE] = choice_of(Heads(_LANGUAGE, heads, keys, width, True, compute, device))
        if seen:  # each known tower has the number
            width = vision.hidden_size // seen
            self._kernels[_TOWER] = choice_of(Heads(_TOWER, seen, seen, width, False, compute, device))

    def _choose(self, work: RankWork) -> None:
        """Names the kernels of a pass; documents that ranks share keep PyTorch's kernel."""
        packed, screens = work.packed, work.precomputed.get(_SCREENS)
        if _LANGUAGE in self._kernels and packed.group is None:
            packed.kernel = self._kernels[_LANGUAGE].of(packed, packed.seen or packed)
        if _TOWER in self._kernels and isinstance(screens, PackedDocuments):
            screens.kernel = self._kernels[_TOWER].of(screens, screens)

    def forward(self, work: RankWork) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Computes log probabilities, hidden states, entropies and the auxiliary loss of this rank's targets.

        The results are the log probability of each target, (m,), and the hidden states before the targets, (m, width).
        With gradient, they also have the entropy of each target's distribution, (m,), and this rank's part of the
        auxiliary loss.
        """
        self._choose(work)
        if self._copies is None:
            return self._passed(work)
        self._copies.begin()
        try:
            outputs = self._passed(work)
        except BaseException:
            self._copies.end()
            raise
        self._copies.end_after_backward(outputs)
        return outputs

    def _passed(self, work: RankWork) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        core = self.model.base_model
        seen = core.get_image_features(
            pixel_values=work.pixels, image_grid_thw=work.grids, return_dict=True, **work.precomputed
        )
        levels = [torch.cat(list(level)) for level in getattr(seen, "deepstack_features", None) or ()]
        rows = torch.cat([torch.cat(list(seen.pooler_output)), *levels], dim=1)[: work.seen]
        if work.way is not None:
            rows = self._exchange(rows, work.way)
        if work.rows_of_screens is not None:
            rows = rows.index_select(0, work.rows_of_screens)
        first, *deeper = rows.chunk(1 + len(levels), dim=1)
        # the model itself would look for placeholders among the tokens, for which the host waits
        embedded = core.get_input_embeddings()(work.ids)
        out = core.language_model(
            inputs_embeds=embedded.index_copy(1, work.screens, first[None].to(embedded.dtype)),
            position_ids=work.positions,
            packed=work.packed,
            use_cache=False,
            **({"visual_pos_masks": work.screens, "deepstack_visual_embeds": deeper} if deeper else {}),
            **({"output_router_logits": True} if self._balance else {}),
        )
        hidden = out.last_hidden_state[0, work.places]
        logprobs, entropy = self._logprobs(hidden, work.targets, work.temperatures)
        return logprobs, hidden, entropy, self._auxiliary(out, work)

    def _auxiliary(self, out: Any, work: RankWork) -> Tensor | None:
        """Computes the weighted mean over the step's sequences of how unevenly they use experts."""
        if not self._balance or not torch.is_grad_enabled():
            return None
        chosen = self.model.config.get_text_config().num_experts_per_tok
        found = imbalance(out.router_logits, work.owners, work.lengths, chosen, work.packed.group)
        return self._balance / work.documents * found

    def _logprobs(self, hidden: Tensor, targets: Tensor, temperatures: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Computes log probabilities and, with gradient, entropies, (m,) each.

        If there are more targets than a chunk, the head processes them chunk by chunk, and again in the backward pass,
        so that only the logits of one chunk are held (as in Cut Cross-Entropy, arXiv 2411.09009).
        """
        head, measured = self.model.get_output_embeddings(), torch.is_grad_enabled()

        def made(part: Tensor, asked: Tensor, divisors: Tensor | None) -> tuple[Tensor, Tensor | None]:
            logits = head(part)
            return token_logprobs(logits, asked, divisors), entropies(logits, divisors) if measured else None

        if self._chunk is None or len(targets) <= self._chunk:
            return made(hidden, targets, temperatures)
        parts = zip(
            hidden.split(self._chunk), targets.split(self._chunk), _split(temperatures, self._chunk), strict=False
        )
        logprobs, found = zip(*(checkpoint(made, *part, use_reentrant=False) for part in parts), strict=True)
        return torch.cat(logprobs), torch.cat(found) if measured else None


def _add_level(hidden: Tensor, screens: Tensor, level: Tensor) -> Tensor:
    """Adds a level of DeepStack's features to the tokens of screens, (1, n, width), without reading a mask."""
    return hidden.index_add(1, screens, level[None].to(hidden.dtype))


def _split(values: Tensor | None, size: int) -> Iterable[Tensor | None]:
    return repeat(None) if values is None else values.split(size)


def _targets_of(measures: Sequence[Measure]) -> Tensor:
    """Computes (n,) the token that must follow each token of a sequence, or -1, from its documents' replies."""
    targets = torch.full((measures[-1].item.tokens,), -1)
    for measure in measures:
        end = measure.item.tokens
        targets[end - measure.targets : end] = torch.tensor(measure.reply)
    return targets


def _keys(chats: Sequence[Chat], shown: Sequence[Measure]) -> list[npt.NDArray[np.int64]]:
    """Numbers the tokens of documents for `share`: equal numbers are the same text token or the same screen."""
    known: dict[object, int] = {}
    found = list[npt.NDArray[np.int64]]()
    for chat, measure in zip(chats, shown, strict=True):
        keys = chat.ids.numpy().copy()
        for digest, piece in zip(measure.digests, measure.item.screens, strict=True):
            keys[piece.start : piece.start + piece.tokens] = -1 - known.setdefault((digest, chat.times), len(known))
        found.append(keys)
    return found


def _rows(segments: Sequence[Segment], shown: Sequence[Measure]) -> Tensor | None:
    """Finds the received outputs of the tower for the tokens of screens; None if these are all of them in order.

    A rank receives each screen once (`encoded`).
    """
    known, end = dict[Encoded, int](), 0
    for one in shown:
        for digest, piece in zip(one.digests, one.item.screens, strict=True):
            if digest not in known:
                known[digest] = end
                end += piece.tokens
    found = [
        torch.arange(known[digest], known[digest] + piece.tokens)
        for one in segments
        for digest, piece in zip(shown[one.document].digests, shown[one.document].item.screens, strict=True)
        if one.start <= piece.start < one.end
    ]
    rows = torch.cat(found) if found else torch.empty(0, dtype=torch.long)
    return None if torch.equal(rows, torch.arange(end)) else rows


MOST_DECODERS = 8
"""Maximum number of threads of a rank that decode screens."""


class WorkMaker:
    """Makes one rank's `RankWork` of a plan: encodes only the texts and decodes only the screens of this work.

    Args:
        model: the model, used only for its positions.
        chats: the encoder.
        samples: all documents.
        starts: number of each document's first target among the targets of all documents. rank, world: this rank, and
        the number of ranks.
        groups: the process groups that plans may name; None if every sample stays on one rank.
        shares: whether tokens with which several documents of a rank begin are computed once.
    """

    def __init__(
        self,
        model: Any,
        chats: Chats,
        samples: Sequence[Document],
        starts: Sequence[int],
        rank: int,
        world: int,
        groups: GroupPool | None,
        shares: bool = False,
    ) -> None:
        self._core, self._chats, self._samples, self._starts = model.base_model, chats, samples, starts
        self._shares = shares
        self._rank, self._world, self._groups = rank, world, groups
        width = getattr(model.config.get_text_config(), "linear_conv_kernel_dim", None)
        self._gap = None if width is None else width - 1
        share = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", world))
        self._decoders = ThreadPoolExecutor(max(1, min(MOST_DECODERS, share)), thread_name_prefix="decode")

    def make(
        self,
        batch: MicroBatch,
        chosen: Sequence[int],
        measures: Sequence[Measure],
        sequences: Sequence[Sequence[int]],
    ) -> RankWork:
        """Makes this rank's work.

        Args:
            batch: the micro-batch.
            chosen: index of each document of the step.
            measures: lengths of the step's documents.
            sequences: the step's documents in each sequence of the plan; the last one contains the others.
        """
        longest = [measures[sequence[-1]] for sequence in sequences]
        pixels, grids, seen = self._screens(batch, longest)
        precomputed = precomputed_of(self._core.visual, grids)
        pieces = fragments(batch, [measure.item for measure in longest])
        alone = self._world == 1
        way = None if alone else route(pieces.before, pieces.after, pieces.sizes, self._rank, self._world)
        group = next(one for one in batch.groups if one.holds(self._rank))
        return self._text(group, chosen, measures, sequences, (pixels, grids, precomputed, seen, way))

    def _screens(self, batch: MicroBatch, measures: Sequence[Measure]) -> tuple[Tensor, Tensor, int]:
        """Computes patches, grids and tokens of the screens that this rank encodes."""
        shown = zip(encoded(batch.groups, [one.item for one in measures]), batch.encoders, strict=True)
        mine = [(measures[sample], number) for (sample, number), rank in shown if rank == self._rank]
        made = list(self._decoders.map(self._chats.pixels, [one.digests[number] for one, number in mine]))
        made = made or [self._chats.blank()]
        tokens = sum(one.item.screens[number].tokens for one, number in mine)
        return torch.cat([pixels for pixels, _ in made]), torch.stack([grid for _, grid in made]), tokens

    def _text(
        self,
        group: Group,
        chosen: Sequence[int],
        measures: Sequence[Measure],
        sequences: Sequence[Sequence[int]],
        seen: tuple[Tensor, Tensor, Precomputed, int, Route | None],
    ) -> RankWork:
        """Cuts this rank's stretch of its group's sequences."""
        members = sorted(group.sequences)
        shown = [measures[sequences[member][-1]] for member in members]
        chats = [self._chats.encode(self._samples[chosen[sequences[member][-1]]]) for member in members]
        wanted = [_targets_of([measures[one] for one in sequences[member]]) for member in members]
        segments, shared = [Segment(at, 0, len(chat.ids), ()) for at, chat in enumerate(chats)], False
        if self._shares and group.degree == 1:
            found = share(_keys(chats, shown), [int((one >= 0).nonzero()[0]) for one in wanted])
            if shared := any(one.before for one in found):
                segments = found

        def laid(parts: Sequence[Tensor]) -> list[Tensor]:
            return [parts[one.document][..., one.start : one.end] for one in segments]

        items = [measures[sequence[-1]].item for sequence in sequences]
        edges, stretch = edges_of(group, items), stretch_of(group, items)
        blank = 0 if shared else edges[-1] - sum(len(chat.ids) for chat in chats)
        padding = torch.zeros(blank, dtype=torch.long)
        ids = torch.cat([*laid([chat.ids for chat in chats]), padding])
        kinds = torch.cat([*laid([chat.kinds for chat in chats]), padding])
        targets = torch.cat([*laid(wanted), torch.full((blank,), -1)])
        positions = laid([self._positions(chat) for chat in chats])
        axes = positions[0].shape[0] if positions else self._axes
        positions = torch.cat([*positions, torch.zeros(axes, blank, dtype=torch.long)], dim=1)
        start = (self._rank - group.first) * stretch
        here = slice(start, start + stretch)
        places = (targets[here] >= 0).nonzero()[:, 0]
        first = int((targets[:start] >= 0).sum())
        last = [one.document for one in segments if one.end == len(chats[one.document].ids)]
        documents = [one for at in last for one in sequences[members[at]]]
        tokens, rows, temperatures = self._named(documents, measures, chosen, slice(first, first + len(places)))
        ranks = self._groups.of(group.first, group.degree) if self._groups and group.degree > 1 else None
        held = positions[:, None, here] if axes > 1 else positions[:, here]
        asked = (places, targets[here][places], tokens, rows, temperatures)
        lengths = torch.tensor([len(chat.ids) for chat in chats], dtype=torch.long)
        held_by = torch.tensor([*(one.document for one in segments), len(chats)])
        owners = held_by.repeat_interleave(torch.tensor([*(one.end - one.start for one in segments), blank]))[here]
        packed = PackedDocuments.sharing(segments) if shared else PackedDocuments.of(edges, ranks)
        if self._gap is not None:
            packed.chunks = DocumentChunks.of([end - first for first, end in pairwise(edges)], self._gap)
        rows = _rows(segments, shown) if self._shares and group.degree == 1 else None
        texts = (ids[None, here], kinds[here].nonzero()[:, 0], held)
        return RankWork(*seen, rows, *texts, packed, len(sequences), owners, lengths, *asked)

    def _named(
        self, members: Sequence[int], measures: Sequence[Measure], chosen: Sequence[int], here: slice
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Lists the targets' numbers, the numbers of their documents, and the divisors of their logits."""
        counts = torch.tensor([measures[member].targets for member in members], dtype=torch.long)
        rows = torch.tensor(members, dtype=torch.long).repeat_interleave(counts)
        starts = torch.tensor([self._starts[chosen[member]] for member in members], dtype=torch.long)
        tokens = torch.arange(len(rows)) + (starts - counts.cumsum(0) + counts).repeat_interleave(counts)
        divisors = torch.tensor([measures[member].temperature for member in members], dtype=torch.float64)
        divided = bool((divisors != 1).any())
        return tokens[here], rows[here], divisors.repeat_interleave(counts)[here] if divided else None

    @property
    def _axes(self) -> int:
        return 3 if hasattr(self._core, "get_rope_index") else 1

    def _positions(self, chat: Chat) -> Tensor:
        """Computes (axes, n): time, row and column of every token, or its position if the model has one axis."""
        if not hasattr(self._core, "get_rope_index"):
            return torch.arange(len(chat.ids))[None]
        found, _ = self._core.get_rope_index(
            input_ids=chat.ids[None], mm_token_type_ids=chat.kinds[None], **chat.shapes
        )
        return found[:, 0]
