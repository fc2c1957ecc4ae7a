"""How long OPERA takes to load a table of pairs, compared with what DuckDB takes to read and group the same file.

``python benchmarks/load.py [--rows 300000] [--rounds 5]`` prints the medians of both, in turns, and their ratio. Both
run in processes of their own, on the same number of threads.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = 60
DUCKDB = """
import time, duckdb
start = time.perf_counter()
db = duckdb.connect()
db.execute("CREATE TABLE rows AS SELECT * FROM read_csv('{file}', all_varchar=true)")
for column in ("query", "document"):
    db.execute(f"SELECT count(*) FROM (SELECT min(rowid) FROM rows GROUP BY {{column}})").fetchall()
print(time.perf_counter() - start)
"""
OPERA = """
import os, tempfile, time
from opera.data import load_data
import duckdb  # both start when their libraries are imported
with tempfile.TemporaryDirectory() as folder:
    os.environ["OPERA_CACHE"] = folder
    start = time.perf_counter()
    data = load_data("{file}")
    seconds = time.perf_counter() - start
    assert len(data.corpus) == {rows}
print(seconds)
"""


def write_pairs(file: Path, rows: int) -> None:
    """Write a CSV file of queries of 6 words and documents of 60."""
    draw = random.Random(0)
    words = [f"word{number}" for number in range(30_000)]
    with file.open("w") as out:
        out.write("query,document\n")
        for _ in range(rows):
            texts = (" ".join(draw.choices(words, k=count)) for count in (6, WORDS))
            out.write(",".join(texts) + "\n")


def seconds(program: str) -> float:
    """Run a program that prints how long it took."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    """Measure both in turns, and print their medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pairs.csv")
        write_pairs(file, options.rows)
        print(f"{options.rows:,} rows, {file.stat().st_size / 1e6:.0f} MB")
        times: dict[str, list[float]] = {"DuckDB": [], "OPERA": []}
        for _ in range(options.rounds):
            for name, program in (("DuckDB", DUCKDB), ("OPERA", OPERA)):
                times[name].append(seconds(program.format(file=file, rows=options.rows)))
        medians = {name: statistics.median(values) for name, values in times.items()}
        for name, median in medians.items():
            print(f"{name}: {median:.2f} s (from {min(times[name]):.2f} to {max(times[name]):.2f})")
        print(f"ratio: {medians['OPERA'] / medians['DuckDB']:.1f}")


if __name__ == "__main__":
    main()
