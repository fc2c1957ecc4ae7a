"""What 21 million documents and 100 million pairs cost: bytes. Computes a table of docs/scale.md.

    python studies/scale_costs.py

Every constant is here, so that the table can be made again with your own.
"""

from __future__ import annotations

from page import ROOT, fill, table_lines

DOCUMENTS, PAIRS, QUERIES = 21_015_324, 100_000_000, 1_000_000
"""TriviaQA's passages; the pairs and queries of a large log of clicks."""
TEXT, TITLE_AND_ID = 600, 30
"""Bytes per document: 100 words of six letters with their space; a title and an id."""
OFFSETS = 3 * 4
"""Bytes per document of Arrow's offsets: id, title, text."""
TOKEN_BYTES = {"335M": 2, "0.6B": 4}
"""Bytes per token id: 2 up to 65,536 tokens in the vocabulary (BERT's 30,522), 4 beyond (Qwen's 151,669)."""
DOCUMENT_TOKENS, QUERY_TOKENS, NEGATIVES, DIMENSION = 140, 20, 1, 1024


def stored() -> list[tuple[str, float, str, float]]:
    """What is kept: name, count, bytes each as a formula, bytes each."""
    dimension = f"{DIMENSION:,}"
    return [
        ("texts, on disk", DOCUMENTS, f"{TEXT} + {TITLE_AND_ID} + {OFFSETS}", TEXT + TITLE_AND_ID + OFFSETS),
        *(
            (
                f"token ids of the {model} model, on disk",
                DOCUMENTS,
                f"{each}·{DOCUMENT_TOKENS} + 8",
                each * DOCUMENT_TOKENS + 8,
            )
            for model, each in TOKEN_BYTES.items()
        ),
        ("embeddings in fp32, on disk", DOCUMENTS, f"4·{dimension}", 4 * DIMENSION),
        ("embeddings in fp16, on disk", DOCUMENTS, f"2·{dimension}", 2 * DIMENSION),
        ("order of ids, in memory while searching", DOCUMENTS, "4", 4),
        ("qrels, on disk and in memory", PAIRS, "4 + 4", 8),
        ("training pairs, in memory", PAIRS, "4 + 4", 8),
        ("known positives, in memory", PAIRS, "8", 8),
        ("dp: similarity and loss of each pair, in memory", PAIRS, "4 + 4", 8),
        ("similarity before training, in memory", PAIRS, "4", 4),
        ("mined negatives, 15 per query, in memory", QUERIES, "15·4 + 8", 15 * 4 + 8),
    ]


def size(number: float) -> str:
    """Bytes for people."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:,.0f} MB"


def bytes_table() -> str:
    """What is kept, where, and how large it is."""
    rows = [[name, f"{count:,}", formula, size(count * each)] for name, count, formula, each in stored()]
    return table_lines(["what", "count", "bytes each", "in all"], rows)


def main() -> None:
    """Fill in the table."""
    fill(ROOT / "docs" / "scale.md", {"bytes": bytes_table()})


if __name__ == "__main__":
    main()
