"""The results of transformer.py, and their tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opera.core.figures import signed
from opera.experiments.significance import QueryValues, corrected_tests, differences
from study import OverSettings, Results, Row, table_lines

MEASURES = ("nDCG@10", "retrieved_ideal_nDCG@10", "R@20")
SETS = ("nfcorpus", "scifact", "entailmentbank", "toollens")
NAMES = dict(zip(SETS, ("NFCorpus", "SciFact", "EntailmentBank", "ToolLens"), strict=True))
MAIN = ("ft", "dp", "denoise", "infobatch")
PAGE = {
    "slow, as in the paper": "The paper's regime",
    "`ft`'s best learning rate on dev": "Temperature .05, ft's best rate on dev",
    "OPERA's defaults": "All defaults, with the guard",
    "30% wrong labels, `ft`'s best learning rate": "30% wrong labels, temperature .05, ft's best rate on dev",
}
"""What the table of docs/benchmarks.md shows, by its headings there."""
KEY = ("set", "method", "temperature", "lr", "steps", "seed", "regime", "step")
PAPER = {"temperature": 0.02, "lr": 2e-5, "steps": 150}
LONG = 600
"""Runs of so many steps are also measured at every tenth of training."""
LONG_TEXTS = "512 tokens"


def base_regime(regime: str) -> str:
    """The regime in which the base model of a run is measured: what it scores depends on the length of texts."""
    if regime.startswith("defaults"):
        return "defaults"
    return regime if regime == LONG_TEXTS else "plain"


class TransformerResults(Results):
    """Every measured model, with the values of its test queries."""

    def __init__(self, path: Path, origin: Mapping[str, str]) -> None:
        super().__init__(path, KEY)
        self.origin = origin

    def has_finished(self, run: Mapping[str, Any]) -> bool:
        """Whether a run is finished."""
        return self.has({**run, "step": run["steps"]})

    def means(self, run: Mapping[str, Any]) -> list[float]:
        """The measures of a finished run on test, in points."""
        row = self.of({**run, "step": run["steps"]})
        return [row[f"test {measure}"] for measure in MEASURES]

    def add_measured(self, run: Mapping[str, Any], values: Mapping[str, NDArray[Any]], step: int, **facts: Any) -> None:
        """Keep what was measured at a step of a run."""
        means = {name: round(100 * float(queries.mean()), 2) for name, queries in values.items()}
        queries = {measure: values[f"test {measure}"] for measure in MEASURES}
        self.add({**run, "step": step}, **means, **facts, **self.origin, **queries)

    def finished(self, **fields: Any) -> list[Row]:
        """The rows with these values at the end of training, or at the given step."""
        return [row for row in self.select(**fields) if "step" in fields or row["step"] == row["steps"]]

    def best_rate(self, name: str, temperature: float) -> float:
        """The learning rate at which ft is best on dev; the paper's while no run is finished."""
        runs = self.finished(set=name, temperature=temperature, method="ft", regime="plain", seed=0, steps=150)
        return float(max(runs, key=lambda row: row["dev nDCG@10"])["lr"]) if runs else 2e-5

    def by_method(self, measure: str, **fields: Any) -> Mapping[str, QueryValues]:
        """The test queries of each method, by seed and number of the query."""
        methods: dict[str, dict[tuple[int, str], float]] = {}
        for row in self.finished(**fields):
            values = {(row["seed"], str(number)): value for number, value in enumerate(row[measure])}
            methods.setdefault(row["method"], {}).update(values)
        return methods


Columns = Mapping[str, Mapping[str, Any]]
"""What to select for each column of a table, by its heading."""


def print_tables(results: TransformerResults) -> None:
    """Print every table that something is finished for."""
    print("ft by learning rate and temperature, nDCG@10 on dev / test, one seed\n")
    print(rates_table(results))
    print("The cut of NFCorpus keeps the other positives as known ones, unless it says 'unknown'.\n")
    for title, columns in all_columns(results).items():
        for measure in MEASURES:
            table = methods_table(results, columns, measure)
            if table:
                print(f"{title}: {measure}\n\n{table}")
    print("What training did at the paper's regime, seed 0\n")
    print(facts_table(results))
    for regime in ("plain", LONG_TEXTS):
        for name in SETS:
            for temperature in (0.02, 0.05):
                table = lengths_table(results, name, temperature, regime)
                if table:
                    print(f"600 steps, {regime}, {name}, temperature {temperature}: nDCG@10 by step\n\n{table}")


def all_columns(results: TransformerResults) -> dict[str, Columns]:
    """The tables of methods by title."""

    def sets(regime: str, **fields: Any) -> Columns:
        return {name: {"set": name, "regime": regime, **fields} for name in SETS}

    def best(regime: str, temperature: float, steps: int = 150) -> Columns:
        columns = sets(regime, temperature=temperature, steps=steps)
        return {name: {**of, "lr": results.best_rate(name, temperature)} for name, of in columns.items()}

    cuts = {f"{count}": f"positives={count}" for count in (1, 2, 4, 8, 16)} | {"all": "plain"}
    cuts |= {f"{count}, others unknown": f"positives={count}, others unknown" for count in (1, 4)}
    return {
        "The paper's regime": sets("plain", **PAPER),
        "512 tokens, 600 steps, the paper's temperature and rate": sets(LONG_TEXTS, **PAPER | {"steps": LONG}),
        "Temperature .02, ft's best rate on dev": best("plain", 0.02),
        "Temperature .05, ft's best rate on dev": best("plain", 0.05),
        "512 tokens, 600 steps, temperature .05, ft's best rate on dev": best(LONG_TEXTS, 0.05, LONG),
        "NFCorpus cut to some positives per query": {
            head: {"set": "nfcorpus", "regime": regime, **PAPER} for head, regime in cuts.items()
        },
        "The paper's regime without the mask of known positives": sets("no mask", **PAPER),
        "The paper's regime, random negatives": sets("random negatives", **PAPER),
        "All defaults, before λ is chosen": sets("defaults, λ = 1"),
        "All defaults, with the guard": sets("defaults"),
        "30% wrong labels, temperature .05, ft's best rate on dev": best("wrong labels", 0.05),
        "30% wrong labels, the paper's regime": sets("wrong labels", **PAPER),
    }


def methods_table(results: TransformerResults, columns: Columns, measure: str) -> str:
    """Base and ft in points, then each method minus ft with its interval; bold where Holm's p is below .05."""
    found = {head: results.by_method(measure, **fields) for head, fields in columns.items()}
    found = {head: methods for head, methods in found.items() if "ft" in methods}
    if not found:
        return ""
    base = {head: results.by_method(measure, **_base(columns[head]))["base"] for head in found}
    rows = [["base", *(f"{_mean(base[head]):.1f}" for head in found), ""]]
    rows.append(["ft", *(f"{_mean(methods['ft']):.1f}" for methods in found.values()), ""])
    tests = {
        head: corrected_tests({m: 100 * differences(of, methods["ft"]) for m, of in methods.items() if m != "ft"})
        for head, methods in found.items()
    }
    for method in dict.fromkeys(method for of in tests.values() for method in of):
        tested = [of.get(method) for of in tests.values()]
        cells = [
            "" if test is None else _bold(f"{_interval(test.difference, test.low, test.high)}", test.significant)
            for test in tested
        ]
        over = OverSettings.of([test.difference for test in tested if test is not None])
        rows.append([f"{method} − ft", *cells, _interval(over.difference, over.low, over.high)])
    return table_lines([f"{measure}, test", *found, "mean (95%)"], rows)


def page_table(results: TransformerResults) -> str:
    """The table of docs/benchmarks.md: base and ft in points, and methods minus ft, by settings and data set."""
    columns, rows = all_columns(results), []
    for heading, title in PAGE.items():
        rows.append([f"**{heading}**", *[""] * 5])
        for name, fields in columns[title].items():
            values = results.by_method("nDCG@10", **fields)
            if not {"ft", "dp", "denoise"} <= values.keys():
                continue
            base = results.by_method("nDCG@10", **_base(fields))["base"]
            tests = corrected_tests({m: 100 * differences(values[m], values["ft"]) for m in MAIN[1:] if m in values})
            dp, denoise = (signed(tests[m].difference) + "*" * tests[m].significant for m in ("dp", "denoise"))
            interval = f"{signed(tests['dp'].low)} to {signed(tests['dp'].high)}"
            means = [f"{_mean(points):.1f}" for points in (base, values["ft"])]
            rows.append([NAMES[name], *means, dp, interval, denoise])
    return table_lines(["data", "base model", "`ft`", "`dp` − `ft`", "95%", "`denoise` − `ft`"], rows)


def rates_table(results: TransformerResults) -> str:
    """ft at each rate and temperature; the best on dev in bold."""
    rates = (1e-5, 2e-5, 5e-5, 1e-4, 2e-4)
    rows = []
    for name in SETS:
        base = results.finished(**_base({"set": name, "regime": "plain"}))
        for temperature in (0.02, 0.05):
            cells = []
            for rate in rates:
                fields = {"temperature": temperature, "lr": rate, "steps": 150, "seed": 0, "regime": "plain"}
                runs = results.finished(set=name, method="ft", **fields)
                best = rate == results.best_rate(name, temperature)
                cells.append(_bold(_dev_and_test(runs[0]), best) if runs else "")
            rows.append([name, f"{temperature:g}", "".join(_dev_and_test(row) for row in base), *cells])
    return table_lines(["set", "temperature", "base", *(f"{rate:g}" for rate in rates)], rows)


def facts_table(results: TransformerResults) -> str:
    """How far each method moved the model, and how much of the training set it sampled."""
    facts = ("train_queries", "train_pairs", "moved", "queries_sampled", "pairs_sampled", "seconds")
    rows = [
        [name, row["method"], *(_text(row.get(fact)) for fact in facts)]
        for name in SETS
        for row in results.finished(set=name, regime="plain", seed=0, **PAPER)
    ]
    return table_lines(["set", "method", *facts], rows)


def lengths_table(results: TransformerResults, name: str, temperature: float, regime: str) -> str:
    """ft and dp at every tenth of a long training: dev and test, and the difference on test."""
    rate = 2e-5 if temperature == 0.02 else results.best_rate(name, temperature)
    fields = {"set": name, "temperature": temperature, "lr": rate, "steps": LONG, "regime": regime, "seed": 0}
    rows = []
    for step in range(60, 601, 60):
        runs = {row["method"]: row for row in results.finished(step=step, **fields)}
        if runs.keys() >= {"ft", "dp"}:
            methods = results.by_method("nDCG@10", step=step, **fields)
            test = corrected_tests({"dp": 100 * differences(methods["dp"], methods["ft"])})["dp"]
            means = [_dev_and_test(runs[method]) for method in ("ft", "dp")]
            rows.append([f"{step}", *means, _interval(test.difference, test.low, test.high)])
    if rows:
        (base,) = results.finished(**_base({"set": name, "regime": regime}))
        rows.insert(0, ["base", *[_dev_and_test(base)] * 2, ""])
    return table_lines(["step", "ft, dev / test", "dp, dev / test", "dp − ft, test"], rows) if rows else ""


def draw_lengths(results: TransformerResults, path: Path) -> None:
    """Draw nDCG@10 on test of ft and dp at every tenth of a long training in the paper's regime."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure((7, 4.6), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(2, 2, sharex=True).flat, NAMES.items(), strict=True):
        for method, colour in (("ft", "#7d8590"), ("dp", "#2f86e0")):
            fields = {**PAPER, "steps": LONG, "regime": "plain", "seed": 0}
            rows = sorted(results.select(set=name, method=method, **fields), key=lambda row: row["step"])
            values = [row["test nDCG@10"] for row in rows]
            axes.plot([row["step"] for row in rows], values, ".-", color=colour, label=method)
        (base,) = results.finished(**_base({"set": name, "regime": "plain"}))
        axes.axhline(base["test nDCG@10"], color="black", linestyle=":", linewidth=0.8, label="base model")
        axes.set_title(title, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("step", fontsize=9)
    figure.supylabel("nDCG@10 on test", fontsize=9)
    axes.legend(frameon=False)
    with mpl.rc_context({"svg.hashsalt": "opera", "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None, "Creator": None})


def _base(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What selects the base model of a column."""
    return {"set": fields["set"], "method": "base", "regime": base_regime(fields["regime"])}


def _mean(values: QueryValues) -> float:
    return 100 * float(np.mean(list(values.values())))


def _dev_and_test(row: Row) -> str:
    return f"{row['dev nDCG@10']:.2f} / {row['test nDCG@10']:.2f}"


def _text(value: Any) -> str:
    return "" if value is None else f"{value}"


def _interval(difference: float, low: float, high: float) -> str:
    return f"{difference:+.2f}" + ("" if np.isnan(low) else f" ({low:+.2f} to {high:+.2f})")


def _bold(text: str, bold: bool) -> str:
    return f"**{text}**" if bold else text
