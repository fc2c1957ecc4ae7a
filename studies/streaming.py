"""How much memory reading large data takes: made-up passages in DPR's own files, and tables of pairs.

    python studies/streaming.py 500000 2000000
    python studies/streaming.py tables 10000000

The first needs the extra ``data``. Prints a row per number of passages, or pairs, each read in a process of its own:
seconds, peak anonymous memory, and the size of the Arrow file. Tables are a CSV file of pairs of ids, with clicks, over
a Parquet file of documents and a CSV file of queries, a tenth as many of each; and one of pairs of the same texts.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

QUERIES = {"train": 7000, "dev": 800}
JUDGED = 100
CHUNK = 100_000


def write_files(home: Path, passages: int) -> None:
    """Write passages of 20 words and judgements of random ones, as DPR's files hold them."""
    rng = np.random.default_rng(0)
    texts = [" ".join(f"word{word}" for word in rng.integers(5000, size=20)) for _ in range(1000)]
    home.mkdir(parents=True)
    with gzip.open(home / "docs.tsv.gz", "wt", compresslevel=1) as file:
        file.write("id\ttext\ttitle\n")
        file.writelines(f"{row}\t{texts[row % 1000]} {row}\tTitle {row // 10}\n" for row in range(1, passages + 1))
    for split, count in QUERIES.items():
        records = []
        for query in range(count):
            ids = rng.integers(1, passages + 1, size=JUDGED)
            contexts = [{"psg_id": str(row), "title": "", "text": "", "score": 1} for row in ids]
            texts_of = {"question": f"{split} {query}?", "answers": ["this"]}
            judged = {"positive_ctxs": contexts[:10], "hard_negative_ctxs": contexts[10:], "negative_ctxs": []}
            records.append(texts_of | judged)
        with gzip.open(home / f"tqa-{split}.json.gz", "wt", compresslevel=1) as file:
            json.dump(records, file)


def write_tables(home: Path, pairs: int) -> None:
    """Write a CSV file of pairs of ids, and one of texts, over a tenth as many documents and queries."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, texts = np.random.default_rng(0), pairs // 10
    words = [" ".join(f"word{word}" for word in rng.integers(5000, size=20)) for _ in range(1000)]
    documents = [f"{words[row % 1000]} {row}" for row in range(texts)]
    pq.write_table(
        pa.table({"doc_id": [f"doc{row}" for row in range(texts)], "body": documents}), home / "docs.parquet"
    )
    with (home / "queries.csv").open("w") as file:
        file.write("qid,query\n")
        file.writelines(f"{row},what is {row}?\n" for row in range(texts))
    with (home / "ids.csv").open("w") as named, (home / "texts.csv").open("w") as plain:
        named.write("qid,doc_id,clicks\n")
        plain.write("question,answer\n")
        for _ in range(0, pairs, CHUNK):
            drawn = rng.integers(texts, size=(min(CHUNK, pairs), 2)).tolist()
            named.writelines(f"{query},doc{doc},{query % 7 + 1}\n" for query, doc in drawn)
            plain.writelines(f"what is {query}?,{documents[doc]}\n" for query, doc in drawn)


def anonymous_memory() -> int:
    """Bytes of this process that no file stands behind; memory-mapped texts are not among them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def read(what: str) -> None:
    """Read the data set and print its row."""
    from opera.data import load_data

    home = Path(os.environ["HOME_OF_TABLES"])
    tables = {"pairs": home / "ids.csv", "documents": home / "docs.parquet", "queries": home / "queries.csv"}
    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_memory())

    watching = threading.Thread(target=watch)
    watching.start()
    started = time.monotonic()
    data = load_data("paper:triviaqa") if what == "passages" else load_data(**tables) if what == "ids" else None
    data = data or load_data(home / "texts.csv")
    seconds = time.monotonic() - started
    done.set()
    watching.join()
    (arrow,) = Path(os.environ["OPERA_CACHE"]).rglob("corpus.arrow")
    size = arrow.stat().st_size / 1e6
    count = len(data.corpus) if what == "passages" else f"{len(data.split('train').doc_rows):,} of {what}"
    print(f"| {count} | {seconds:.0f} | {peak[0] / 1e6:.0f} MB | {size:.0f} MB |")


def main() -> None:
    """Measure each number of passages or pairs in a process of its own."""
    if sys.argv[1] == "read":
        return read(sys.argv[2])
    tables = sys.argv[1] == "tables"
    print(f"| {'pairs' if tables else 'passages'} | seconds | anonymous memory, peak | Arrow file |\n|---|---|---|---|")
    for count in map(int, sys.argv[1 + tables :]):
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            if tables:
                write_tables(home, count)
            else:
                write_files(home / "irds" / "dpr-w100", count)
            for what in ("ids", "texts") if tables else ("passages",):
                places = {
                    "IR_DATASETS_HOME": f"{folder}/irds",
                    "OPERA_CACHE": f"{folder}/{what}",
                    "HOME_OF_TABLES": folder,
                }
                subprocess.run([sys.executable, __file__, "read", what], env={**os.environ, **places}, check=True)
    return None


if __name__ == "__main__":
    main()
