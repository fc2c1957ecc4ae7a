"""Write charts of matplotlib to files; the same figure gives the same bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from opera.core.files import replace_file

FORMATS = (".svg", ".png", ".pdf")


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, which no window shows."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write_figure(path: Path, figure: Figure) -> None:
    """Write a figure; the suffix (``.svg``, ``.png``, ``.pdf``) decides the format.

    Raises:
        StorageError: if it cannot be written.
    """
    reproducible: dict[Any, Any] = {"svg.hashsalt": "opera", "savefig.dpi": 150}
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with matplotlib.rc_context(reproducible):
        replace_file(
            path, lambda part: figure.savefig(part, format=path.suffix[1:], metadata=metadata)
        )
