"""Seconds and bytes of the index of keyword search, and queries per second.

    OMP_NUM_THREADS=1 python benchmarks/keywords.py [--sizes 10000 200000 1000000]

Documents have 60 words of 100,000, drawn by Zipf's law; queries are the first 8 words of 200 documents. Prints a table.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from opera.data import TextTable
from opera.data.texts import TEXT_SCHEMA
from opera.retrieval.keywords import KeywordIndex

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from page import table_lines

WORDS, LENGTH, QUERIES, QUERY_LENGTH, DEPTH = 100_000, 60, 200, 8, 100


def corpus_of(size: int) -> TextTable:
    """Draw documents."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number:x}z" for number in range(WORDS)])
    chances = 1 / np.arange(1, WORDS + 1)
    drawn = words[rng.choice(WORDS, (size, LENGTH), p=chances / chances.sum())]
    texts = [" ".join(document) for document in drawn]
    ids = [f"{number:07d}" for number in range(size)]
    return TextTable(pa.table({"id": ids, "title": [""] * size, "text": texts}, schema=TEXT_SCHEMA))


def main() -> None:
    """Index corpora of each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 200_000, 1_000_000])
    lines = []
    for size in parser.parse_args().sizes:
        corpus, started = corpus_of(size), time.perf_counter()
        index = KeywordIndex.build(corpus, "title_text")
        seconds = time.perf_counter() - started
        with tempfile.TemporaryDirectory() as folder:
            index.save(Path(folder, "index"))
            written = sum(file.stat().st_size for file in Path(folder, "index").iterdir())
        queries = [text[: len(" ".join(text.split()[:QUERY_LENGTH]))] for text in corpus.texts(np.arange(QUERIES))]
        started = time.perf_counter()
        index.search(queries, DEPTH)
        rate = QUERIES / (time.perf_counter() - started)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        lines.append([f"{size:,}", f"{seconds:.1f}", f"{written / 1e6:.0f} MB", f"{rate:.0f}", f"{peak:.1f} GiB"])
    heads = ["documents", "seconds to index", "on disk", "queries per second", "peak memory, with the texts"]
    print(table_lines(heads, lines))


if __name__ == "__main__":
    main()
