"""The `train.experts` section of the config: mixtures of experts."""

from typing import Annotated

from pydantic import Field

from schemas.config.section import Section


class ExpertsConfig(Section):
    """Training of a mixture of experts (Qwen3-VL-30B-A3B and the like); not for other models."""

    apart: bool = False
    """Whether each process holds whole experts, a share of every layer's, and is sent the tokens that ask them (expert
    parallelism), instead of gathering all of a layer's weights. The number of experts is a multiple of the processes',
    and `train.replicas` is 1. `flywheel plan` does not count with it."""
    balance: Annotated[float, Field(ge=0.0)] = 0.0
    """Weight of the auxiliary loss that spreads tokens over experts (Switch, arXiv 2101.03961, as `transformers`
    computes it), here the mean over documents and layers, so that it does not depend on who computes what. Qwen's
    `router_aux_loss_coef` is 0.001."""
