"""Folders that are not free for a run, a grid or a quickstart, or cannot be made."""

from __future__ import annotations

from bad_inputs.table import Bad, link, matching, pipe, with_run, write

TRAIN, COMPARE = "train data --model model --out", "compare data --model model --out"
REFUSED = r"\((No such file or directory|Permission denied)\)"  # what root is told, and what others are

ROWS = [
    Bad(
        "output: a run where nothing can be made",
        "train data --model model --out /proc/run",
        matching(rf"--out /proc/run: /proc cannot be written to {REFUSED}"),
    ),
    Bad("output: a run onto a file", f"{TRAIN} data/corpus.jsonl", "--out data/corpus.jsonl: is a file; pass a folder"),
    Bad(
        "output: a run below a file",
        f"{TRAIN} data/corpus.jsonl/run",
        "--out data/corpus.jsonl/run: data/corpus.jsonl is not a folder that can be written to",
    ),
    Bad(
        "output: a run into the data",
        f"{TRAIN} data",
        "--out data: is not empty and holds no run; pass an empty or a new folder",
    ),
    Bad(
        "output: a run into the data, whatever is allowed",
        f"{TRAIN} data --overwrite",
        "--out data: is not empty and holds no run; pass an empty or a new folder",
    ),
    Bad(
        "output: a run into the model",
        f"{TRAIN} model --overwrite",
        "--out model: is not empty and holds no run; pass an empty or a new folder",
    ),
    Bad(
        "output: a run into a folder with a file",
        f"{TRAIN} out --overwrite",
        "--out out: is not empty and holds no run; pass an empty or a new folder",
        write("out/notes.txt", "mine"),
    ),
    Bad("output: a run onto a pipe", f"{TRAIN} out", "--out out: is a named pipe; pass a folder", pipe("out")),
    Bad(
        "output: a run onto a link to nothing",
        f"{TRAIN} out",
        "--out out: is a link to nothing; pass a folder",
        link("out", "absent"),
    ),
    Bad("output: a run onto a device", f"{TRAIN} /dev/null", "--out /dev/null: is a device; pass a folder"),
    Bad(
        "output: a run where there is one",
        f"{TRAIN} run",
        "--out run: holds another run; pass --resume to continue it, --overwrite to replace it, or another folder",
        with_run,
    ),
    Bad(
        "output: a run over the run whose model it trains",
        "train data --model run --out run --overwrite",
        "--out run: --overwrite would delete run/model, which this command reads; pass another folder",
        with_run,
    ),
    Bad(
        "output: a run over the model in it",
        "train data --model run/model --out run --overwrite",
        "--out run: --overwrite would delete run/model, which this command reads; pass another folder",
        with_run,
    ),
    Bad(
        "output: a run to resume that is not there",
        f"{TRAIN} out --resume",
        "--out out: holds no run to resume; omit --resume to start one",
    ),
    Bad(
        "output: a grid onto a file",
        f"{COMPARE} data/queries.jsonl",
        "--out data/queries.jsonl: is a file; pass a folder",
    ),
    Bad(
        "output: a grid into the data",
        f"{COMPARE} data",
        "--out data: is not empty and holds no grid; give an empty or a new folder",
    ),
    Bad(
        "output: a grid into a run",
        f"{COMPARE} run",
        "--out run: is not empty and holds no grid; give an empty or a new folder",
        with_run,
    ),
    Bad("output: a grid onto a pipe", f"{COMPARE} out", "--out out: is a named pipe; pass a folder", pipe("out")),
    Bad(
        "output: a grid onto a link to nothing",
        f"{COMPARE} out",
        "--out out: is a link to nothing; pass a folder",
        link("out", "absent"),
    ),
    Bad(
        "output: a quickstart onto a file",
        "quickstart --out data/corpus.jsonl",
        "--out data/corpus.jsonl/run: data/corpus.jsonl is not a folder that can be written to",
    ),
    Bad(
        "output: a quickstart onto a pipe",
        "quickstart --out out",
        "--out out/run: out is not a folder that can be written to",
        pipe("out"),
    ),
]
