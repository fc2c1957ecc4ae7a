"""Folders that are not free for a run, a grid or a quickstart, or cannot be made."""

from __future__ import annotations

from bad_inputs.table import Bad, link, matching, pipe, remove, with_run, write

TRAIN, COMPARE = "train data --model model --out", "compare data --model model --out"
REFUSED = r"\((No such file or directory|Permission denied)\)"  # what root is told, and what others are
TABLES = write("tables/train.csv", "query,document\na,b\n")
LIES = "lies in"
DATA = ", which is read as data, so what is written there would be data too; pass another place"

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
        "output: a run over the recipe that it reads",
        f"{TRAIN} run --overwrite --config run/not_finite.json",
        "--out run: --overwrite would delete run/not_finite.json, which this command reads; pass another folder",
        with_run,
        write("run/not_finite.json", "max_steps: 4"),
    ),
    Bad(
        "output: a run over a model of which nobody knows what is whose",
        f"{TRAIN} run --overwrite",
        "--out run: run/model has no list of the files that OPERA wrote there (.written.json); remove that folder, or "
        "pass another --out",
        with_run,
        remove("run/model/.written.json"),
    ),
    Bad(
        "output: a run to resume with a file in place of a folder",
        f"{TRAIN} run --resume",
        "--resume run: run/checkpoints must be a folder; remove it, or pass --overwrite to start again",
        with_run,
        remove("run/checkpoints"),
        write("run/checkpoints", "mine"),
    ),
    Bad(
        "output: a run in the tables that it reads",
        "train tables --model model --out tables/runs/a",
        f"--out tables/runs/a: {LIES} tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: a run in one of several data sets",
        "train data --also tables --model model --out tables/run",
        f"--out tables/run: {LIES} tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: a run in the folder of pairs",
        "train --pairs tables --model model --out tables/run",
        f"--out tables/run: {LIES} tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: a run in the tables by a link",
        "train tables --model model --out linked/run",
        f"--out linked/run: {LIES} tables{DATA}",
        TABLES,
        link("linked", "tables"),
    ),
    Bad(
        "output: a run among qrels",
        f"{TRAIN} data/qrels/run",
        f"--out data/qrels/run: {LIES} data{DATA}",
    ),
    Bad(
        "output: a run whose name makes another data set of the folder",
        "train files --model model --out files/qrels",
        f"--out files/qrels: {LIES} files{DATA}",
        write("files/train.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'),
    ),
    Bad(
        "output: a grid in the tables that it reads",
        "compare tables --model model --out tables/grid",
        f"--out tables/grid: {LIES} tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: a fetched set in the folder that it is read from",
        "data get hf:tables --out tables/beir",
        f"--out tables/beir: {LIES} tables{DATA}",
        TABLES,
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
