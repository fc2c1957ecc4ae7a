"""The README.md in a trained model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from opera.core.files import replace_file
from opera.retrieval.measures import DEFAULT_MEASURES
from opera.runs.record import RunRecord

MODEL_CARD = """---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags: [sentence-transformers, feature-extraction, dense-retrieval, opera]
---

# {base}, adapted with OPERA

`{base}` adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

| test split | before | after |
|---|---|---|
{rows}

`mask_known_positives` was {masked}. All settings are in `run.json` beside this folder.

```python
from sentence_transformers import SentenceTransformer
model = SentenceTransformer("path/to/this/folder")
scores = model.similarity(model.encode_query(["a question"]), model.encode_document(["a document"]))
```
"""


VECTORS_CARD = """# An adapter for the vectors of `{base}`, made with OPERA

Adapted to `{data}` by {method} over {steps:,} steps (seed {seed}).

| test split | before | after |
|---|---|---|
{rows}

`adapter.py` needs NumPy alone; copy it with `adapter.npz`.

```python
import adapter
queries = adapter.queries(vectors)  # vectors of the service, [n, d]; the result has length 1
documents = adapter.documents(vectors){note}
```
"""


def write_model_card(
    folder: Path, record: RunRecord, steps: int, before: Mapping[str, float], after: Mapping[str, float]
) -> None:
    """Write the model's README.md: what it is, its measures before and after, how to load it."""
    from_files = record.settings["query_vectors"] is not None
    text = (VECTORS_CARD if from_files else MODEL_CARD).format(
        base=record.model.source,
        data=record.data.source,
        method=record.settings["method"],
        steps=steps,
        seed=record.seed,
        note="  # normalised only" if record.settings["adapter"] != "both" else "",
        masked=json.dumps(record.settings["mask_known_positives"]),
        rows="\n".join(f"| {name} | {before[name]:.4f} | {after[name]:.4f} |" for name in DEFAULT_MEASURES),
    )
    replace_file(folder / "README.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))
