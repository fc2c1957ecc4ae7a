"""Measure what a user loses without each cache, in seconds of the processor.

    OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python benchmarks/caches.py nfcorpus scifact
    OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false python benchmarks/caches.py 100000

The script trains a static model with an empty cache: on data sets in ``../shared/data``, or on made-up documents of the
given number. The script measures the time of writing each cache entry, without the entries that the writing needs, and
counts how often the run reads the entry. A second run with the same data and base model reads each entry once more. For
every tenth read of stored tokens, the script also tokenises the texts again, and subtracts that time from the run.

All figures are ``time.process_time``, so other work on the machine hardly counts.
"""

from __future__ import annotations

import opera  # (before torch, which reads how threads are to wait when it is loaded)

# isort: split

import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

from opera.core import processes
from opera.data import store
from opera.encoder import _token_source as token_source

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from page import ROOT, need, table_lines
from scale import Size, write_data

DATA = "../shared/data"
SAMPLED = 10
"""One in so many reads is compared with tokenising."""
LARGE_RUN = {"method": "dp", "negatives": "hard", "max_steps": 100, "batch_size": 256}
MODEL = ROOT / "../shared/models/potion-base-4m"


class Meter:
    """Times of the cache, by kind of entry."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], float] = {}
        self.reads: defaultdict[tuple[str, str], int] = defaultdict(int)
        self.in_store = self.in_tokenizer = self.nested = 0.0
        self.texts = self.sampled_texts = self.calls = 0

    def cached(self, kind: str, key: str, write: Callable[..., Any], *names: Any) -> Path:
        """Return the folder of an entry, and measure its writing."""
        self.reads[kind, key] += 1

        def timed(*arguments: Any) -> None:
            outer, self.nested, start = self.nested, 0.0, process_time()
            write(*arguments)
            seconds = process_time() - start
            self.written[kind, key] = seconds - self.nested
            self.nested = outer + seconds

        return CACHED(kind, key, timed, *names)

    def rows(self, tokens: token_source.TokenStore, rows: np.ndarray) -> list[token_source.TokenIds]:
        """Read stored tokens, and tokenise the texts again to compare."""
        start = process_time()
        stored = ROWS(tokens, rows)
        read = process_time()
        self.in_store += read - start
        self.texts += len(stored)
        self.calls += 1
        if self.calls % SAMPLED == 0:
            tokens.source.tokenise(rows)
            seconds = process_time() - read
            self.in_tokenizer += seconds
            self.sampled_texts += len(stored)
            self.nested += seconds
        return stored

    def install(self) -> None:
        """Measure the cache of this process."""
        processes.cached = store.cached = self.cached
        token_source.TokenStore.rows = lambda tokens, rows: self.rows(tokens, rows)
        token_source.TokenSource.store = with_source


def with_source(source: token_source.TokenSource, *arguments: Any) -> token_source.TokenStore:
    """Open stored tokens, and remember where their texts are."""
    tokens = STORE(source, *arguments)
    tokens.source = source
    return tokens


CACHED, ROWS, STORE = processes.cached, token_source.TokenStore.rows, token_source.TokenSource.store


def measure(title: str, load: Callable[[], Any], home: Path, **settings: Any) -> list[list[str]]:
    """Load and train once with an empty cache; return rows of the table."""
    os.environ["OPERA_CACHE"] = str(home / "cache")
    meter = Meter()
    meter.install()
    start = process_time()
    opera.adapt(load(), model=str(MODEL), out=home / "run", **settings)
    total = process_time() - start - meter.in_tokenizer
    rows = []
    for kind in ("data", "tokens", "vectors", "rankings"):
        entries = [key for key in meter.written if key[0] == kind]
        once = sum(meter.written[key] for key in entries)
        again = sum(meter.written[key] * (meter.reads[key] - 1) for key in entries)
        if kind == "tokens":
            tokenising = meter.in_tokenizer * meter.texts / max(1, meter.sampled_texts)
            again = tokenising - meter.in_store - once
        first, second = again, again + once
        rows.append([title, kind, f"{len(entries)}", f"{sum(meter.reads[key] for key in entries)}"])
        rows[-1] += [f"{first:.1f} s ({first / total:.1%})", f"{second:.1f} s ({second / total:.1%})", f"{total:.0f} s"]
    print(f"{title}: {meter.texts:,} texts read from stored tokens", flush=True)
    return rows


def load_tables(home: Path) -> Any:
    """Load the made-up tables."""
    pairs = {split: home / f"{split}.parquet" for split in ("train", "dev", "test")}
    return opera.load_data(pairs=pairs, documents=home / "documents.parquet", queries=home / "queries.parquet")


def main() -> None:
    """Measure, and print the rows of the table."""
    print(table_lines(["data", "cache", "entries", "reads", "lost in a first run", "lost in a second run", "run"], []))
    need(DATA)
    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            if name.isdecimal():
                documents = int(name)
                write_data(home, Size(documents, documents))
                rows = measure(f"{documents:,} documents", partial(load_tables, home), home, **LARGE_RUN)
            else:
                rows = measure(name, partial(opera.load_data, ROOT / DATA / name), home)
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
