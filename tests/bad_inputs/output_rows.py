"""Files and folders that would be lost, or taken for data, or that cannot be made: refused before any work."""

from bad_inputs.table import Bad, link, pipe, table, with_grid, with_run, write

TRAIN, SCORE = "train data --model model --out", "score data --model model --out"
TABLES = write("tables/train.csv", "query,document\na,b\n")
DATA = ", which OPERA reads as data; pass a folder outside the data"

FOLDERS = [
    *table("train data --model model --out", """
data/corpus.jsonl => --out data/corpus.jsonl: is a file; pass a folder
data/corpus.jsonl/run => --out data/corpus.jsonl/run: data/corpus.jsonl is not a folder that can be written to
data => --out data: is not empty and holds no run; pass an empty or a new folder
out --resume => --out out: holds no run to resume; omit --resume to start
    """),
    Bad("compare data --model model --out data",
        "--out data: is not empty and was not written by opera compare; pass an empty or new folder"),
    Bad(f"{TRAIN} out", "--out out: is a named pipe; pass a folder", pipe("out")),
    Bad(f"{TRAIN} run",
        "--out run: holds a run; pass --resume to continue it, --overwrite to replace it, or another folder",
        with_run),
    Bad("train data --model run --out run --overwrite",
        "--out run: --overwrite would delete run/model, which this command reads; pass another folder", with_run),
    Bad(f"{TRAIN} run --overwrite",
        "--out run: --overwrite would delete run/model/mine.txt, which OPERA did not write; move it away, or pass "
        "another folder", with_run, write("run/model/mine.txt", "mine")),
    Bad(f"{TRAIN} run --overwrite",
        "--out run: --overwrite would delete run/bm25/mine.txt, which OPERA did not write; move it away, or pass "
        "another folder", with_run, write("run/bm25/mine.txt", "mine")),
    Bad(f"{TRAIN} . --overwrite",
        "--out .: --overwrite replaces the folder at the end, so it must not be a mount point or the current folder, "
        "and its parent folder must be writable; pass another folder", with_run, link("run.json", "run/run.json")),
    Bad("train tables --model model --out tables/runs/a", f"--out tables/runs/a: is inside tables{DATA}", TABLES),
    Bad("train tables --model model --out linked/run", f"--out linked/run: is inside tables{DATA}", TABLES,

        link("linked", "tables")),
]  # fmt: skip

OUTPUTS = [
    *table("score data --model model --out", """
data/corpus.jsonl --overwrite => --out data/corpus.jsonl: is read by this command; pass another file
absent/pairs.tsv => --out absent/pairs.tsv: its folder does not exist; create it first
'\x1b[2J\u202e.csv' => --out \\x1b[2J\\u202e.csv: must end in .parquet or .tsv or .jsonl; the suffix decides the
    format
    """),
    Bad("mine data --model model --range 1:5 --out data/qrels/mined.tsv",
        f"--out data/qrels/mined.tsv: is inside data/qrels{DATA}"),
    Bad(f"{SCORE} pairs.tsv", "--out pairs.tsv: exists; pass --overwrite to replace it, or another file",
        write("pairs.tsv", "mine")),
    Bad(f"{SCORE} pairs.tsv --overwrite", "--out pairs.tsv: is a named pipe; pass a file", pipe("pairs.tsv")),
    Bad("evaluate data --model model --run-file model/notes.txt --overwrite",
        "--run-file model/notes.txt: is read by this command; pass another file",
        write("model/notes.txt", "read by whom?")),
    Bad("report grid", "--out grid/report.html: is read by this command; pass another file",
        with_grid, write("grid/report.html", "<p>mine</p>")),
]  # fmt: skip

ROWS = [*FOLDERS, *OUTPUTS]
