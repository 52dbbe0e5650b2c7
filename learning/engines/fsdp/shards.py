"""A weight that ranks share: this rank's part of it, and all of it."""

from torch import Tensor
from torch.distributed.tensor import DTensor


def local(weight: Tensor) -> Tensor:
    """This rank's shard; the weight itself where it is not shared."""
    return weight.to_local() if isinstance(weight, DTensor) else weight


def whole(weight: Tensor) -> Tensor:
    """The weight, gathered from all ranks; all call it."""
    return weight.full_tensor() if isinstance(weight, DTensor) else weight
