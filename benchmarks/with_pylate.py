"""The part of multi_vector.py that runs in PyLate's own environment: index documents, search, print JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from pylate import indexes, retrieve


def texts(file: Path) -> list[np.ndarray]:
    """The vectors of each text, float32."""
    stored = np.load(file)
    return np.split(stored["vectors"].astype(np.float32), stored["offsets"][1:-1])


def main() -> None:
    """Index, search, and print the seconds of the processor, the best documents and the size."""
    folder, depth, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    queries, documents = texts(folder / "queries.npz"), texts(folder / "documents.npz")
    start = time.process_time()
    index = indexes.PLAID(index_folder=str(folder / "index"), index_name="plaid", show_progress=False, device="cpu")
    index.add_documents([str(number) for number in range(len(documents))], documents)
    build = time.process_time() - start
    retriever, seconds = retrieve.ColBERT(index=index), []
    for _ in range(rounds):
        start = time.process_time()
        found = retriever.retrieve(queries, k=depth)
        seconds.append(time.process_time() - start)
    size = sum(file.stat().st_size for file in (folder / "index").rglob("*") if file.is_file())
    best = [[int(document["id"]) for document in of_query] for of_query in found]
    result = {
        "version": version("pylate"),
        "build": build,
        "seconds": statistics.median(seconds),
        "best": best,
        "bytes": size,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
