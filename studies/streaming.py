"""How much memory reading a large published data set takes: made-up passages in DPR's own files.

    python studies/streaming.py 500000 2000000

Needs the extra ``data``. Prints a row per number of passages, each read in a process of its own: seconds, peak
anonymous memory, and the size of the Arrow file.
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


def anonymous_memory() -> int:
    """Bytes of this process that no file stands behind; memory-mapped texts are not among them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


def read() -> None:
    """Read the data set and print its row."""
    from opera.data import load_data

    peak, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            peak[0] = max(peak[0], anonymous_memory())

    watching = threading.Thread(target=watch)
    watching.start()
    started = time.monotonic()
    data = load_data("paper:triviaqa")
    seconds = time.monotonic() - started
    done.set()
    watching.join()
    (arrow,) = Path(os.environ["OPERA_CACHE"]).rglob("corpus.arrow")
    size = arrow.stat().st_size / 1e6
    print(f"| {len(data.corpus):,} | {seconds:.0f} | {peak[0] / 1e6:.0f} MB | {size:.0f} MB |")


def main() -> None:
    """Measure each number of passages in a process of its own."""
    if sys.argv[1:] == ["read"]:
        return read()
    print("| passages | seconds | anonymous memory, peak | Arrow file |\n|---|---|---|---|", flush=True)
    for passages in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            write_files(Path(folder) / "irds" / "dpr-w100", passages)
            places = {"IR_DATASETS_HOME": f"{folder}/irds", "OPERA_CACHE": f"{folder}/cache"}
            subprocess.run([sys.executable, __file__, "read"], env={**os.environ, **places}, check=True)
    return None


if __name__ == "__main__":
    main()
