"""A measure of one's own: rank-biased precision with persistence 0.8 (Moffat and Zobel, 2008)."""

import numpy as np
from numpy.typing import NDArray

from opera.retrieval.measures import OWN_MEASURES


def rank_biased_precision(gains: NDArray[np.float64], cutoff: int) -> NDArray[np.float64]:
    considered = gains[:, :cutoff]  # [queries, ranks], 1 where the document is relevant
    return 0.2 * considered @ 0.8 ** np.arange(considered.shape[1])


OWN_MEASURES["RBP80"] = rank_biased_precision
