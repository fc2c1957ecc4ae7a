"""Bad run and grid folders: in a report, as a model, under --resume and --overwrite, and in a grid."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
DEEP = "[" * 3000 + "]" * 3000

BROKEN_JSON = {
    "empty": ("", "not JSON (Expecting value at column 1)"),
    "cut off": ('{"status": "fin', "not JSON (Unterminated string starting at column 12)"),
    "a list": ("[]", "must be a JSON object"),
    "a number": ("7", "must be a JSON object"),
    "nested 3,000 deep": ('{"status": ' + DEEP + "}", "nested more than 100 deep"),
    "a key twice": ('{"status": 1, "status": 2}', "the key 'status' occurs twice"),
    "NaN": ('{"status": NaN}', "holds NaN, which is no number of JSON"),
    "a number of 5,000 digits": (
        '{"status": ' + "9" * 5000 + "}",
        "holds a whole number of 5,000 digits; at most 1,000 are read",
    ),
    "half a character": ('{"status": "\\ud83d"}', "holds half a character ('\\ud83d'); remove it"),
    "not UTF-8": (b'{"status": "\xff"}', "line 1 is not UTF-8; convert the file to UTF-8"),
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


def table(name: str, change: Callable[[pa.Table], pa.Table]) -> Make:
    """Change a parquet file."""
    return lambda folder: pq.write_table(change(pq.read_table(folder / name)), folder / name)


def column(name: str, values: Callable[[pa.Table], Any]) -> Callable[[pa.Table], pa.Table]:
    """Put other values into a column."""
    return lambda found: found.set_column(found.column_names.index(name), name, pa.array(values(found)))


def arrays(name: str, **changes: Any) -> Make:
    """Change arrays of an .npz file; ``None`` removes one."""

    def make(folder: Path) -> None:
        with np.load(folder / name) as file:
            values = {**{key: file[key] for key in file.files}, **changes}
        np.savez(folder / name, **{key: value for key, value in values.items() if value is not None})

    return make


def old_checkpoint(folder: Path) -> None:
    """Leave a run that was cut off after its checkpoint."""
    changed("run/run.json", put("status", value="running"))(folder)


def wrong(place: str, reason: str) -> str:
    """The message on a file that is not as OPERA wrote it."""
    return f"{place}: is not as OPERA wrote it: {reason}"


ROWS = [
    Bad(f"run.json: {kind}", command, wrong("run/run.json", reason), with_run, write("run/run.json", text))
    for kind, (text, reason) in BROKEN_JSON.items()
    for command in (REPORT,)
]
ROWS += [
    Bad(
        f"measures.json: {kind}", REPORT, wrong("run/measures.json", reason), with_run, write("run/measures.json", text)
    )
    for kind, (text, reason) in BROKEN_JSON.items()
]
ROWS += [
    Bad(
        f"run.json, under {what}: {kind}",
        command,
        wrong("run/run.json", BROKEN_JSON[kind][1]),
        with_run,
        write("run/run.json", BROKEN_JSON[kind][0]),
    )
    for what, command in {
        "--model": EVALUATE,
        "--resume": RESUME,
        "--overwrite": RESUME.replace("--resume", "--overwrite"),
        "search": "search data query --model run",
    }.items()
    for kind in ("cut off", "a list", "nested 3,000 deep")
]
ROWS += [
    Bad(f"run.json: {kind}", REPORT, wrong("run/run.json", reason), with_run, changed("run/run.json", change))
    for kind, change, reason in (
        ("no data", lambda values: values.pop("data"), "data: Field required"),
        ("an unknown field", put("extra", value=1), "extra: Extra inputs are not permitted"),
        ("a status of its own", put("status", value="done"),
         "status: Input should be 'running', 'failed' or 'finished'"),
        ("counts that are words", put("data", "counts", "documents", value="many"),
         "data.counts.documents: Input should be a valid integer, unable to parse string as an integer"),
        ("finished without training", put("training", value=None), "training: is missing, though the run is finished"),
        ("a method that is a list", put("identity", "method", value=["ft"]), "method: must be a name"),
        ("steps that are a word", put("settings", "max_steps", value="4"),
         "settings.max_steps: must be a number of steps, got '4'"),
        ("no steps", put("settings", "max_steps", value=0), "settings.max_steps: must be a number of steps, got 0"),
        ("10^400 steps", put("training", "steps", value=10**400),
         f"training.steps: must be a number of steps, got 1{'0' * 49}…{'0' * 49}"),
        ("a share of 2", put("guard", "share", value=2), "guard.share: Input should be less than or equal to 1"),
        ("a share not tried", put("guard", "share", value=0.123), "guard.share: was not tried"),
        ("seconds that are infinite", put("seconds", "load", value="Infinity"),
         "seconds.load: Input should be a finite number"),
    )
]  # fmt: skip
ROWS += [
    Bad(f"measures.json: {kind}", REPORT, wrong(MEASURES, reason), with_run, changed(MEASURES, change))
    for kind, change, reason in (
        ("no before", lambda values: values.pop("before"), "'before' is missing"),
        ("no after", lambda values: values.pop("after"), "'after' is missing"),
        ("a measure missing", lambda values: values["before"].pop("nDCG@10"), "before: nDCG@10 is missing"),
        ("a word", put("after", "nDCG@10", value="good"),
         "after.nDCG@10: Input should be a valid number, unable to parse string as a number"),
        ("other measures fine-tuned", put("fine_tuned", value={}), "'fine_tuned' and 'after' have other measures"),
    )
]  # fmt: skip
ROWS += [
    Bad(f"{name}: missing", REPORT, f"run/{name}: is missing", with_run, remove(f"run/{name}"))
    for name in ("measures.json", "per_query.parquet", "pairs.parquet", "trace.parquet")
]
ROWS += [
    Bad(
        f"{name}: cut off",
        REPORT,
        matching(rf"run/{name}: is not as OPERA wrote it: .{{5,200}}"),
        with_run,
        cut(f"run/{name}", size),
    )
    for name, size in (("per_query.parquet", 900), ("pairs.parquet", 3), ("trace.parquet", 100), ("sampling.npz", 200))
]
ROWS += [
    Bad(f"{name}: {kind}", REPORT, f"run/{name}: cannot be read: {reason}", with_run, make(f"run/{name}"))
    for name in ("measures.json", "pairs.parquet", "sampling.npz", "run.json")
    for kind, make, reason in (
        ("a folder", make_folder, "it is a folder"),
        ("a pipe", pipe, "it is a named pipe"),
    )
]
ROWS += [
    Bad(f"{name}: a link to nothing", REPORT, f"run/{name}: is missing", with_run, link(f"run/{name}", "nothing"))
    for name in ("measures.json", "sampling.npz")
]
ROWS += [
    Bad(f"{name}: {kind}", REPORT, wrong(f"run/{name}", reason), with_run, table(f"run/{name}", change))
    for name, kind, change, reason in (
        ("pairs.parquet", "no ids", lambda found: found.drop_columns(["query_id"]), "column 'query_id' is missing"),
        ("pairs.parquet", "no rows", lambda found: found.slice(0, 0), "has no rows"),
        ("pairs.parquet", "nothing drawn", column("times_drawn", lambda found: [0] * len(found)),
         "column 'times_drawn' holds no counts"),
        ("pairs.parquet", "draws below 0", column("times_drawn", lambda found: [-1] * len(found)),
         "column 'times_drawn' holds no counts"),
        ("pairs.parquet", "draws that are words", column("times_drawn", lambda found: ["1"] * len(found)),
         "column 'times_drawn' must be of the kind 'whole', but is string"),
        ("pairs.parquet", "ids that are numbers", column("query_id", lambda found: range(len(found))),
         "column 'query_id' must be of the kind 'text', but is int64"),
        ("per_query.parquet", "ids that lack", column("query_id", lambda found: [None] * len(found)),
         "column 'query_id' must be of the kind 'text', but is null"),
        ("per_query.parquet", "NaN", column("after nDCG@10", lambda found: [float("nan")] * len(found)),
         "column 'after nDCG@10' holds values that are no finite numbers"),
        ("per_query.parquet", "no measure", lambda found: found.drop_columns(["after nDCG@10"]),
         "column 'after nDCG@10' is missing"),
        ("trace.parquet", "no seconds", lambda found: found.drop_columns(["seconds"]), "column 'seconds' is missing"),
        ("trace.parquet", "seconds below 0", column("seconds", lambda found: [-1.0] * len(found)),
         "column 'seconds' holds negative values"),
        ("trace.parquet", "no steps", lambda found: found.slice(0, 0), "has no rows"),
    )
]  # fmt: skip
NAMES = "steps, query_ids, pair_ids, query_codes, document_codes"
ROWS += [
    Bad(
        f"sampling.npz: {kind}",
        REPORT,
        wrong("run/sampling.npz", reason),
        with_run,
        arrays("run/sampling.npz", **changes),
    )
    for kind, changes, reason in (
        ("an array missing", {"steps": None}, f"must hold the arrays {NAMES}"),
        ("an array too many", {"more": np.zeros(3)}, f"must hold the arrays {NAMES}"),
        ("words", {"steps": np.array(["a"])}, "steps holds no numbers"),
        (
            "pickled objects",
            {"steps": np.array([{}], dtype=object)},
            "Object arrays cannot be loaded when allow_pickle=False",
        ),
        ("another shape", {"query_codes": np.zeros((1, 1), dtype=np.uint8)}, "its arrays do not fit each other"),
        ("pairs of another run", {"pair_ids": None, "document_codes": None}, f"must hold the arrays {NAMES}"),
    )
]
ROWS += [
    Bad(
        "run.json: another format",
        REPORT,
        "run/run.json: was written by another version of OPERA (format 99; this one reads 4); use that version, or "
        "train again with --overwrite",
        with_run,
        changed("run/run.json", put("format", value=99)),
    ),
    Bad(
        "run.json as a model: a seed below 0",
        EVALUATE,
        matching(r"run/run\.json: is not as OPERA wrote it: seed: must be greater than or equal to 0, got -1"),
        with_run,
        changed("run/run.json", put("identity", "seed", value=-1)),
    ),
    Bad(
        "run.json under --resume: a learning rate that is a word",
        RESUME,
        matching(r"run/run\.json: is not as OPERA wrote it: learning_rate: must be a number, got 'high'"),
        with_run,
        changed("run/run.json", put("settings", "learning_rate", value="high")),
    ),
    Bad(
        "run.json under --resume: a temperature that is empty",
        RESUME,
        "run/run.json: is not as OPERA wrote it: temperature: must have a value",
        with_run,
        changed("run/run.json", put("settings", "temperature", value=None)),
    ),
    *(
        Bad(
            f"--resume: {name} is a link",
            RESUME,
            f"--resume run: run/{name} is a link, and OPERA writes to no other place than the run folder; put what it "
            "leads to in its place, or pass --overwrite to start again without it",
            with_run,
            old_checkpoint,
            make_folder("elsewhere"),
            link(f"run/{name}", "../elsewhere"),
        )
        for name in ("model", "checkpoints", "trial")
    ),
    Bad(
        "a folder of runs, all damaged",
        "report grid --out report.html",
        matching(
            r"grid: holds no finished run, only 2 damaged \(grid/data/ft/steps4/seed0/measures\.json: is missing\)"
        ),
        with_grid,
        remove(f"{CELL}/measures.json"),
        remove("grid/data/rp,k=0.5/steps4/seed0/measures.json"),
    ),
]
ROWS += [
    Bad(f"grid.json: {kind}", command, wrong("grid/grid.json", reason), with_grid, write("grid/grid.json", text))
    for kind, (text, reason) in BROKEN_JSON.items()
    for command in ("report grid --out report.html",)
]
ROWS += [
    Bad(f"grid.json: {kind}", COMPARE, wrong("grid/grid.json", reason), with_grid, write("grid/grid.json", text))
    for kind, text, reason in (
        ("no model", '{"settings": {}}', "model: Field required"),
        ("data sets in a list", '{"model": "model", "settings": {}, "data": []}',
         "data: Input should be a valid dictionary"),
        ("a data set elsewhere", '{"model": "model", "settings": {}, "data": {"../x": {}}}',
         "data: '../x' is no folder inside the grid's"),
        ("a data set with NUL", '{"model": "model", "settings": {}, "data": {"\\u0000": {}}}',
         "data: '\\x00' is no folder inside the grid's"),
        ("cells elsewhere", '{"model": "model", "settings": {}, "cells": ["../../etc"]}',
         "cells: '../../etc' is no folder inside the grid's"),
        ("settings that are a list", '{"model": "m", "settings": []}', "settings: Input should be a valid dictionary"),
    )
]  # fmt: skip
AGAIN = f"; remove {CELL}, and the cell is trained again"
ROWS += [
    Bad(f"a grid's cell: {kind}", COMPARE, f"{CELL}/{message}{AGAIN}", with_grid, make)
    for kind, message, make in (
        ("no measures", "measures.json: is missing", remove(f"{CELL}/measures.json")),
        ("pairs that are a pipe", "pairs.parquet: cannot be read: it is a named pipe", pipe(f"{CELL}/pairs.parquet")),
        (
            "run.json cut off",
            wrong("run.json", "not JSON (Expecting value at column 1)"),
            write(f"{CELL}/run.json", ""),
        ),
    )
]


def unreadable(name: str) -> Make:
    """Take the permission to read away."""
    return lambda folder: (folder / name).chmod(0)


if os.geteuid() != 0:  # root reads everything
    ROWS += [
        Bad(
            f"{name}: may not be read",
            REPORT,
            f"run/{name}: cannot be read: permission denied",
            with_run,
            unreadable(f"run/{name}"),
        )
        for name in ("run.json", "measures.json", "pairs.parquet", "sampling.npz")
    ]
