"""Why data sets of a reproduction could not be had: kept in its folder, for a table that is made later.

Each set has a file of its own, so that shards that run at the same time write no common one.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

from opera.core.errors import RunFolderError
from opera.core.files import check_folder, replace_file
from opera.core.reading import read_text
from opera.core.terminal import shortened
from opera.experiments.reproduce.plan import ReproductionPlan

LEFT_OUT, MOST_SHOWN = ".left-out", 1000


def record_left_out(plan: ReproductionPlan, loaded: Collection[str]) -> None:
    """Write why optional data sets are left out, and forget it of those that are here now.

    Args:
        plan: the reproduction; the grid's folder exists.
        loaded: names of the data sets that this call has loaded.

    Raises:
        RunFolderError: if something else stands where the files are kept.
    """
    home = plan.out / LEFT_OUT
    check_folder(home, "--out")
    for name in loaded:
        (home / name).unlink(missing_ok=True)
    for name in sorted(plan.chosen.optional & plan.left_out.keys()):
        home.mkdir(exist_ok=True)
        replace_file(home / name, partial(Path.write_text, data=plan.left_out[name] + "\n", encoding="utf-8"))


def left_out_before(plan: ReproductionPlan) -> dict[str, str]:
    """Read why data sets of a plan were left out, by name: those that no cell has been finished on since.

    Raises:
        RunFolderError: if a file cannot be read.
    """
    reasons = {}
    for name in plan.sources:
        path = plan.out / LEFT_OUT / name
        if name not in plan.chosen.optional or not path.is_file():
            continue
        if any(cell.finished for cell in plan.cells if cell.data_name == name):
            continue
        try:
            reasons[name] = shortened(" ".join(read_text(path).split()), MOST_SHOWN)
        except (OSError, ValueError):
            raise RunFolderError(f"{path}: cannot be read as text; remove it, and the next run writes it") from None
    return reasons
