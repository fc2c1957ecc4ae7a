"""What 21 million documents and 100 million pairs cost: bytes, hours, cards. Computes the tables of docs/scale.md.

    python studies/scale_costs.py

Every constant is here, or in benchmarks/sampler.json, so that the tables can be made again with your own.
"""

from __future__ import annotations

import json

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
MODELS = {"335M": 335e6, "0.6B": 596e6}
"""Parameters; those of the embedding table count too, so hours are slightly too many."""
CARDS = {"A100": (312e12, 19.5e12), "H100": (989e12, 67e12)}
"""Peak floating-point operations per second, dense: bf16 on tensor cores, and fp32 off them (SXM data sheets)."""
SHARES = (0.2, 0.35, 0.5)
"""Assumed share of the bf16 peak: low, middle, high. Not measured: no such card was at hand."""
SEARCH_SHARE = 0.5
"""Assumed share of the fp32 peak in products of large matrices."""
CORES = 170e9
"""Measured on this project's machine, 2 cores: fp32 products, floating-point operations per second."""
HOUR = 3600.0


def stored() -> list[tuple[str, float, str, float]]:
    """What is kept: name, count, bytes each as a formula, bytes each."""
    sampler = json.loads((ROOT / "benchmarks" / "sampler.json").read_text())["sizes"][-1]
    per_pair, per_query = sampler["bytes_per_pair"], sampler["bytes_per_query"]
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
        ("dp: scores and their order, in memory", PAIRS, "measured", per_pair),
        ("dp: queries' sums and order, in memory", QUERIES, "measured", per_query),
        ("similarity before training, in memory", PAIRS, "4", 4),
        ("mined negatives, 15 per query, in memory", QUERIES, "15·4 + 8", 15 * 4 + 8),
    ]


def size(number: float) -> str:
    """Bytes for people."""
    return f"{number / 1e9:,.1f} GB" if number >= 1e8 else f"{number / 1e6:,.0f} MB"


def bytes_table() -> str:
    """What is kept, where, and how large it is."""
    rows = [
        [name, f"{count:,}", formula if formula != "measured" else f"{each:.1f}, measured", size(count * each)]
        for name, count, formula, each in stored()
    ]
    return table_lines(["what", "count", "bytes each", "in all"], rows)


def work(parameters: float) -> dict[str, float]:
    """Floating-point operations of each phase that runs the model."""
    row = QUERY_TOKENS + (1 + NEGATIVES) * DOCUMENT_TOKENS
    return {
        "encode the documents": 2 * parameters * DOCUMENTS * DOCUMENT_TOKENS,
        "encode the queries": 2 * parameters * QUERIES * QUERY_TOKENS,
        "train on a million pairs": 6 * parameters * 1e6 * row,
        "the same, with checkpointing": 8 * parameters * 1e6 * row,
        "train once on every pair": 6 * parameters * PAIRS * row,
    }


def hours(seconds: float) -> str:
    """Hours, or minutes where they are few."""
    if seconds < HOUR:
        return f"{max(1, round(seconds / 60))} min"
    return f"{seconds / HOUR:,.0f} h" if seconds >= 10 * HOUR else f"{seconds / HOUR:.1f} h"


def model_table() -> str:
    """Hours of one card for each phase: with the middle share of its peak, and from the high to the low one."""
    low, middle, high = SHARES
    rows = []
    for model, parameters in MODELS.items():
        for phase, operations in work(parameters).items():
            cells = [
                f"{hours(operations / peak / middle)} ({hours(operations / peak / high)} to "
                f"{hours(operations / peak / low)})"
                for peak, _ in CARDS.values()
            ]
            rows.append([model, phase, f"{operations:.1e}", *cells])
    return table_lines(["model", "phase", "operations", *(f"one {card}" for card in CARDS)], rows)


def search_table() -> str:
    """Hours of exact search: products of queries and documents."""
    rows = []
    for what, queries in (("mine for all queries", QUERIES), ("measure 10,000 queries", 10_000)):
        operations = 2.0 * queries * DOCUMENTS * DIMENSION
        cells = [hours(operations / fp32 / SEARCH_SHARE) for _, fp32 in CARDS.values()]
        rows.append([what, f"{operations:.1e}", *cells, hours(operations / CORES)])
    return table_lines(["phase", "operations", *(f"one {card}" for card in CARDS), "2 cores"], rows)


def main() -> None:
    """Fill in the tables."""
    fill(ROOT / "docs" / "scale.md", {"bytes": bytes_table(), "model": model_table(), "search": search_table()})


if __name__ == "__main__":
    main()
