"""How long OPERA takes to load a table of pairs, compared with DuckDB alone.

Each runs in a separate process. OPERA always reads with one thread.

DuckDB reads the same file, numbers the distinct queries and documents, and groups the pairs of their numbers. Both must
find equally many queries, documents and pairs.
"""

from __future__ import annotations

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


def measure(rows: int, rounds: int, threads: int = 2) -> dict[str, float]:
    """Let both load the same file, in turns; DuckDB uses ``threads`` threads.

    Returns:
        The medians of their seconds, and of the ratios of the rounds.
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
    ratios = [opera / duckdb for opera, duckdb in zip(seconds["OPERA"], seconds["DuckDB"], strict=True)]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {**medians, "ratio": statistics.median(ratios)}
