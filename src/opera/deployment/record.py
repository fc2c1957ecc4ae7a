"""``export.json`` and the README: what was exported, and what that changed in quality, speed and
size.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from opera.config.trainer import PRIMARY
from opera.core.intervals import points
from opera.core.reading import read_text
from opera.runs.folder import CARD_FILE

EXPORT_FILE = "export.json"
FORMAT = 1
NEGLIGIBLE = 0.0005
"""An interval within so little of zero, less than a tenth of a point, is rounding: the model is the
same.
"""

Form = Literal["onnx", "int8", "static"]
FORMS: tuple[Form, ...] = get_args(Form)
Verdict = Literal["same", "better", "worse", "not distinguishable", "not measured"]


@dataclass(frozen=True)
class Figures:
    """What a form was measured at, beside the model that it was made of.

    Attributes:
        before: mean of :data:`PRIMARY` on the test queries, of the model as trained.
        after: the same of the form.
        difference: ``after`` minus ``before``.
        low: lower end of the difference's 95% interval over the queries.
        high: upper end of the interval.
        speed: documents per second beside those of the model as trained, both on the CPU; the
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
        megabytes: of its weights.
        figures: what it was measured at; ``None`` where nothing was measured.
    """

    form: Form
    file: str
    megabytes: float
    figures: Figures | None

    @property
    def verdict(self) -> Verdict:
        """Whether quality changed, as far as the test queries can tell."""
        if self.figures is None:
            return "not measured"
        if max(abs(self.figures.low), abs(self.figures.high)) < NEGLIGIBLE:
            return "same"
        if self.figures.low > 0:
            return "better"
        return "worse" if self.figures.high < 0 else "not distinguishable"


@dataclass(frozen=True)
class Export:
    """An export.

    Attributes:
        folder: where it was written.
        model: what the user called the model.
        data: what the data set is called; ``None`` where nothing was measured.
        queries: how many test queries it was measured on.
        megabytes: of the weights of the model as trained.
        processor: kind of the processor, and the threads it was timed with.
        forms: what was exported.
        versions: of the libraries that decide the result.
    """

    folder: Path
    model: str
    data: str | None
    queries: int
    megabytes: float
    processor: str
    forms: tuple[ExportedForm, ...]
    versions: dict[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """What ``export.json`` holds; the folder is where the file stands."""
        forms = [{**asdict(form), "verdict": form.verdict} for form in self.forms]
        values = {"format": FORMAT, "measure": PRIMARY, **asdict(self), "forms": forms}
        return {name: value for name, value in values.items() if name != "folder"}

    def write(self, folder: Path) -> None:
        """Write ``export.json``."""
        text = json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n"
        (folder / EXPORT_FILE).write_text(text, encoding="utf-8")


def verdict_sentence(form: ExportedForm) -> str:
    """Say plainly what a form changed: ``worse: nDCG@10 −1.2 points (95% interval −1.9 to
    −0.5)``.
    """
    if form.figures is None:
        return "not measured"
    difference = f"{PRIMARY} {points(form.figures.difference)} points"
    interval = f"95% interval {points(form.figures.low)} to {points(form.figures.high)}"
    sentence = f"{form.verdict}: {difference} ({interval})"
    if form.verdict == "not distinguishable":
        sentence += f"; a loss of up to {points(-form.figures.low)[1:]} points is possible"
    return sentence


HEADS = ("form", "file", PRIMARY, "points", "95% interval", "speed", "MB")
"""Columns of the table of an export, on the terminal and in its README."""


def table_rows(exported: Export) -> list[tuple[str, ...]]:
    """Write the model as trained and each form as rows under :data:`HEADS`, blank where nothing was
    measured.
    """

    def row(name: str, file: str, size: float, figures: tuple[str, ...]) -> tuple[str, ...]:
        return (name, file, *(figures or ("",) * 4), f"{size:.1f}")

    measured = [form.figures for form in exported.forms if form.figures is not None]
    before = tuple(f"{figures.before:.4f}" for figures in measured[:1])
    rows = [row("as trained", "", exported.megabytes, before and (*before, "", "", "1.0×"))]
    return rows + [
        row(form.form, form.file, form.megabytes, _cells(form)) for form in exported.forms
    ]


def _cells(form: ExportedForm) -> tuple[str, ...]:
    if (figures := form.figures) is None:
        return ()
    interval = f"{points(figures.low)} to {points(figures.high)}"
    return f"{figures.after:.4f}", points(figures.difference), interval, f"{figures.speed:.1f}×"


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
"""How each form is loaded."""


def write_card(model: Path, name: str, folder: Path, exported: Export) -> None:
    """Write the README of an exported folder.

    Args:
        model: the folder of the model that was exported.
        name: what to call it where it has no README.
        folder: the exported folder.
        exported: what was measured.
    """
    try:
        text = read_text(model / CARD_FILE)
    except (OSError, ValueError):
        text = PLAIN_CARD.format(name=Path(name).name)
    how = f"On {exported.queries:,} test queries; speed on the CPU ({exported.processor})."
    lines = [
        "## Exported by OPERA",
        "",
        *(
            f"| {' | '.join(cells)} |"
            for cells in (HEADS, ["---"] * len(HEADS), *table_rows(exported))
        ),
        "",
        how if exported.queries else "Nothing was measured.",
        "",
        *(f"- {form.form}: {verdict_sentence(form)}" for form in exported.forms),
        *(f"- {form.form}: `{USE[form.form].format(file=form.file)}`" for form in exported.forms),
    ]
    (folder / CARD_FILE).write_text(
        f"{text.rstrip()}\n\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
