"""The README.md inside a trained model's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opera.core.files import replace_file
from opera.retrieval.measures import DEFAULT_MEASURES

CARD = """---
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


def write_card(folder: Path, about: Mapping[str, Any], before: Mapping[str, float], after: Mapping[str, float]) -> None:
    """Write the model's README.md: what it is, its figures before and after, how to load it."""
    settings = about["settings"]
    text = CARD.format(
        base=about["model"]["source"],
        data=about["data"]["source"],
        method=settings["method"],
        steps=about["training"]["steps"],
        seed=about["seed"],
        masked=json.dumps(settings["mask_known_positives"]),
        rows="\n".join(f"| {name} | {before[name]:.4f} | {after[name]:.4f} |" for name in DEFAULT_MEASURES),
    )
    replace_file(folder / "README.md", lambda temporary: temporary.write_text(text, encoding="utf-8"))
