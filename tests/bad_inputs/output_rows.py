"""Files that would be lost, or that would take the place of something: refused before any work."""

from __future__ import annotations

from bad_inputs.table import Bad, hard_link, link, make_folder, matching, pipe, with_grid, with_run, write

SCORE, MINE = "score data --model model --out", "mine data --model model --range 1:5 --out"
EVALUATE = "evaluate data --model model --run-file"
REFUSED = r"\((No such file or directory|Permission denied)\)"  # what root is told, and what others are
TABLES = write("tables/train.csv", "query,document\na,b\n")
FILES = write("files/train.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n')
DATA = ", which is read as data, so what is written there would be data too; pass another place"

ROWS = [
    Bad(
        "output: a chart where nothing can be made",
        "theory --out /proc/chart.svg",
        matching(rf"--out /proc/chart\.svg: its folder cannot be written to {REFUSED}"),
    ),
    Bad(
        "output: score onto the corpus",
        f"{SCORE} data/corpus.jsonl",
        "--out data/corpus.jsonl: is read by this command; pass another file",
    ),
    Bad(
        "output: score onto the corpus, whatever is allowed",
        f"{SCORE} data/corpus.jsonl --overwrite",
        "--out data/corpus.jsonl: is read by this command; pass another file",
    ),
    Bad(
        "output: score onto the queries by a link",
        f"{SCORE} q.jsonl --overwrite",
        "--out q.jsonl: is the same file as data/queries.jsonl, which this command reads; pass another file",
        link("q.jsonl", "data/queries.jsonl"),
    ),
    Bad(
        "output: score onto the qrels by a hard link",
        f"{SCORE} q.tsv --overwrite",
        "--out q.tsv: is the same file as data/qrels/test.tsv, which this command reads; pass another file",
        hard_link("q.tsv", "data/qrels/test.tsv"),
    ),
    Bad(
        "output: score onto the qrels by a linked folder",
        f"{SCORE} q/train.tsv --overwrite",
        "--out q/train.tsv: is the same file as data/qrels/train.tsv, which this command reads; pass another file",
        link("q", "data/qrels"),
    ),
    Bad(
        "output: score onto the corpus by a long way round",
        f"{SCORE} ../here/./data/../data/corpus.jsonl --overwrite",
        "--out ../here/data/../data/corpus.jsonl: is the same file as data/corpus.jsonl, which this "
        "command reads; pass another file",
    ),
    Bad(
        "output: score onto a file that exists",
        f"{SCORE} pairs.tsv",
        "--out pairs.tsv: exists; pass --overwrite to replace it, or another file",
        write("pairs.tsv", "mine"),
    ),
    Bad(
        "output: score onto a link to nothing",
        f"{SCORE} pairs.tsv",
        "--out pairs.tsv: exists; pass --overwrite to replace it, or another file",
        link("pairs.tsv", "absent.tsv"),
    ),
    Bad(
        "output: score onto a folder",
        f"{SCORE} pairs.tsv --overwrite",
        "--out pairs.tsv: is a folder; pass a file",
        make_folder("pairs.tsv"),
    ),
    Bad(
        "output: score into a pipe",
        f"{SCORE} pairs.tsv --overwrite",
        "--out pairs.tsv: is a named pipe; pass a file",
        pipe("pairs.tsv"),
    ),
    Bad(
        "output: score onto a device",
        f"{SCORE} null.tsv --overwrite",
        "--out null.tsv: is a device; pass a file",
        link("null.tsv", "/dev/null"),
    ),
    Bad(
        "output: score into a folder that is not there",
        f"{SCORE} absent/pairs.tsv",
        "--out absent/pairs.tsv: its folder does not exist; create it first",
    ),
    Bad(
        "output: score into a file",
        f"{SCORE} data/corpus.jsonl/pairs.tsv",
        "--out data/corpus.jsonl/pairs.tsv: its folder does not exist; create it first",
    ),
    Bad(
        "output: score with an unknown suffix",
        f"{SCORE} pairs.csv",
        "--out pairs.csv: must end in .parquet or .tsv or .jsonl; the suffix decides the format",
    ),
    Bad(
        "output: score with a suffix in capitals",
        f"{SCORE} pairs.TSV",
        "--out pairs.TSV: must end in .parquet or .tsv or .jsonl; the suffix decides the format",
    ),
    Bad(
        "output: score without a suffix",
        f"{SCORE} pairs",
        "--out pairs: must end in .parquet or .tsv or .jsonl; the suffix decides the format",
    ),
    Bad(
        "output: score into the folder above",
        f"{SCORE} ..",
        "--out ..: must end in .parquet or .tsv or .jsonl; the suffix decides the format",
    ),
    Bad(
        "output: score with control characters",
        ["score", "data", "--model", "model", "--out", "\x1b[2J\u202e.csv"],
        "--out \\x1b[2J\\u202e.csv: must end in .parquet or .tsv or .jsonl; the suffix decides the format",
    ),
    Bad(
        "output: mine onto its own input",
        "mine f.jsonl --model model --range 1:2 --out f.jsonl",
        "--out f.jsonl: is read by this command; pass another file",
        write("f.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'),
    ),
    Bad(
        "output: mine onto its own input, whatever is allowed",
        "mine f.jsonl --model model --range 1:2 --out f.jsonl --overwrite",
        "--out f.jsonl: is read by this command; pass another file",
        write("f.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'),
    ),
    Bad(
        "output: mine onto a linked input",
        "mine f.jsonl --model model --range 1:2 --out g.jsonl --overwrite",
        "--out g.jsonl: is the same file as f.jsonl, which this command reads; pass another file",
        write("f.jsonl", '{"query": "a", "pos": ["b"], "neg": ["c"]}\n'),
        link("g.jsonl", "f.jsonl"),
    ),
    Bad(
        "output: mine onto the qrels",
        f"{MINE} data/qrels/train.tsv --overwrite",
        "--out data/qrels/train.tsv: lies in data/qrels, which this command reads; pass another file",
    ),
    Bad(
        "output: mine into the tables that it reads",
        "mine tables --model model --range 1:2 --out tables/mined.jsonl",
        f"--out tables/mined.jsonl: lies in tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: score into a folder of the tables that it reads",
        "score --pairs tables --model model --out tables/more/pairs.parquet",
        f"--out tables/more/pairs.parquet: lies in tables{DATA}",
        TABLES,
        make_folder("tables/more"),
    ),
    Bad(
        "output: mine into the training files that it reads",
        "mine files --model model --range 1:2 --out files/mined.jsonl",
        f"--out files/mined.jsonl: lies in files{DATA}",
        FILES,
    ),
    Bad(
        "output: mine what a pattern would take for data",
        ["mine", "files/*.jsonl", "--model", "model", "--range", "1:2", "--out", "files/mined.jsonl"],
        f"--out files/mined.jsonl: lies in files/*.jsonl{DATA}",
        FILES,
    ),
    Bad(
        "output: mine a split into the qrels",
        f"{MINE} data/qrels/mined.tsv",
        f"--out data/qrels/mined.tsv: lies in data{DATA}",
    ),
    Bad(
        "output: a ranking into a folder of the hub",
        "evaluate hf:tables --model model --run-file tables/x.trec",
        f"--run-file tables/x.trec: lies in tables{DATA}",
        TABLES,
    ),
    Bad(
        "output: mine onto a file that exists",
        f"{MINE} mined.jsonl",
        "--out mined.jsonl: exists; pass --overwrite to replace it, or another file",
        write("mined.jsonl", ""),
    ),
    Bad(
        "output: mine into a pipe",
        f"{MINE} mined.jsonl --overwrite",
        "--out mined.jsonl: is a named pipe; pass a file",
        pipe("mined.jsonl"),
    ),
    Bad(
        "output: mine with an unknown suffix",
        f"{MINE} mined.parquet",
        "--out mined.parquet: must end in .jsonl or .tsv; the suffix decides the format",
    ),
    Bad(
        "output: mine into a folder that is not there",
        f"{MINE} absent/mined.jsonl",
        "--out absent/mined.jsonl: its folder does not exist; create it first",
    ),
    Bad(
        "output: a ranking onto a file that exists",
        f"{EVALUATE} x.trec",
        "--run-file x.trec: exists; pass --overwrite to replace it, or another file",
        write("x.trec", "q Q0 d 1 1 me"),
    ),
    Bad(
        "output: a ranking onto a file of the model",
        f"{EVALUATE} model/notes.txt --overwrite",
        "--run-file model/notes.txt: lies in model, which this command reads; pass another file",
        write("model/notes.txt", "read by whom?"),
    ),
    Bad(
        "output: a ranking onto a link to the corpus",
        f"{EVALUATE} x.trec --overwrite",
        "--run-file x.trec: is the same file as data/corpus.jsonl, which this command reads; pass another file",
        link("x.trec", "data/corpus.jsonl"),
    ),
    Bad(
        "output: a ranking with an unknown suffix",
        f"{EVALUATE} x.csv",
        "--run-file x.csv: must end in .trec or .run or .txt; the suffix decides the format",
    ),
    Bad(
        "output: a ranking onto a folder",
        f"{EVALUATE} x.run --overwrite",
        "--run-file x.run: is a folder; pass a file",
        make_folder("x.run"),
    ),
    Bad(
        "output: a ranking into a folder that is not there",
        f"{EVALUATE} absent/x.run",
        "--run-file absent/x.run: its folder does not exist; create it first",
    ),
    Bad(
        "output: a chart onto a file that exists",
        "theory --out chart.svg",
        "--out chart.svg: exists; pass --overwrite to replace it, or another file",
        write("chart.svg", "<svg/>"),
    ),
    Bad(
        "output: the default chart onto a file that exists",
        "theory",
        "--out theory.svg: exists; pass --overwrite to replace it, or another file",
        write("theory.svg", "<svg/>"),
    ),
    Bad(
        "output: a chart with an unknown suffix",
        "theory --out chart.gif",
        "--out chart.gif: must end in .svg or .png or .pdf; the suffix decides the format",
    ),
    Bad(
        "output: a chart into a pipe",
        "theory --out chart.png --overwrite",
        "--out chart.png: is a named pipe; pass a file",
        pipe("chart.png"),
    ),
    Bad(
        "output: a chart into a folder that is not there",
        "theory --out absent/chart.pdf",
        "--out absent/chart.pdf: its folder does not exist; create it first",
    ),
    Bad(
        "output: a report onto a page of someone's",
        "report grid",
        "grid/report.html: exists and is no report that opera wrote; pass --out with another file",
        with_grid,
        write("grid/report.html", "<p>mine</p>"),
    ),
    Bad(
        "output: a report onto a page of someone's, by name",
        "report grid --out page.html",
        "--out page.html: exists; pass --overwrite to replace it, or another file",
        with_grid,
        write("page.html", "<p>mine</p>"),
    ),
    Bad(
        "output: a report onto a page in the folder it reads",
        "report grid --out grid/page.html --overwrite",
        "--out grid/page.html: lies in grid, which this command reads; pass another file",
        with_grid,
        write("grid/page.html", "<p>mine</p>"),
    ),
    Bad(
        "output: a report with an unknown suffix",
        "report grid --out page.htm",
        "--out page.htm: must end in .html; the suffix decides the format",
        with_grid,
    ),
    Bad(
        "output: a report onto a folder",
        "report grid --out page.html --overwrite",
        "--out page.html: is a folder; pass a file",
        with_grid,
        make_folder("page.html"),
    ),
    Bad(
        "output: a report into a folder that is not there",
        "report grid --out absent/page.html",
        "--out absent/page.html: its folder does not exist; create it first",
        with_grid,
    ),
    Bad(
        "output: the default report onto a pipe",
        "report run",
        "--out run/report.html: is a named pipe; pass a file",
        with_run,
        pipe("run/report.html"),
    ),
]
