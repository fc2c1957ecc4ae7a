"""What does ``--passages 200`` gain on long documents? Whole modules of Python's standard library.

    OMP_NUM_THREADS=1 python reproduction/studies/passages.py                  # trains what is missing (half an hour)
    OMP_NUM_THREADS=1 python reproduction/studies/passages.py --model minilm --settings new --seeds 0      # (an hour)
    python reproduction/studies/passages.py --tables                           # fills docs/long-documents.md

A query is the summary of a function or class. Its document is the code of its whole module, without summaries. The
test queries are about modules that train knows (``known``), or about other modules (``new``). The model reads whole
modules (cut to what it can read), or passages of 200 tokens. Everything else is the default, but MiniLM reads 100
modules and trains 30 steps without the guard, because it takes long.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import t as student

import opera
from opera.core.figures import signed
from opera.core.rng import generator
from opera.data import Mixture, RetrievalData
from opera.data.python_source import python_sections
from opera.data.splits import ExpectedDocuments, draw_missing_splits
from study import ROOT, STATIC_MODEL, STORED, Results, fill, read_options, table_lines, train_missing

KEY = ("model", "setting", "reads", "seed")
MODELS = {"static": STATIC_MODEL, "minilm": "minilm"}
MODULES = {"static": None, "minilm": 100}
MORE: dict[str, dict[str, Any]] = {"static": {}, "minilm": {"max_steps": 30, "guard": False}}
SETTINGS: tuple[ExpectedDocuments, ...] = ("known", "new")
READS, SEEDS = {"whole": None, "passages": 200}, ("0", "1", "2")
MEASURES = ("nDCG@10", "Success@10")


def whole_modules(count: int | None) -> RetrievalData:
    """Load summaries and whole modules; ``count`` chooses some modules at random."""
    sections = [section for section in python_sections("stdlib")[0] if section.title]
    titles = pd.Series([section.title for section in sections])
    once = ~titles.duplicated(keep=False)
    modules = sorted({section.group for section in sections})
    if count is not None:
        modules = sorted(generator(0, "study.modules").permutation(modules)[:count])
    chosen = [section for section, is_once in zip(sections, once, strict=True) if is_once and section.group in modules]
    code = {
        module: "\n".join(line for section in sections if section.group == module for line in section.lines)
        for module in modules
    }
    queries = {f"{section.name}/{number}": section.title for number, section in enumerate(chosen)}
    return opera.load_data(
        pairs=pd.DataFrame({"query_id": list(queries), "doc_id": [section.group for section in chosen]}),
        queries=pd.DataFrame({"query_id": list(queries), "query": list(queries.values())}),
        documents=pd.DataFrame({"doc_id": modules, "document": list(code.values())}),
    )


def measure(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and return the measures of all models on test, with the values of each query."""
    with tempfile.TemporaryDirectory() as folder:
        trained = opera.adapt(
            whole_modules(MODULES[run["model"]]),
            model=MODELS[run["model"]],
            out=Path(folder, "run"),
            passages=READS[run["reads"]],
            expected_documents=run["setting"],
            seed=run["seed"],
            **MORE[run["model"]],
        )
        queries, facts = trained.per_query(), {"seconds": sum(trained.record.seconds.values())}
        for model, name in itertools.product(("base", "final", "bm25"), MEASURES):
            facts[f"{model} {name}"] = 100 * trained.measures[model][name]
            facts[f"{model} {name} of queries"] = queries[f"{model} {name}"].to_numpy()
        return facts | {"queries": len(queries)}


@cache
def modules_of_queries(model: str, setting: ExpectedDocuments, seed: int) -> list[int]:
    """The number of each test query's module, in the order of the stored values."""
    data = whole_modules(MODULES[model])
    drawn = draw_missing_splits(Mixture.of(data), seed=seed, needs_dev=model == "static", expected_documents=setting)
    return drawn.joined.judged_qrels("test").relevant().doc_rows.tolist()


def interval(gains: NDArray[Any], modules: Sequence[int]) -> tuple[float, float]:
    """The 95% interval of a mean gain; queries about one module count as one observation."""
    sums = pd.Series(gains - gains.mean()).groupby(list(modules)).sum().to_numpy()
    count = len(sums)
    error = np.sqrt((sums**2).sum() * count / (count - 1)) / len(gains)
    width = student.ppf(0.975, count - 1) * error
    return gains.mean() - width, gains.mean() + width


def cells(results: Results, model: str, setting: ExpectedDocuments) -> list[str]:
    """A row of the table: means over the seeds, and the gain of passages with its interval over the test queries."""
    rows = {reads: results.select(model=model, setting=setting, reads=reads) for reads in READS}
    line = [f"{model}, {setting} modules", f"{np.mean([row['bm25 nDCG@10'] for row in rows['whole']]):.1f}"]
    for which in ("base", "final"):
        line += [f"{np.mean([row[f'{which} nDCG@10'] for row in of]):.1f}" for of in rows.values()]
        gains = [
            passages[f"{which} nDCG@10 of queries"] - whole[f"{which} nDCG@10 of queries"]
            for whole, passages in zip(*rows.values(), strict=True)
        ]
        all_gains, seeds = 100 * np.concatenate(gains), [row["seed"] for row in rows["whole"]]
        modules = [module for seed in seeds for module in modules_of_queries(model, setting, seed)]
        low, high = interval(all_gains, modules)
        line.append(f"{signed(all_gains.mean())} ({signed(low)} to {signed(high)})")
    line.append(f"{len(set(modules))}")
    return line


def main() -> None:
    """Train what is missing, then make the table."""
    options = read_options(__doc__, MODELS, settings=SETTINGS, seeds=SEEDS)
    results = Results(STORED / "passages.csv", KEY)
    if not options.tables:
        train_missing(results, options, READS, measure, lambda row: (row["base nDCG@10"], row["final nDCG@10"]))
    header = [
        "model, test queries",
        "BM25",
        "base",
        "base, passages",
        "gain",
        "final",
        "final, passages",
        "gain",
        "modules",
    ]
    kinds = [
        (model, setting)
        for model, setting in itertools.product(MODELS, SETTINGS)
        if results.select(model=model, setting=setting, reads="passages")
    ]
    lines = [cells(results, *kind) for kind in kinds]
    for line in lines:
        print(*line, sep="; ")
    fill(ROOT / "docs" / "long-documents.md", {"passages": table_lines(header, lines)})


if __name__ == "__main__":
    main()
