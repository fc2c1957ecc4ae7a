"""``export.json`` and the README: the exported forms with their quality, speed and size."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from opera.core.figures import PRIMARY, in_points
from opera.core.files import read_text
from opera.core.terminal import counted
from opera.run_folder.folder import CARD_FILE
from opera.run_folder.summary import Change

EXPORT_FILE = "export.json"

Form = Literal["onnx", "int8", "static"]
FORMS: tuple[Form, ...] = get_args(Form)


@dataclass(frozen=True)
class Figures:
    """The figures of a form compared with the trained model.

    Attributes:
        before: mean :data:`PRIMARY` of the trained model on the test queries.
        after: mean :data:`PRIMARY` of the form on the test queries.
        difference: ``after`` minus ``before``.
        low: lower end of the difference's 95% interval over the queries.
        high: upper end of the interval.
        speed: documents per second divided by those of the trained model, both on the CPU; the
            median of several rounds.
    """

    before: float
    after: float
    difference: float
    low: float
    high: float
    speed: float


@dataclass(frozen=True)
class ExportedForm:
    """One exported form.

    Attributes:
        form: ``onnx``, ``int8`` or ``static``.
        file: the file or folder that holds it, relative to the folder of the export.
        megabytes: size of its weights.
        figures: its measurements; ``None`` if it was not measured.
    """

    form: Form
    file: str
    megabytes: float
    figures: Figures | None


@dataclass(frozen=True)
class Export:
    """An export.

    Attributes:
        folder: the folder of the export.
        model: the model as the user named it.
        data: the data set; ``None`` if nothing was measured.
        queries: number of test queries; 0 if nothing was measured.
        megabytes: size of the weights of the trained model.
        processor: kind of the processor, and the number of threads.
        forms: the exported forms.
        keyword_weights: the weight of keyword search in hybrid search that the run chose, by the
            name of the data set; empty without one.
        passages: the most tokens of a passage; ``None`` if the model reads whole documents.
        versions: versions of the libraries that affect the result.
    """

    folder: Path
    model: str
    data: str | None
    queries: int
    megabytes: float
    processor: str
    forms: tuple[ExportedForm, ...]
    keyword_weights: dict[str, float] = field(default_factory=dict)
    passages: int | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The contents of ``export.json``, which omits the folder."""
        values = {"format": 1, "measure": PRIMARY, **asdict(self)}
        return {name: value for name, value in values.items() if name != "folder"}

    def write(self, folder: Path) -> None:
        """Write ``export.json``."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n"
        (folder / EXPORT_FILE).write_text(text, encoding="utf-8")


HEADS = ("form", "file", PRIMARY, "points", "95% interval", "speed", "MB")
"""Columns of the table on the terminal and in the README."""
NOT_MEASURED = ("", "", "", "")


def table_rows(exported: Export) -> list[tuple[str, ...]]:
    """The rows under :data:`HEADS`: the trained model, then each form; blank if not measured."""
    measured = [form.figures for form in exported.forms if form.figures is not None]
    trained = (in_points(measured[0].before), "", "", "1.0×") if measured else NOT_MEASURED
    return [
        ("as trained", "", *trained, f"{exported.megabytes:.1f}"),
        *(
            (form.form, form.file, *_cells(form.figures), f"{form.megabytes:.1f}")
            for form in exported.forms
        ),
    ]


def _cells(figures: Figures | None) -> tuple[str, ...]:
    if figures is None:
        return NOT_MEASURED
    change = Change(figures.difference, figures.low, figures.high)
    return in_points(figures.after), *change.cells(), f"{figures.speed:.1f}×"


PLAIN_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
---

# {name}
"""
USE = {
    "onnx": 'SentenceTransformer(folder, backend="onnx", model_kwargs={{"file_name": "{file}"}})',
    "int8": 'SentenceTransformer(folder, backend="onnx", model_kwargs={{"file_name": "{file}"}})',
    "static": "SentenceTransformer(folder)",
}
"""Code that loads a form."""


def write_card(model: Path, name: str, folder: Path, exported: Export) -> None:
    """Write the README of an exported folder.

    Args:
        model: the folder of the trained model.
        name: its name, used if it has no README.
        folder: the exported folder.
        exported: the exported formats, with size, speed and quality.
    """
    try:
        text = read_text(model / CARD_FILE)
    except (OSError, ValueError):
        text = PLAIN_CARD.format(name=Path(name).name)
    measured = (
        f"Measured on {counted(exported.queries, 'test query')}; "
        f"speed on the CPU ({exported.processor})."
    )
    passages = [f"- documents: split into passages of at most {exported.passages} tokens"]
    lines = [
        "## Exported by OPERA",
        "",
        *(
            f"| {' | '.join(cells)} |"
            for cells in (HEADS, ["---"] * len(HEADS), *table_rows(exported))
        ),
        "",
        measured if exported.queries else "Nothing was measured.",
        "",
        *(f"- {form.form}: `{USE[form.form].format(file=form.file)}`" for form in exported.forms),
        *([] if exported.passages is None else passages),
        *(
            f"- hybrid search in {name}: weight {weight:g} for BM25"
            for name, weight in exported.keyword_weights.items()
        ),
    ]
    (folder / CARD_FILE).write_text(
        f"{text.rstrip()}\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
