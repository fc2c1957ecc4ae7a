"""How long OPERA takes to load a table of pairs, compared with DuckDB alone.

``python benchmarks/load.py [--rows 300000] [--rounds 5] [--threads 2]`` prints the medians of both, in turns, and their
ratio. Both run in processes of their own. ``--threads`` sets DuckDB's threads; OPERA always reads with one.

DuckDB reads the same file, numbers the distinct queries and documents, and groups the pairs of their numbers. Both must
find equally many queries, documents and pairs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORDS = 60
REPEATED = 10
"""Every tenth row repeats a query, another tenth a document, so that both must be compared."""
DUCKDB = """
import json, sys, time
import duckdb
file, threads = sys.argv[1:]
start = time.perf_counter()
database = duckdb.connect(config={"threads": int(threads)})
database.read_csv(file, all_varchar=True).create("pairs")
for side in ("query", "document"):
    database.execute(
        f"CREATE TABLE {side}_texts AS SELECT {side}, row_number() OVER (ORDER BY min(rowid)) - 1 AS number "
        f"FROM pairs GROUP BY {side}"
    )
database.execute('''
    CREATE TABLE merged AS
    SELECT query_texts.number AS query, document_texts.number AS document, count(*) AS rows
    FROM pairs JOIN query_texts USING (query) JOIN document_texts USING (document)
    GROUP BY ALL ORDER BY ALL
''')
counts = [
    database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
    for name in ("query_texts", "document_texts", "merged")
]
print(json.dumps({"seconds": time.perf_counter() - start, "counts": counts}))
"""
OPERA = """
import json, os, sys, tempfile, time
import duckdb  # both start when their libraries are imported
from opera.data import load_data
with tempfile.TemporaryDirectory() as folder:
    os.environ["OPERA_CACHE"] = folder
    start = time.perf_counter()
    data = load_data(sys.argv[1])
    seconds = time.perf_counter() - start
counts = [len(data.queries), len(data.corpus), len(data.split("train").doc_rows)]
print(json.dumps({"seconds": seconds, "counts": counts}))
"""


def write_pairs(file: Path, rows: int) -> None:
    """Write a CSV file of queries of 6 words and documents of 60."""
    draw = random.Random(0)
    words = [f"word{number}" for number in range(30_000)]
    with file.open("w") as out:
        out.write("query,document\n")
        previous = ["", ""]
        for row in range(rows):
            texts = [" ".join(draw.choices(words, k=count)) for count in (6, WORDS)]
            if (column := row % REPEATED - 1) in (0, 1):
                texts[column] = previous[column]
            out.write(",".join(texts) + "\n")
            previous = texts


def run(program: str, file: Path, threads: int) -> dict[str, Any]:
    """Run a program, and return its seconds and its counts of queries, documents and pairs."""
    command = [sys.executable, "-c", program, str(file), str(threads)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(rows: int = 300_000, rounds: int = 5, threads: int = 2) -> dict[str, Any]:
    """Load a file with both, in turns.

    Returns:
        The rows, the bytes of the file, the seconds of each round by name, and the ratio of the medians.
    """
    seconds: dict[str, list[float]] = {"DuckDB": [], "OPERA": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pairs.csv")
        write_pairs(file, rows)
        for _ in range(rounds):
            results = {name: run(program, file, threads) for name, program in (("DuckDB", DUCKDB), ("OPERA", OPERA))}
            counts = [result["counts"] for result in results.values()]
            if counts[0] != counts[1]:
                raise ValueError(f"DuckDB and OPERA count different queries, documents and pairs: {counts}")
            for name, result in results.items():
                seconds[name].append(result["seconds"])
        size = file.stat().st_size
    ratio = statistics.median(seconds["OPERA"]) / statistics.median(seconds["DuckDB"])
    return {"rows": rows, "bytes": size, "threads": threads, "seconds": seconds, "ratio": ratio}


def main() -> None:
    """Print the medians of both, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    result = measure(options.rows, options.rounds, options.threads)
    print(f"{result['rows']:,} rows, {result['bytes'] / 1e6:.0f} MB, {result['threads']} threads")
    for name, values in result["seconds"].items():
        print(f"{name}: {statistics.median(values):.2f} s (from {min(values):.2f} to {max(values):.2f})")
    print(f"ratio: {result['ratio']:.2f}")


if __name__ == "__main__":
    main()
