"""Bad run and grid folders: in a report, as a model, under --resume and --overwrite, and in a grid."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bad_inputs.table import Bad, Make, cut, link, make_folder, matching, pipe, remove, with_grid, with_run, write

REPORT = "report run --out report.html"
EVALUATE = "evaluate data --model run"
RESUME = "train data --model model --out run --steps 4 --batch-size 4 --set refit=false --resume"
COMPARE = (
    "compare data --model model --out grid --methods ft,rp:k=0.5 --seeds 0 --steps 4 --batch-size 4 --set refit=false"
)
CELL = "grid/data/ft/steps4/seed0"
MEASURES = "run/measures.json"

BROKEN_JSON = {
    '{"status": "fin': "not JSON (Unterminated string starting at column 12)",
    "[]": "must be a JSON object",
    b'{"status": "\xff"}': "line 1 is not UTF-8; convert the file to UTF-8",
}
"""What is in a JSON file, and the reason in the message."""


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Make:
    """Change the values of a JSON file."""

    def make(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return make


def put(*keys: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """Put a value at nested keys."""

    def change(values: dict[str, Any]) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value

    return change


def parquet(name: str, change: Callable[[pa.Table], pa.Table]) -> Make:
    """Change a parquet file."""
    return lambda folder: pq.write_table(change(pq.read_table(folder / name)), folder / name)


def wrong(place: str, reason: str) -> str:
    """The message on a file that is not as OPERA wrote it."""
    return f"{place}: is not as OPERA wrote it: {reason}"


def of_run(reason: str, make: Make, name: str = "run.json", command: str = REPORT) -> Bad:
    """A row one of whose run's files is not as OPERA wrote it."""
    return Bad(command, wrong(f"run/{name}", reason), with_run, make)


DOORS = (
    EVALUATE, RESUME, RESUME.replace("--resume", "--overwrite"), "search data query --model run",
)  # fmt: skip
WRONG_VALUES = [
    of_run(reason, changed("run/run.json", change))
    for reason, change in (
        ("data: Field required", lambda values: values.pop("data")),
        ("status: Input should be 'running', 'failed' or 'finished'", put("status", value="done")),
        ("data.counts.documents: Input should be a valid integer, unable to parse string as an integer",
         put("data", "counts", "documents", value="many")),
        ("training: is missing, though the run is finished", put("training", value=None)),
        ("guard.mixing_weight: Input should be less than or equal to 1", put("guard", "share", value=2)),
    )
] + [
    of_run(reason, changed(MEASURES, change), "measures.json")
    for reason, change in (
        ("before: Field required", lambda values: values.pop("base")),
        ("before: nDCG@10 is missing", lambda values: values["base"].pop("nDCG@10")),
        ("after.nDCG@10: Input should be a valid number, unable to parse string as a number",
         put("final", "nDCG@10", value="good")),
    )
]  # fmt: skip

TABLES = [
    of_run(reason, parquet(f"run/{name}", change), name)
    for name, reason, change in (
        ("pairs.parquet", "column 'query_id' is missing", lambda found: found.drop_columns(["query_id"])),
        ("pairs.parquet", "has no rows", lambda found: found.slice(0, 0)),
        ("per_query.parquet", "column 'after nDCG@10' is missing",
         lambda found: found.drop_columns(["final nDCG@10"])),
        ("trace.parquet", "has no rows", lambda found: found.slice(0, 0)),
        ("draws.parquet", "column 'pair' is missing", lambda found: found.drop_columns(["pair"])),
    )
]  # fmt: skip

FILES = [
    *(of_run(reason, write("run/run.json", text)) for text, reason in BROKEN_JSON.items()),
    *(
        of_run(reason, write("run/run.json", text), command=command)
        for command in DOORS
        for text, reason in list(BROKEN_JSON.items())[:1]
    ),
    *(
        Bad(REPORT, f"run/{name}: is missing", with_run, remove(f"run/{name}"))
        for name in ("measures.json", "pairs.parquet")
    ),
    *(
        Bad(REPORT, matching(rf"run/{name}: is not as OPERA wrote it: .{{5,200}}"), with_run, cut(f"run/{name}", size))
        for name, size in (("pairs.parquet", 3), ("trace.parquet", 100))
    ),
    *(
        Bad(REPORT, f"run/{name}: cannot be read: {reason}", with_run, make(f"run/{name}"))
        for name in ("pairs.parquet", "run.json")
        for reason, make in (("it is a folder", make_folder), ("it is a named pipe", pipe))
    ),
    Bad(REPORT, "run/run.json: was written by another version of OPERA (format 99; this one reads 5); use that "
        "version, or train again with --overwrite", with_run, changed("run/run.json", put("format", value=99))),
    of_run("seed: must be greater than or equal to 0, got -1",
        changed("run/run.json", put("identity", "seed", value=-1)), command=EVALUATE),
    *(
        Bad(RESUME, f"--resume run: run/{name} is a link, and OPERA writes only to the run folder; remove the link, "
            "or pass --overwrite to start again", with_run,
            changed("run/run.json", put("status", value="running")), make_folder("elsewhere"),
            link(f"run/{name}", "../elsewhere"))
        for name in ("model", "checkpoints", "trial")
    ),
]  # fmt: skip

GRIDS = [
    *(
        Bad("report grid --out report.html", wrong("grid/grid.json", reason), with_grid, write("grid/grid.json", text))
        for text, reason in BROKEN_JSON.items()
    ),
    *(
        Bad(COMPARE, wrong("grid/grid.json", reason), with_grid, write("grid/grid.json", text))
        for reason, text in (
            ("model: Field required", '{"settings": {}}'),
            ("cells: '../../etc' is no folder inside the grid's",
             '{"model": "model", "settings": {}, "cells": ["../../etc"]}'),
            ("settings: Input should be a valid dictionary", '{"model": "m", "settings": []}'),
        )
    ),
    *(
        Bad(COMPARE, f"{CELL}/{message}; remove {CELL}, and the cell is trained again", with_grid, make)
        for message, make in (
            ("measures.json: is missing", remove(f"{CELL}/measures.json")),
            ("pairs.parquet: cannot be read: it is a named pipe", pipe(f"{CELL}/pairs.parquet")),
            (wrong("run.json", "not JSON (Expecting value at column 1)"), write(f"{CELL}/run.json", "")),
        )
    ),
    Bad("report grid --out report.html", "grid: holds no finished run, only 2 damaged "
        f"({CELL}/measures.json: is missing)", with_grid, remove(f"{CELL}/measures.json"),
        remove("grid/data/rp,k=0.5/steps4/seed0/measures.json")),
]  # fmt: skip

DECISIONS = [
    Bad("report run --decisions decisions.csv", message, with_run,
        write("decisions.csv", f"query_id,doc_id,decision,split\n{rows}"))
    for message, rows in (
        ("decisions.csv: has no decision about test; opera review RUN --split test writes a page to make them",
         "test0,d0,unsure,test\ntrain0,d0,wrong,train\n"),
        ("decisions.csv: query 'q' is not a test query of run; are they decisions about another data set?",
         "q,d0,missing,test\n"),
        ("decisions.csv: query 'test0', document 'd0' is wrong in one row, and correct or missing in another; keep one "
         "of them", "test0,d0,wrong,test\ntest0,d0,missing,test\n"),
    )
] + [
    Bad(REPORT, "run/review.json: is missing", with_run, remove("run/review.json")),
    of_run("column 'before nDCG@10' is missing",
        parquet("run/per_query.parquet", lambda found: found.drop_columns(["base nDCG@10"])), "per_query.parquet"),
]  # fmt: skip

ROWS = [*WRONG_VALUES, *TABLES, *FILES, *GRIDS, *DECISIONS]
