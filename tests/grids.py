"""What the tests of grids share: planned cells, and cells that are finished without having run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from opera.config.recipe import make_recipe
from opera.experiments.grid.plan import Cell, plan_grid
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.folder import RunWriter

TRACE = pa.schema([("step", pa.int64()), ("seconds", pa.float64())])


def finished_run(cell: Cell, step: float = 0.5, around: float = 3.0, ndcg: float = 0.5, fingerprint: str = "x") -> None:
    """Make up what a finished cell leaves."""
    cell.place.mkdir(parents=True)
    writer, flat = RunWriter(cell.place), make_recipe(cell.values).flat()
    writer.write_about(
        {
            "status": "finished",
            "identity": flat,
            "settings": flat,
            "data": {"source": cell.data, "fingerprint": fingerprint},
            "model": {"source": "model"},
            "seed": cell.seed,
            "training": {"steps": cell.steps},
            "seconds": {"load": around, "train": 1e9},
        }
    )
    writer.write_measures({when: dict.fromkeys(DEFAULT_MEASURES, ndcg) for when in ("before", "after")})
    values = ndcg + np.linspace(-0.1, 0.1, 5)
    writer.write_per_query({"query_id": list("abcde"), **{f"after {name}": values for name in DEFAULT_MEASURES}})
    writer.write_pairs({"query_id": ["q"], "times_drawn": [1], "injected": [False]})
    writer.write_trace([{"step": at, "seconds": step} for at in range(cell.steps)], TRACE)


def planned(out: Path, **changes: Any) -> list[Cell]:
    given: dict[str, Any] = {"data": ["data/x"], "methods": ["ft", "dp"], "seeds": [0, 1], "steps": [10], "shared": {}}
    given |= changes
    return plan_grid(given["data"], given["methods"], given["seeds"], given["steps"], out, given["shared"])
