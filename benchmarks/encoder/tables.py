"""From turns to figures: medians, ratios, shares of the peak, and the tables of docs/benchmarks.md."""

from __future__ import annotations

import platform
import sys
from pathlib import Path
from statistics import median
from typing import Any

from cells import BATCH, FLAG, LIBRARY, OPERA, operations
from environment import ROOT

sys.path.insert(0, str(ROOT / "tools"))
from page import table_lines

PEAK = "matrix products"
RIVALS = (LIBRARY, FLAG)
TOLERANCE = 1e-3
"""Of the loss of the first step, in nats: the libraries round it, and FlagEmbedding's products are in another order."""


def processor() -> str:
    """Name the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def summarise(measured: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Compute the figures of a cell: per way, units per second, ratio to OPERA, share of the peak, memory."""
    cell, first = measured["cell"], measured["warm_up"]
    counted = {way: turns[first:] for way, turns in measured["turns"].items()}
    peak = median(turn["gflops"] for turn in counted[PEAK])
    batch = BATCH[cell["model"]]
    ways = {}
    for way, turns in counted.items():
        if way == PEAK:
            continue
        seconds = [turn["seconds"] for turn in turns]
        units = batch if cell["task"] == "train" else measured["units"]
        figures = {
            "per_second": units / median(seconds),
            "seconds": seconds,
            "peak_mb": turns[-1]["peak_mb"],
            **measured["facts"][way],
        }
        if OPERA in counted and way != OPERA:
            own = [turn["seconds"] for turn in counted[OPERA]]
            figures["opera_is_faster_by"] = median(a / b for a, b in zip(seconds, own, strict=True))
        if cell["length"] is not None:
            work = [flops(cell, inputs, step) for step in range(first, first + len(turns))]
            shares = [w / s / 1e9 / peak for w, s in zip(work, seconds, strict=True)]
            figures["share_of_peak"] = median(shares)
        ways[way] = figures
    return {
        "cell": cell,
        "title": measured["title"],
        "load_before": measured["load_before"],
        "peak": peak,
        "ways": ways,
    }


def flops(cell: dict[str, Any], inputs: dict[str, Any], step: int) -> float:
    """Count the operations of a step, from 0, or of encoding all texts, without padding."""
    of_model, most = inputs[cell["model"]], cell["length"]
    if cell["task"] == "encode":
        lengths = [min(length, most) for length in of_model["encode"]]
    else:
        batch = BATCH[cell["model"]]
        rows = of_model["train"][step * batch : (step + 1) * batch]
        lengths = [min(length, bound) for row in rows for length, bound in zip(row, (128, most, most), strict=True)]
    return operations(lengths, of_model["shape"], cell["task"] == "train")


def tables(
    measured: list[dict[str, Any]], inputs: dict[str, Any], about: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the figures for the JSON, and Markdown tables by their names."""
    cells = [summarise(each, inputs) for each in measured]
    checks = [each for each in cells if each["cell"]["without_dropout"]]
    first = {
        way: each["turns"][way][0]["loss"]
        for each in measured
        if each["cell"]["without_dropout"]
        for way in each["turns"]
        if way != PEAK
    }
    if first and max(first.values()) - min(first.values()) > TOLERANCE:
        raise RuntimeError(f"the losses of the first step differ, so this is not the same work: {first}")
    cells = [each for each in cells if each not in checks]
    filled = {
        "about": about_line(about, cells, first),
        "training": cell_table("train", "pairs per second", cells),
        "encoding": cell_table("encode", "texts per second", cells),
    }
    return {"about": about, "first_losses": first, "cells": cells}, filled


def cell_table(task: str, unit: str, cells: list[dict[str, Any]]) -> str:
    """Format a line per cell: OPERA's speed, and its ratio to each library."""
    heads = ["", f"OPERA, {unit}", *(f"against {way}" for way in RIVALS), "GB of memory: OPERA, then each rival"]
    rows = []
    for each in (each for each in cells if each["cell"]["task"] == task):
        ways = each["ways"]
        ratios = [f"{ways[way]['opera_is_faster_by']:.2f}×" if way in ways else "" for way in RIVALS]
        peaks = [f"{ways[way]['peak_mb'] / 1e3:.2f}" for way in (OPERA, *RIVALS) if way in ways]
        rows.append([each["title"], f"{ways[OPERA]['per_second']:,.1f}", *ratios, ", ".join(peaks)])
    return table_lines(heads, rows)


def about_line(about: dict[str, Any], cells: list[dict[str, Any]], first: dict[str, float]) -> str:
    """Say where and when this was measured, and what the first losses are."""
    versions = ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    load = max((each["load_before"] for each in cells), default=0.0)
    losses = ", ".join(sorted({f"{loss:.4f}" for loss in first.values()}))
    return (
        f"Measured on {about['date']}: {about['processor']}, {about['threads']} threads, {versions}. The load before a "
        f"measurement was at most {load:.1f}. Without dropout, all libraries have the same first loss ({losses}).\n"
    )


def profile_table(profiles: dict[tuple[str, int], list[list[Any]]]) -> str:
    """Format the operations of each profile, as columns beside each other, the longest first."""
    names = {"train": "a training step", "encode": "encoding"}
    heads = [f"{names[task]}, {length} tokens" for task, length in profiles]
    columns = [[f"{share:.1%} {name} × {calls:,}" for name, share, calls in rows] for rows in profiles.values()]
    return table_lines(heads, [list(row) for row in zip(*columns, strict=True)])
