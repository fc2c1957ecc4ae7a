"""Bad command lines: unknown and missing options, and values that no option takes."""

from __future__ import annotations

from bad_inputs.table import Bad

ROWS = [
    Bad(
        "command: data that is not there",
        "evaluate absent --model model",
        "absent: no such file or folder; pass a BEIR folder (corpus.jsonl, queries.jsonl, qrels/), "
        "a FlagEmbedding .jsonl file or python:PACKAGE",
    ),
    Bad("search: an empty query", ["search", "data", " ", "--model", "model"], "query: must not be empty"),
]
