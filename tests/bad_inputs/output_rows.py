"""Files and folders that would be lost, or taken for data, or that cannot be made: refused before any work."""

from __future__ import annotations

from bad_inputs.table import (
    Bad,
    link,
    make_folder,
    pipe,
    table,
    with_grid,
    with_run,
    write,
)  # fmt: skip

TRAIN, COMPARE = "train data --model model --out", "compare data --model model --out"
SCORE, MINE = "score data --model model --out", "mine data --model model --range 1:5 --out"
EVALUATE = "evaluate data --model model --run-file"
TABLES = write("tables/train.csv", "query,document\na,b\n")
FILES = write("files/train.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n')
INSIDE = "is inside"
DATA = ", which OPERA reads as data; pass a folder outside the data"

FOLDERS = [
    *table("train data --model model --out", """
data/corpus.jsonl => --out data/corpus.jsonl: is a file; pass a folder
data/corpus.jsonl/run => --out data/corpus.jsonl/run: data/corpus.jsonl is not a folder that can be written to
data => --out data: is not empty and holds no run; pass an empty or a new folder
data/qrels/run => --out data/qrels/run: is inside data/qrels, which OPERA reads as data; pass a folder
    outside the data
out --resume => --out out: holds no run to resume; omit --resume to start
    """),
    *table("compare data --model model --out", """
data/queries.jsonl => --out data/queries.jsonl: is a file; pass a folder
data => --out data: is not empty and holds no grid; give an empty or a new folder
    """),
    *table("quickstart", """
--out data/corpus.jsonl => --out data/corpus.jsonl/run: data/corpus.jsonl is not a folder that can be written to
    """),
    Bad(f"{TRAIN} out --overwrite", "--out out: is not empty and holds no run; pass an empty or a new folder",
        write("out/notes.txt", "mine")),
    Bad(f"{TRAIN} out", "--out out: is a named pipe; pass a folder", pipe("out")),
    Bad(f"{TRAIN} run",
        "--out run: holds a run; pass --resume to continue it, --overwrite to replace it, or another folder",
        with_run),
    Bad("train data --model run --out run --overwrite",
        "--out run: --overwrite would delete run/model, which this command reads; pass another folder", with_run),
    Bad(f"{TRAIN} run --overwrite --config run/not_finite.json",
        "--out run: --overwrite would delete run/not_finite.json, which this command reads; pass another folder",
        with_run, write("run/not_finite.json", "max_steps: 4")),
    Bad(f"{TRAIN} run --overwrite",
        "--out run: --overwrite would delete run/model/mine.txt, which OPERA did not write; move it away, or pass "
        "another folder", with_run, write("run/model/mine.txt", "mine")),
    Bad("train tables --model model --out tables/runs/a", f"--out tables/runs/a: {INSIDE} tables{DATA}", TABLES),
    Bad("train --pairs tables --model model --out tables/run", f"--out tables/run: {INSIDE} tables{DATA}", TABLES),
    Bad("train tables --model model --out linked/run", f"--out linked/run: {INSIDE} tables{DATA}", TABLES,
        link("linked", "tables")),
    Bad("compare tables --model model --out tables/grid", f"--out tables/grid: {INSIDE} tables{DATA}", TABLES),
    Bad(f"{COMPARE} run", "--out run: is not empty and holds no grid; give an empty or a new folder", with_run),
]  # fmt: skip

OUTPUTS = [
    *table("score data --model model --out", """
data/corpus.jsonl --overwrite => --out data/corpus.jsonl: is read by this command; pass another file
absent/pairs.tsv => --out absent/pairs.tsv: its folder does not exist; create it first
pairs.csv => --out pairs.csv: must end in .parquet or .tsv or .jsonl; the suffix decides the format
'\x1b[2J\u202e.csv' => --out \\x1b[2J\\u202e.csv: must end in .parquet or .tsv or .jsonl; the suffix decides the
    format
    """),
    *table("mine data --model model --range 1:5 --out", """
data/qrels/mined.tsv => --out data/qrels/mined.tsv: is inside data/qrels, which OPERA reads as data; pass a
    folder outside the data
    """),
    *table("evaluate data --model model", """
--run-file x.csv => --run-file x.csv: must end in .trec or .run or .txt; the suffix decides the format
    """),
    Bad(f"{SCORE} q/train.tsv --overwrite",
        "--out q/train.tsv: is read by this command; pass another file",
        link("q", "data/qrels")),
    Bad(f"{SCORE} pairs.tsv", "--out pairs.tsv: exists; pass --overwrite to replace it, or another file",
        write("pairs.tsv", "mine")),
    Bad(f"{SCORE} pairs.tsv --overwrite", "--out pairs.tsv: is a folder; pass a file", make_folder("pairs.tsv")),
    Bad(f"{SCORE} pairs.tsv --overwrite", "--out pairs.tsv: is a named pipe; pass a file", pipe("pairs.tsv")),
    Bad("mine f.jsonl --model model --range 1:2 --out f.jsonl --overwrite",
        "--out f.jsonl: is read by this command; pass another file",
        write("f.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n')),
    Bad("mine tables --model model --range 1:2 --out tables/mined.jsonl",
        f"--out tables/mined.jsonl: is inside tables{DATA}", TABLES),
    Bad("score --pairs tables --model model --out tables/more/pairs.parquet",
        f"--out tables/more/pairs.parquet: is inside tables{DATA}", TABLES, make_folder("tables/more")),
    Bad("mine files --model model --range 1:2 --out files/mined.jsonl",
        f"--out files/mined.jsonl: is inside files{DATA}", FILES),
    Bad("evaluate hf:tables --model model --run-file tables/x.trec",
        f"--run-file tables/x.trec: is inside tables{DATA}", TABLES),
    Bad(f"{EVALUATE} model/notes.txt --overwrite",
        "--run-file model/notes.txt: is read by this command; pass another file",
        write("model/notes.txt", "read by whom?")),
    Bad("report grid", "grid/report.html: exists and is no report that opera wrote; pass --out with another file",
        with_grid, write("grid/report.html", "<p>mine</p>")),
    Bad("report grid --out page.html", "--out page.html: exists; pass --overwrite to replace it, or another file",
        with_grid, write("page.html", "<p>mine</p>")),
    Bad("report grid --out grid/page.html --overwrite",
        "--out grid/page.html: is read by this command; pass another file", with_grid,
        write("grid/page.html", "<p>mine</p>")),
    Bad("report grid --out page.htm", "--out page.htm: must end in .html; the suffix decides the format", with_grid),
]  # fmt: skip

ROWS = [*FOLDERS, *OUTPUTS]
