"""The tables of docs/samplers.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from opera.experiments.analysis.significance import LEVEL, PairedTest, holm
from page import table_lines
from sampler_results import (
    NDCG,
    RACE,
    At,
    Cell,
    OverWorlds,
    Race,
    against_ft,
    at_chosen,
    at_one,
    at_zero,
    mean,
)

Cells = Mapping[str, Cell]
"""The finished worlds by name."""

SHORT = {"entailmentbank": "EB", "scifact": "SF", "nfcorpus": "NF", "toollens": "TL"}


def short(world: str) -> str:
    """Abbreviate a world's name for a column."""
    base, _, rest = world.partition("+")
    return SHORT.get(base, base) + (f"+{rest}" if rest else "")


def signed(value: float) -> str:
    """Format points with their sign."""
    return f"{value:+.1f}".replace("-", "−")


def p_value(p: float) -> str:
    """Format a p-value."""
    return "" if np.isnan(p) else "< .0001" if p < 1e-4 else f"{p:.2g}"


def mean_interval(over: OverWorlds) -> str:
    """Format a mean over worlds, with its interval if there is one."""
    ends = "" if np.isnan(over.low) else f" ({signed(over.low)} to {signed(over.high)})"
    return signed(over.difference) + ends


def difference(test: PairedTest) -> str:
    """Format a difference in points, bold where Holm's p is below :data:`LEVEL`."""
    text = signed(100 * test.difference)
    return f"**{text}**" if test.t_test_holm < LEVEL else text


def worlds_table(cells: Cells) -> str:
    """What each world is."""
    rows = []
    for world, cell in cells.items():
        first = cell["ft"][0].curves
        shares = ", ".join(f"{training.chosen:g}" for training in cell["ft"])
        best = ", ".join(f"{training.best:g}" for training in cell["ft"])
        sizes = [f"{first.queries:,}", f"{first.steps}", f"{first.dev.shape[2]:,}", f"{first.test.shape[2]:,}"]
        rows.append([f"{world} ({short(world)})", *sizes, f"{first.test_seen:.2f}", shares, best])
    heads = ["", "training queries", "steps", "dev queries", "test queries", "seen", "λ of ft", "best λ on test"]
    return table_lines(heads, rows)


def against_ft_table(cells: Cells, methods: Sequence[str], measure: str = NDCG, at: At = at_chosen) -> str:
    """Each method minus ft by world, and over the worlds."""
    others = [method for method in methods if method != "ft"]
    by_world = {world: against_ft(cell, others, at, measure) for world, cell in cells.items()}
    found = {m: OverWorlds.of([100 * by_world[world][m].difference for world in cells]) for m in others}
    corrected = holm([1.0 if np.isnan(found[m].p) else found[m].p for m in others])
    rows = []
    for method, p in zip(others, corrected, strict=True):
        of = [by_world[world][method] for world in cells]
        over = found[method]
        interval = mean_interval(over)
        better = sum(test.t_test_holm < LEVEL and test.difference > 0 for test in of)
        worse = sum(test.t_test_holm < LEVEL and test.difference < 0 for test in of)
        rows.append([method, *map(difference, of), interval, p_value(p), f"{better} / {worse}"])
    return table_lines(["", *map(short, cells), "mean (95%)", "p", "better / worse"], rows)


def noise_table(cells: Mapping[tuple[str, float], Cell], measure: str = NDCG) -> str:
    """Each method minus ft at the chosen share, by world and noise; the first rows are levels."""
    own = {key: {label(name): of for name, of in cell.items()} for key, cell in cells.items()}
    columns = [f"{short(world)}, {noise:.0%}" for world, noise in cells]
    lines: list[tuple[str, At]] = [("untrained", at_zero), ("ft, λ = 1", at_one), ("ft", at_chosen)]
    rows = [[text, *(f"{mean(cell['ft'], at, measure):.1f}" for cell in own.values())] for text, at in lines]
    found = {
        key: against_ft(cell, [name for name in cell if name != "ft"], at_chosen, measure) for key, cell in own.items()
    }
    for method in dict.fromkeys(name for tests in found.values() for name in tests):
        tested = [tests.get(method) for tests in found.values()]
        rows.append([f"{method} − ft", *(difference(test) if test else "" for test in tested)])
        rows[-1].append(mean_interval(OverWorlds.of([100 * test.difference for test in tested if test])))
    rows.append(["race of four − ft", *noisy_races(own.values(), measure)])
    for row in rows[: len(lines)]:
        row.append(f"{np.mean([float(value) for value in row[1:]]):.1f}")
    return table_lines(["", *columns, "mean (95%)"], rows)


def noisy_races(cells: Iterable[Cell], measure: str) -> list[str]:
    """The race of four minus ft in each cell that has all of them, and on average."""
    four = [label(method) for method in RACE]
    raced = [
        mean(Race.run(cell, four).trainings, at_chosen, measure) - mean(cell["ft"], at_chosen, measure)
        if all(method in cell for method in four)
        else None
        for cell in cells
    ]
    known = [value for value in raced if value is not None]
    average = mean_interval(OverWorlds.of(known)) if known else ""
    return [*("" if value is None else signed(value) for value in raced), average]


def label(method: str) -> str:
    """Leave out the retention rate, which differs from noise to noise."""
    return method.partition(":k=")[0] if ":k=" in method else method


def all_tables(clean: Cells, noisy: Mapping[tuple[str, float], Cell]) -> dict[str, str]:
    """Every table of the page, by name; those that nothing is finished for are left out."""
    tables = {}
    if clean:
        methods = list(next(iter(clean.values())))
        tables |= {
            "worlds": worlds_table(clean),
            "against-ft": against_ft_table(clean, methods),
        }
    if noisy:
        tables |= {"noise": noise_table(noisy)}
    return tables
