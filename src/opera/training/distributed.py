"""Communication between the processes of a training.

With one process, the functions return their input.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers.util import all_gather, all_gather_with_grad
from torch import Tensor

from opera.core.errors import TrainingError
from opera.core.processes import everywhere, process_count

# sentence-transformers calls a function that torch has renamed. A filter around each call would
# reset Python's record of shown warnings, so that other warnings would appear at every step.
warnings.filterwarnings(
    "ignore", message="torch.distributed.nn.functional.all_gather", category=FutureWarning
)


def refuse_differences(content: str, arrays: Iterable[NDArray[Any]]) -> None:
    """Stop if the processes hold different arrays; ``content`` names them in the error.

    Raises:
        TrainingError: naming the processes that differ from process 0.
    """
    checksums = everywhere(lambda: [zlib.crc32(array.tobytes()) for array in arrays])
    different = [str(index) for index, sums in enumerate(checksums) if sums != checksums[0]]
    if different:
        raise TrainingError(
            f"{content} of process {', '.join(different)} differ from those of process 0; let all "
            "processes read the same data, and compute on devices of one kind"
        )


def gather_embeddings(embeddings: Tensor) -> Tensor:
    """Gather embeddings ``[m, dimension]`` of all processes to ``[W·m, dimension]``, in rank order.

    Gradients flow back to the process that computed the embedding. So W processes with B/W pairs
    each have the gradient of one process with B pairs (erratum 10).
    """
    return all_gather_with_grad(embeddings) if process_count() > 1 else embeddings


def gather_values(values: Tensor) -> Tensor:
    """Gather values ``[m, k]`` of all processes to ``[W·m, k]``, without gradients."""
    return all_gather(values) if process_count() > 1 else values


def gather_columns(*columns: Tensor) -> NDArray[np.float32]:
    """Gather columns ``[m]`` of all processes: float32 ``[columns, W·m]``, without gradients."""
    values = torch.stack([column.float() for column in columns], dim=1)
    return np.asarray(gather_values(values).cpu().numpy().T)
