"""What several processes that train together tell each other; accelerate knows which one this is.

With one process, each function returns what it is given.
"""

from __future__ import annotations

import warnings

import numpy as np
from sentence_transformers.util import all_gather, all_gather_with_grad
from torch import Tensor

from opera.core.errors import TrainingError
from opera.core.processes import everywhere, process_count

# sentence-transformers calls a function that torch has renamed. The filter is set once, not around
# each call: leaving a changed set of filters makes Python show every other warning of a step anew.
warnings.filterwarnings(
    "ignore", message="torch.distributed.nn.functional.all_gather", category=FutureWarning
)


def refuse_differences(what: str, fingerprint: int) -> None:
    """Refuse to continue where processes do not hold the same.

    Raises:
        TrainingError: naming the processes that differ from the main one.
    """
    fingerprints = everywhere(lambda: fingerprint)
    different = np.flatnonzero(np.array(fingerprints) != fingerprints[0])
    if len(different):
        raise TrainingError(
            f"{what} of process {', '.join(map(str, different))} differ from those of process 0: "
            "all must read the same data and compute on devices of one kind"
        )


def gather_embeddings(embeddings: Tensor) -> Tensor:
    """Gather embeddings ``[m, dimension]`` of all processes to ``[W·m, dimension]``, in their
    order.

    The gradient flows back to the process that an embedding came from, so W processes with a batch
    of B/W each have the gradient of one process with B (erratum 10).
    """
    return all_gather_with_grad(embeddings) if process_count() > 1 else embeddings


def gather_values(values: Tensor) -> Tensor:
    """Gather values ``[m, k]`` of all processes to ``[W·m, k]``, in their order, without
    gradient."""
    return all_gather(values) if process_count() > 1 else values
