"""File formats that ``opera score`` and ``opera mine`` write. Nothing here needs torch."""

from __future__ import annotations

SCORE_FORMATS = (".parquet", ".tsv", ".jsonl")
NEGATIVES_FORMATS = (".jsonl", ".tsv")
