"""The README of an exported folder: that of the model, and what each form was measured at."""

from __future__ import annotations

from pathlib import Path

from opera.core.intervals import points
from opera.core.reading import read_text
from opera.deployment.record import MEASURE, Export, ExportedForm, verdict_sentence
from opera.runs.folder import CARD_FILE

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
    rows = [_row(form) for form in exported.forms]
    lines = [
        "## Exported by OPERA",
        "",
        f"| form | {MEASURE} | change in points (95% interval) | speed | MB | verdict |",
        "|---|---|---|---|---|---|",
        f"| as trained | {_before(exported)} | | 1.0× | {exported.megabytes:.1f} | |",
        *rows,
        "",
        _how(exported),
        "",
        *(f"- {form.form}: {verdict_sentence(form)}" for form in exported.forms),
        *(f"- {form.form}: `{USE[form.form].format(file=form.file)}`" for form in exported.forms),
    ]
    (folder / CARD_FILE).write_text(f"{text.rstrip()}\n\n" + "\n".join(lines) + "\n", encoding="utf-8")


def _row(form: ExportedForm) -> str:
    found = form.figures
    if found is None:
        return f"| {form.form} | | | | {form.megabytes:.1f} | {form.verdict} |"
    change = f"{points(found.difference)} ({points(found.low)} to {points(found.high)})"
    figures = f"{found.after:.4f} | {change} | {found.speed:.1f}× | {form.megabytes:.1f}"
    return f"| {form.form} | {figures} | {form.verdict} |"


def _before(exported: Export) -> str:
    return next((f"{form.figures.before:.4f}" for form in exported.forms if form.figures is not None), "")


def _how(exported: Export) -> str:
    if not exported.queries:
        return "Nothing was measured."
    return f"On {exported.queries:,} test queries; speed on the CPU ({exported.processor})."
