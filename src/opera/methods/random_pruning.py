"""Random pruning (RP): train on a random part of the pairs."""

from __future__ import annotations

from opera.core.arrays import BoolArray
from opera.core.rng import generator
from opera.methods.selection import keep_highest
from opera.methods.static import KeptPassesMethod, KeptPassesSettings


class RandomPruning(KeptPassesMethod[KeptPassesSettings]):
    """Keep ⌊k·N⌋ pairs, drawn uniformly."""

    name = "rp"
    title = "Random pruning"
    settings_class = KeptPassesSettings

    def select(self, count: int) -> BoolArray:
        """Mark random pairs."""
        return keep_highest(generator(self.plan.seed, "rp.keep").random(self.pairs.n_pairs), count)
