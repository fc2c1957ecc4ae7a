"""What do two processes gain by sharing the encoding of a corpus; what does measuring a trained model write to disk?

    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/processes.py
    OMP_NUM_THREADS=1 .venv/bin/python benchmarks/processes.py --disk

The first encodes a part of NFCorpus with all-MiniLM-L6-v2, alternately in one process and in two, each time into an
empty cache, and compares the bytes; it reads ``../shared``. The second ranks a corpus of made-up documents with a
static model whose embeddings are not cached, watches the folder of temporary files, and reads the peak of the memory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from opera.core.cache import cache_folder
from opera.core.processes import everywhere
from opera.data import load_data
from opera.retrieval import vectors as vector_files
from opera.retrieval.device import join_processes
from opera.retrieval.encoder import Encoder, open_encoder
from opera.retrieval.search import search_corpus

DATA, STATIC = Path("../shared/data/nfcorpus"), Path("../shared/models/potion-base-4m")
ENCODED, BATCH = 256, 2
"""Documents to encode, and texts of 128 tokens per batch."""
SHARD = 64
"""Documents of a shard: four of them to share."""
DOCUMENTS, QUERIES = 500_000, 100


def encode(out: Path) -> None:
    """Encode in this process, beside others if torchrun started it; the main one writes seconds and a checksum."""
    join_processes().wait_for_everyone()
    data, encoder = load_data(str(DATA)), open_encoder("minilm")
    data = replace(data, fingerprint=f"{data.fingerprint}/first", corpus=data.corpus.select(np.arange(ENCODED)))
    encoder.batch_size, vector_files.LEAST_ROWS = BATCH, SHARD
    encoder.encode(["warm up"], "document")
    join_processes().wait_for_everyone()
    start, busy = time.perf_counter(), time.process_time()
    vectors = encoder.encode_corpus(data)
    seconds, busiest = time.perf_counter() - start, max(everywhere(lambda: time.process_time() - busy))
    if join_processes().is_main_process:
        digest = hashlib.sha256(np.ascontiguousarray(vectors)).hexdigest()
        out.write_text(json.dumps({"seconds": seconds, "busiest": busiest, "digest": digest}))


def timed(processes: int) -> dict[str, Any]:
    """Start ``processes`` of them with an empty cache; return what the main one wrote."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["--encode", f"{folder}/out.json"]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        environment = {**os.environ, "OPERA_CACHE": f"{folder}/cache"}
        subprocess.run([sys.executable, *launcher, __file__, *command], env=environment, check=True)
        result: dict[str, Any] = json.loads(Path(folder, "out.json").read_text())
        return result


def compare(repeats: int) -> None:
    """Print the seconds of each turn, by the clock and of the processor, and the medians of the ratios."""
    ratios: dict[str, list[float]] = {"seconds": [], "busiest": []}
    digests = set()
    print("| one process, s | two, s | ratio | processor, s | busier of two, s | ratio |\n|---|---|---|---|---|---|")
    for _ in range(repeats):
        one, two = timed(1), timed(2)
        digests |= {one["digest"], two["digest"]}
        cells = []
        for name, values in ratios.items():
            values.append(one[name] / two[name])
            cells += [f"{one[name]:.1f}", f"{two[name]:.1f}", f"{values[-1]:.2f}"]
        print(f"| {' | '.join(cells)} |", flush=True)
    clock, processor = (median(values) for values in ratios.values())
    same = "yes" if len(digests) == 1 else "NO"
    print(f"median ratio {clock:.2f} by the clock, {processor:.2f} by processor time; the same bytes: {same}")


def watch_disk() -> None:
    """Rank a corpus with embeddings that are not cached; print what was written, and the memory that it took."""
    words = np.random.default_rng(0).integers(0, 5000, size=(DOCUMENTS + QUERIES, 12)).astype(str)
    texts = [" ".join(row) for row in words]
    corpus = {f"d{at}": text for at, text in enumerate(texts[:DOCUMENTS])}
    queries = {f"q{at}": text for at, text in enumerate(texts[DOCUMENTS:])}
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as place:
        os.environ["OPERA_CACHE"], tempfile.tempdir = cache, place
        data = load_data(queries=queries, documents=corpus, pairs=[("q0", "d0")])
        encoder = open_encoder(STATIC)
        encoder = Encoder(encoder.model, use_cache=False, show_progress=False)
        most, done = [0], threading.Event()

        def look() -> None:
            while not done.wait(0.01):
                most.append(sum(path.stat().st_size for path in Path(place).rglob("*") if path.is_file()))

        watcher = threading.Thread(target=look)
        watcher.start()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        search_corpus(encoder, data, np.arange(QUERIES), 100)
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        done.set()
        watcher.join()
        whole, written, memory = DOCUMENTS * encoder.dimension * 4 / 1e6, max(most) / 1e6, more / 1e3
        print(f"embeddings {whole:.0f} MB; temporary files {written:.0f} MB; {memory:.0f} MB more memory")
        assert not list((cache_folder() / "vectors").glob("*"))


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--disk", action="store_true")
    parser.add_argument("--encode", type=Path, help="for the processes that it starts")
    given = parser.parse_args()
    needed = STATIC if given.disk else DATA
    if not needed.is_dir():
        sys.exit(f"{needed} is missing: this benchmark reads it")
    if given.encode:
        encode(given.encode)
    elif given.disk:
        watch_disk()
    else:
        compare(given.repeats)


if __name__ == "__main__":
    main()
