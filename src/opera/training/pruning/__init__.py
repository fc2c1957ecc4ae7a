"""Pair pruning in a sentence-transformers script of one's own: the sampler of ``opera train`` under
any trainer.
"""

from __future__ import annotations

from opera.training.pruning.pair_pruning import PairPruning

__all__ = ["PairPruning"]
