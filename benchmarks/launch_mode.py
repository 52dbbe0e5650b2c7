"""Count the operators that run, the bytes that they copy, and where the host waits for a device."""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_ALLOCATE = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh"}
_COPY = {"_to_copy", "clone", "copy_", "cat", "stack", "_foreach_copy_", "split_with_sizes_copy"}


class Launches(TorchDispatchMode):
    """Counts operators, also those inside custom operators.

    Args:
        device: type of the device that is counted; transfers between it and the host may be waits.
        weights: the weights whose copies are counted.
    """

    def __init__(self, device: str, weights: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self._device, self._weights = device, {_memory(weight) for weight in weights}
        self.calls, self.waits = Counter[str](), Counter[str]()
        self.casts, self.copied_bytes, self.gathered = 0, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts an operator and runs it; a number that the host reads from the meta device is 1."""
        name, given = func._schema.name.partition("::")[2], kwargs or {}
        if self._waits(name, args, given):
            self.waits[name] += 1
            if (made := _answer(name, args, given)) is not None:
                return made
        if func.namespace == "profiler":
            return func(*args, **given)
        if (kernel := self._inside(func)) is not None:
            before = self.calls.total()
            with self:
                made = kernel(*args, **given)
            self.calls[name] += self.calls.total() == before
            return made
        made = func(*args, **given)
        if name in _ALLOCATE or _is_view(func):
            return made
        self.calls[name] += 1
        if name in _COPY:
            written = args[0] if name.endswith("copy_") else made if name != "split_with_sizes_copy" else given["out"]
            self.copied_bytes += sum(one.numel() * one.element_size() for one in tree_leaves(written))
        source = args[1] if name == "copy_" else args[0] if args else None
        made_of = args[0] if name == "copy_" else made
        self.casts += name in ("copy_", "_to_copy") and isinstance(source, Tensor) and made_of.dtype != source.dtype
        if name in _COPY:
            read = args[1] if name.endswith("copy_") else args[0]
            self.gathered += sum(one.numel() for one in tree_leaves(read) if _memory(one) in self._weights)
        return made

    def _inside(self, func: Any) -> Any:
        """Finds the kernel of a custom operator, which calls other operators; None for any other operator."""
        if func.namespace in ("aten", "prim", "prims", "c10d"):
            return None
        if (made := OPDEFS.get(func._schema.name)) is not None:
            return made._abstract_fn if self._device == "meta" else made._backend_fns.get(None, made._init_fn)
        return partial(func._op_dk, torch._C.DispatchKey.Meta if self._device == "meta" else torch._C.DispatchKey.CPU)

    def _waits(self, name: str, args: Any, given: Mapping[str, Any]) -> bool:
        """Checks whether the host waits for this operator on a GPU."""
        source = args[1] if name == "copy_" else args[0] if args else None
        here = isinstance(source, Tensor) and source.device.type == self._device
        if name in ("_local_scalar_dense", "nonzero", "lift_fresh", "equal"):
            return here
        if name in ("index", "index_put", "index_put_"):  # a mask is first read as the numbers of its rows
            return here and any(one is not None and one.dtype == torch.bool for one in args[1])
        if name == "copy_":
            blocks = len(args) < 3 or not args[2]
            return blocks and isinstance(source, Tensor) and args[0].device.type != source.device.type
        if name != "_to_copy" or given.get("device") is None or given.get("non_blocking"):
            return False
        return torch.device(given["device"]).type != args[0].device.type

    def row(self) -> dict[str, Any]:
        """Returns the counts."""
        copied = round(self.copied_bytes / 1e6, 2)
        return {"calls": self.calls.total(), "casts": self.casts, "copied_mb": copied, "waits": self.waits.total()}


def _answer(name: str, args: Any, given: Mapping[str, Any]) -> Any:
    """Returns what the host reads from the meta device; None if the operator can run."""
    source = args[1] if name == "copy_" else args[0]
    if not source.is_meta or name in ("lift_fresh", "index", "index_put", "index_put_"):
        return None
    if name == "_local_scalar_dense":
        return torch.ones((), dtype=source.dtype).item()
    if name == "nonzero":
        return torch.zeros(source.numel(), source.ndim, dtype=torch.long, device="meta")
    if name == "_to_copy":
        return torch.ones(source.shape, dtype=given.get("dtype") or source.dtype)
    return args[0]


def _memory(one: Any) -> int | None:
    return one.untyped_storage()._cdata if isinstance(one, Tensor) else None


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    return bool(returns) and all(one.alias_info is not None and not one.alias_info.is_write for one in returns)
