"""The README.md in a trained model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opera.core.files import replace_file
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.guard_words import share_sentence
from opera.runs.record import RunRecord

MODEL_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, dense-retrieval, opera]
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

| test split | before | fine-tuned | handed over |
|---|---|---|---|
{rows}

{share}

{reading}

`mask_known_positives` was {masked}. All settings are in `run.json` beside this folder.

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("path/to/this/folder")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```
"""


VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

| test split | before | fine-tuned | handed over |
|---|---|---|---|
{rows}

{share}

`adapter.py` needs NumPy alone; copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # vectors of the service, [n, d]; the result has length 1
documents = adapter.documents(vectors){note}
```
"""


def write_model_card(folder: Path, record: RunRecord, measures: Mapping[str, Mapping[str, float]]) -> None:
    """Write the model's README.md: what it is, its measures before and after, how to load it.

    Args:
        folder: the model's folder.
        record: the run, with how training went.
        measures: ``before``, ``fine_tuned`` and ``after``, as in ``measures.json``.
    """
    assert record.training is not None
    from_files = record.settings["query_vectors"] is not None
    text = (VECTORS_CARD if from_files else MODEL_CARD).format(
        base=record.model.source,
        data=record.data.source,
        method=record.settings["method"],
        steps=record.training.steps,
        seed=record.seed,
        note="  # normalised only" if record.settings["adapter"] != "both" else "",
        masked=json.dumps(record.settings["mask_known_positives"]),
        reading="" if from_files else _reading(record),
        rows="\n".join(_row(name, measures) for name in DEFAULT_MEASURES),
        share=share_sentence(record.guard) if record.guard else "The weights are the fine-tuned ones.",
    )
    replace_file(folder / "README.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _reading(record: RunRecord) -> str:
    """Say how texts were read: the lengths, and the prompts."""
    settings = record.settings
    query, document = settings.get("max_query_length"), settings.get("max_passage_length")
    lengths = (
        "Training and these measures read whole texts."
        if query is None or document is None
        else f"Training and these measures read {query} tokens of a query and {document} of a document; "
        + ("so does this model." if settings.get("save_lengths") else "this model keeps its own limit.")
    )
    return f"{lengths} {_prompts(settings)}"


def _prompts(settings: Mapping[str, Any]) -> str:
    prompts = {role: settings.get(f"{role}_prompt") for role in ("query", "document")}
    plural = {"query": "queries", "document": "documents"}
    named = [f"{plural[role]} with `{json.dumps(prompt)}`" for role, prompt in prompts.items() if prompt]
    if not named:
        return "No prompt goes before a text."
    where = (
        "in mining and evaluation; training went without"
        if settings.get("prompt_phases") == "search"
        else "throughout the run"
    )
    return f"`encode_query` and `encode_document` add prompts: they begin {' and '.join(named)}, as {where}."


def _row(name: str, measures: Mapping[str, Mapping[str, float]]) -> str:
    values = " | ".join(f"{measures[when][name]:.4f}" for when in ("before", "fine_tuned", "after"))
    return f"| {name} | {values} |"
