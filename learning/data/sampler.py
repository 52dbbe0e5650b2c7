"""Computes the sampling order as sample id = f(seed, epoch, position), without any state.

An epoch of N positions is one systematic draw from the weights. Position p gets the sample whose interval of the
cumulated weights contains (perm(p) + u) / N. So each sample occurs N times its share, rounded up or down. A caller can
draw all positions in advance (`Sampler.first`) and leave out samples that never occur (`FixedOrder`).
"""

from collections.abc import Sequence

import numpy as np
from typing_extensions import override


class Sampler:
    """Draws sample ids by weight.

    Raises:
        ValueError: no weight is above 0, or a weight is negative or no number.
    """

    def __init__(self, weights: Sequence[float] | np.ndarray, seed: int) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if not len(shares) or not np.isfinite(shares).all() or shares.min() < 0 or shares.sum() <= 0:
            raise ValueError("sample weights must be finite, not negative, and not all 0")
        self._size = len(shares)
        self._edges = np.cumsum(shares / shares.sum())
        self._seed = seed
        self._epoch = -1
        self._order = np.empty(0, dtype=np.int64)

    def __len__(self) -> int:
        return self._size

    def sample(self, position: int) -> int:
        """Returns the sample id at a position in [0, inf)."""
        epoch, place = divmod(position, len(self))
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._draw(epoch)
        return int(self._order[place])

    def first(self, count: int) -> np.ndarray:
        """Returns the sample ids at the positions [0, count)."""
        epochs = [self._draw(epoch) for epoch in range(-(-count // len(self)))]
        return np.concatenate([np.empty(0, dtype=np.int64), *epochs])[:count]

    def _draw(self, epoch: int) -> np.ndarray:
        rng = np.random.default_rng((self._seed, epoch))
        points = (rng.permutation(len(self)) + rng.random()) / len(self)
        return np.minimum(np.searchsorted(self._edges, points, side="right"), len(self) - 1)


class FixedOrder(Sampler):
    """Sample ids that were drawn in advance; after the last position, the order repeats.

    Args:
        order: (n,) the sample id at each position.
    """

    def __init__(self, order: np.ndarray) -> None:
        self._size, self._epoch, self._order = len(order), 0, order

    @override
    def _draw(self, epoch: int) -> np.ndarray:
        return self._order


def by_sample(order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inverts an order: increasing ids that occur (m,); the begin of each id's positions (m + 1,); all positions (n,).

    The positions are listed id by id.
    """
    positions = np.argsort(order, kind="stable")
    ids, starts = np.unique(order[positions], return_index=True)
    return ids, np.append(starts, len(order)), positions
