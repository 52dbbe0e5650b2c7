"""Continual training: learns screens and actions from failed trajectories without imitating them."""

from learning.algorithms.method import DataSource, Method
from learning.algorithms.sft import Imitation
from learning.data.sample import read_samples

METHOD = Method(
    source=DataSource.FAILURES,
    read=read_samples,
    objective=Imitation,
    section="ct",
    alone="",
    rates={"muon": 1e-3, "adamw": 1e-5},
)
