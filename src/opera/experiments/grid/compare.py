"""``opera.compare``: run a grid, then compare its methods."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opera.core.errors import RunFolderError, SettingError, TrainingError
from opera.data import load_data
from opera.experiments.analysis import Comparison, compare_runs, find_groups
from opera.experiments.grid.plan import check_grid_folder, claimed, plan_grid, write_grid_file
from opera.experiments.grid.progress import shown
from opera.experiments.grid.run import run_grid
from opera.experiments.grid.status import Status
from opera.retrieval.locate import locate_model
from opera.runs.folder import Run


def compare(
    data: str | Path | Sequence[str | Path],
    *,
    model: str | Path,
    out: str | Path,
    methods: Sequence[str] = ("ft", "dp"),
    seeds: Sequence[int] = (0, 1, 2),
    steps: Sequence[int] = (1000,),
    baseline: str | None = None,
    jobs: int = 1,
    **settings: Any,
) -> Comparison:
    """Train methods x seeds x steps on some data sets, and compare them.

    Every cell is an ordinary run folder. Finished cells are not repeated, so the same call goes on with a grid that was
    stopped.

    Args:
        data: one or more data sets, as :func:`opera.adapt` takes them by name.
        model: the model that all cells start from.
        out: the grid's folder.
        methods: methods, with settings of their own behind colons: ``"sp:k=0.5"``.
        seeds: seeds.
        steps: numbers of optimizer steps.
        baseline: the method that the others are tested against; ``None``: ``ft`` where it is there, else the first.
        jobs: how many cells run at once; the CPU's cores are shared among them.
        settings: settings of all cells, by their names.

    Raises:
        InputError: for anything that cannot be used, before anything is written.
        TrainingError: if a cell failed; the others are done, and the same call tries it again.
        KeyboardInterrupt: after Ctrl-C or SIGTERM; the cells that ran have saved a checkpoint.
    """
    sources = [str(data)] if isinstance(data, str | Path) else [str(source) for source in data]
    status = prepared(sources, methods, seeds, steps, Path(out), str(model), settings, jobs)
    check_baseline(baseline, methods)
    write_grid_file(Path(out), str(model), settings, status.cells)
    with claimed(Path(out)), shown(status) as changed:
        run_grid(status, str(model), changed)
    if status.failed:
        raise TrainingError("\n".join(f"{place}: {reason}" for place, reason in status.failed.items()))
    return compared(status, Path(out), baseline)


def prepared(
    data: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    steps: Sequence[int],
    out: Path,
    model: str,
    settings: dict[str, Any],
    jobs: int,
) -> Status:
    """Check everything that can be checked without torch; writes nothing. Arguments as for :func:`compare`.

    Raises:
        InputError: for anything that cannot be used.
    """
    if jobs < 1:
        raise SettingError(f"--jobs: must be 1 or more, got {jobs}")
    cells = plan_grid(data, methods, seeds, steps, out, settings)
    locate_model(model)
    check_grid_folder(out, model, settings)
    fingerprints = {}
    for source in data:
        loaded = load_data(source)
        loaded.training_split()
        fingerprints[source] = loaded.fingerprint
    status = Status.of(cells, jobs)
    for cell in cells:
        if cell.place in status.done and Run.open(cell.place).record.data.fingerprint != fingerprints[cell.data]:
            raise RunFolderError(f"{cell.place}: is a run on other data than {cell.data} is now; give another --out")
    return status


def check_baseline(baseline: str | None, methods: Sequence[str]) -> None:
    """Refuse a baseline that is none of the methods.

    Raises:
        SettingError: naming them.
    """
    if baseline is not None and baseline not in methods:
        raise SettingError(f"--baseline {baseline}: must be one of the methods: {', '.join(methods)}")


def compared(status: Status, out: Path, baseline: str | None) -> Comparison:
    """Compare the runs in a grid's folder, of earlier calls too.

    Args:
        status: which cells are done.
        out: the grid's folder.
        baseline: a method as this call has it; tables may name it otherwise, and may lack it where its cells failed.
    """
    places = {cell.place for cell in status.cells if cell.label == baseline and cell.place in status.done}
    named = [group.method for group in find_groups(out) if places & {run.path for run in group.runs}]
    return compare_runs(out, named[0] if named else None)
