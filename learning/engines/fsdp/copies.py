"""Lets a model on one rank compute in a smaller type than the type in which its weights are trained.

FSDP would gather and cast every weight for each pass of each micro-batch, and sum each micro-batch's gradient on its
own. One rank has nothing to gather. It casts its weights once a step, and adds gradients to those of the trained
weights as soon as autograd has computed them.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from models.padding import PaddedLinear


class ComputeCopies:
    """Copies of a model's weights in the type in which it computes.

    A pass computes with the copies, which are padded where products need it. Between passes, the model's parameters are
    the trained weights.

    Args:
        net: the model; a weight that two modules share has one copy.
        compute: type of the copies; weights of this type are used as they are.
    """

    def __init__(self, net: nn.Module, compute: torch.dtype) -> None:
        self._compute = compute
        self._places = [
            (module, name, weight)
            for module in net.modules()
            for name, weight in module.named_parameters(recurse=False, remove_duplicate=False)
            if _is_copied(weight, compute)
        ]
        self._weights = list({weight: None for _, _, weight in self._places})
        uses = Counter(id(weight) for _, _, weight in self._places)
        self._padded = {
            weight: module.whole
            for module, _, weight in self._places
            if isinstance(module, PaddedLinear) and uses[id(weight)] == 1
        }
        self._copies: dict[nn.Parameter, nn.Parameter] = {}
        self._cast: tuple[int, ...] = ()

    @property
    def needed(self) -> bool:
        """Whether any weight has another type."""
        return bool(self._places)

    def begin(self) -> None:
        """Lets the model compute with copies, and casts the weights if they changed since the last time."""
        versions = tuple(weight._version for weight in self._weights)
        if versions != self._cast:
            if not self._copies:
                self._copies = {weight: self._copied(weight) for weight in self._weights}
            with torch.no_grad():
                parts = [_part(copy, weight) for weight, copy in self._copies.items()]
                torch._foreach_copy_(parts, self._weights)  # type: ignore[attr-defined]
            self._cast = versions
        for module, name, weight in self._places:
            module._parameters[name] = self._copies[weight]

    def end(self) -> None:
        """Makes the trained weights the model's parameters again."""
        for module, name, weight in self._places:
            module._parameters[name] = weight

    def end_after_backward(self, outputs: Iterable[Tensor | None]) -> None:
        """Calls `end` after the backward pass of these outputs, or now if they have no gradient.

        Until then, activation checkpointing may compute blocks again.
        """
        followed = [one for one in outputs if one is not None and one.requires_grad]
        for one in followed:
            one.register_hook(lambda _: Variable._execution_engine.queue_callback(self.end))  # type: ignore[attr-defined]
        if not followed:
            self.end()

    def _copied(self, weight: nn.Parameter) -> nn.Parameter:
        made = torch.empty_like(weight, dtype=self._compute)
        if weight in self._padded:
            made = self._padded[weight](made.zero_())
        copy = nn.Parameter(made, requires_grad=weight.requires_grad)
        if weight.requires_grad:

            def add(copy: Tensor) -> None:
                gradient, copy.grad = copy.grad, None
                assert gradient is not None
                gradient = _part(gradient, weight)
                if weight.grad is None:
                    weight.grad = gradient.to(weight.dtype)
                else:
                    weight.grad.add_(gradient)

            copy.register_post_accumulate_grad_hook(add)
        return copy


def _part(copy: Tensor, weight: Tensor) -> Tensor:
    """Returns the part of a copy or its gradient that is not padding."""
    return copy if copy.shape == weight.shape else copy[tuple(map(slice, weight.shape))]


def _is_copied(weight: Any, compute: torch.dtype) -> bool:
    return weight.is_floating_point() and weight.dtype != compute
