"""What does a search cost whose index is kept? CPU seconds of whole commands, and of their parts.

    OMP_NUM_THREADS=1 python benchmarks/search_startup.py DATA MODEL

Each round starts four processes by turns: three that import torch, sentence-transformers or OPERA's search, and one
that searches with a query nobody asked before. The first search, which fills the cache, counts for nothing.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

ROUNDS = 5
IMPORTS = {
    "import torch": "import torch",
    "import sentence_transformers": "import sentence_transformers",
    "import opera's search": "import opera.retrieval.search",
}


def cpu_seconds(*arguments: str) -> float:
    """Run Python with some arguments; return the CPU time that the process took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the medians."""
    data, model = sys.argv[1:]

    def search(query: str) -> float:
        return cpu_seconds("-m", "opera", "search", data, query, "--model", model)

    search("the first")
    seconds: dict[str, list[float]] = {name: [] for name in (*IMPORTS, "opera search")}
    for number in range(ROUNDS):
        for name, code in IMPORTS.items():
            seconds[name].append(cpu_seconds("-c", code))
        seconds["opera search"].append(search(f"query {number}"))
    for name, values in seconds.items():
        print(f"{name}: {statistics.median(values):.2f} CPU seconds ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
