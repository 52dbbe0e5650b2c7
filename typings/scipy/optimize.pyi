"""The solvers that are used."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

class Bounds:
    def __init__(self, lb: npt.ArrayLike, ub: npt.ArrayLike) -> None: ...

class LinearConstraint:
    def __init__(self, A: npt.ArrayLike, lb: npt.ArrayLike, ub: npt.ArrayLike) -> None: ...

class OptimizeResult:
    x: Floats | None
    status: int

def milp(
    c: npt.ArrayLike,
    *,
    integrality: npt.ArrayLike,
    bounds: Bounds,
    constraints: LinearConstraint,
    options: Mapping[str, float],
) -> OptimizeResult: ...
def linear_sum_assignment(cost_matrix: npt.ArrayLike) -> tuple[Ints, Ints]: ...
def nnls(A: npt.ArrayLike, b: npt.ArrayLike) -> tuple[Floats, float]: ...
