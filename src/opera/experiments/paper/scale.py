"""How large a reproduction is: the paper's own size, or a small one that takes the same way in minutes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from opera.core.errors import SettingError, nearest
from opera.retrieval.locate import MINILM

FEWEST_STEPS, MOST_STEPS, PER_DOUBLING, DOUBLED_FROM = 20, 50, 4, 500


@dataclass(frozen=True)
class Scale:
    """The size of a reproduction.

    Attributes:
        name: its name on the command line.
        model: the model in place of the table's; ``None`` for the table's.
        seeds: seeds of each row.
        settings: settings in place of the preset's.
        model_settings: more of them, for its own model alone.
        most_documents: the largest corpus that is taken without being asked for by name; ``None`` for any.
    """

    name: str
    model: str | None = None
    seeds: tuple[int, ...] = (0, 1, 2)
    settings: Mapping[str, Any] = field(default_factory=dict)
    model_settings: Mapping[str, Any] = field(default_factory=dict)
    most_documents: int | None = None

    @property
    def small(self) -> bool:
        """Whether the rows differ from the paper's in their steps."""
        return self.model is not None

    def steps(self, paper: int) -> int:
        """Turn the paper's number of steps into ours; small ones grow with its logarithm, so that rows stay apart."""
        if not self.small:
            return paper
        doublings = math.log2(max(paper, DOUBLED_FROM) / DOUBLED_FROM)
        return min(MOST_STEPS, FEWEST_STEPS + round(PER_DOUBLING * doublings))


SCALES = {
    scale.name: scale
    for scale in (
        Scale("full"),
        Scale(
            "small",
            MINILM,
            (0,),
            {"global_batch_size": 16},
            {"max_query_length": 64, "max_passage_length": 128},
            100_000,
        ),
    )
}


def find_scale(name: str) -> Scale:
    """Return the scale of this name.

    Raises:
        SettingError: if there is none.
    """
    if name not in SCALES:
        raise SettingError(f"--scale {name}: must be {' or '.join(SCALES)}{nearest(name, SCALES)}")
    return SCALES[name]
