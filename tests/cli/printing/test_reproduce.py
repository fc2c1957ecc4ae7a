"""The text of ``opera reproduce --plan``."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.console import Console

from opera.cli.printing.reproduce import print_estimate
from opera.experiments.paper import find_table
from opera.experiments.paper.tables import BGE, HUB_IDS
from opera.experiments.reproduce.cells import TableSettings
from opera.experiments.reproduce.estimate import SetCost, estimate
from opera.experiments.reproduce.plan import plan_reproduction
from opera.experiments.reproduce.scale import SCALES
from opera.experiments.reproduce.sets import choose_sets


def test_short_times_and_data_on_request_are_said_in_words() -> None:
    table, scale = find_table("main"), SCALES["full"]
    shared = TableSettings(table, HUB_IDS[BGE], "paper", scale, ("ft",), (0,), {})
    plan = plan_reproduction(shared, Path("nowhere"), choose_sets(table, scale, ["tripclick-head,fiqa"]))
    whole = estimate(plan, plan.cells)
    costs = {machine: {name: SetCost(0.0, 0.2, 0.2) for name in sets} for machine, sets in whole.costs.items()}
    screen = Console(width=200, highlight=False, record=True, file=StringIO())
    print_estimate(screen, replace(whole, costs=costs))
    text = screen.export_text()
    assert "about under a minute" not in text
    assert " 0 s" not in text
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}
    assert "on request" in rows["tripclick-head"]
    assert "on request" not in rows["fiqa"]
    assert "under a minute" in rows["fiqa"]
    assert "prompts, lengths and learning rate of models/bge-large-en-v1.5" in text
