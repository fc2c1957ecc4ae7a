"""The README of an exported folder: that of the model, and what each form was measured at."""

from __future__ import annotations

from pathlib import Path

from opera.core.reading import read_text
from opera.deployment.record import HEADS, Export, table_rows, verdict_sentence
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
