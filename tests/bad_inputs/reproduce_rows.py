"""Values that ``opera reproduce`` does not take, and folders that it does not touch."""

from __future__ import annotations

from bad_inputs.table import Bad, edit, matching, with_grid, write

SMALL = "reproduce main --scale small --data nfcorpus=data --model model --out here"

ROWS = [
    Bad(
        "reproduce: an unknown table",
        "reproduce mian",
        matching(r"TABLE mian: no such table; did you mean 'main'\? \(known: main, .*\)"),
    ),
    Bad(
        "reproduce: a table with control characters",
        ["reproduce", "\x1b[31m"],
        matching(r"TABLE \\x1b\[31m: no such table \(known: main, .*\)"),
    ),
    Bad(
        "reproduce: a data set that is not in the table",
        "reproduce components --data fiqa",
        "--data fiqa: table components has no such data set (it has: fever)",
    ),
    Bad(
        "reproduce: a data set twice",
        f"{SMALL} --data nfcorpus",
        "--data: nfcorpus is given twice",
    ),
    Bad("reproduce: no data set", "reproduce main --data ,", "--data: give at least one data set"),
    Bad(
        "reproduce: a data set in an empty place",
        "reproduce main --data nfcorpus=",
        "--data nfcorpus: must not be empty",
    ),
    Bad(
        "reproduce: data that are not there",
        SMALL.replace("=data", "=absent"),
        matching(r"nfcorpus: absent: no such file or folder; [^\n]*"),
    ),
    Bad(
        "reproduce: a plan of data that are not there",
        SMALL.replace("=data", "=absent") + " --plan",
        matching(r"nfcorpus: absent: no such file or folder; [^\n]*"),
    ),
    Bad(
        "reproduce: a table of large data sets at a small scale",
        "reproduce components --scale small --plan",
        "fever: 5,416,568 documents are many for --scale small; --data fever takes it all the same",
    ),
    Bad(
        "reproduce: a plan with a grade that no pair has",
        f"{SMALL} --plan --set relevant_grade=99",
        matching("data: .*grade.*"),
    ),
    Bad(
        "reproduce: a plan in a folder with another grid",
        SMALL.replace("--out here", "--out grid") + " --plan",
        matching("--out grid: holds a grid with settings .*; give another folder"),
        with_grid,
    ),
    Bad(
        "reproduce: too many shards",
        f"{SMALL} --shard 1/1000000",
        "--shard: must be K/N with 1 <= K <= N <= 100,000, such as 3/32, got '1/1000000'",
    ),
    Bad(
        "reproduce: an error in the data",
        SMALL,
        matching(r"nfcorpus: data/qrels/test.tsv:2: .* got 'high'[^\n]*"),
        edit("data/qrels/test.tsv", 2, "test0\td1\thigh"),
    ),
    Bad(
        "reproduce: a method that the table has not",
        f"{SMALL} --methods ft,rp",
        "--methods rp: table main has no such method (it has: ft, infobatch, sp, dp)",
    ),
    Bad(
        "reproduce: seeds in words",
        f"{SMALL} --seeds one",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got 'one'",
    ),
    Bad("reproduce: a seed twice", f"{SMALL} --seeds 0,0", "--seeds: 0 is given twice"),
    Bad("reproduce: no methods", [*SMALL.split(), "--methods", ","], "--methods: give at least one"),
    Bad(
        "reproduce: an unknown preset",
        f"{SMALL} --preset papers",
        "--preset papers: must be paper or release; did you mean 'paper'?",
    ),
    Bad("reproduce: an unknown scale", f"{SMALL} --scale tiny", "--scale tiny: must be full or small"),
    Bad(
        "reproduce: a shard beyond the last",
        f"{SMALL} --shard 3/2",
        "--shard: must be K/N with 1 <= K <= N <= 100,000, such as 3/32, got '3/2'",
    ),
    Bad(
        "reproduce: a shard in words",
        f"{SMALL} --shard first",
        "--shard: must be K/N with 1 <= K <= N <= 100,000, such as 3/32, got 'first'",
    ),
    Bad(
        "reproduce: a shard of a table that is only made",
        f"{SMALL} --shard 1/2 --table-only",
        "--shard runs a part of the cells and --table-only none: give one of them",
    ),
    Bad(
        "reproduce: a table of no runs",
        f"{SMALL} --table-only",
        "--out here: no cell of table main is finished; the same command without --table-only runs them",
    ),
    Bad(
        "reproduce: steps, which the table decides",
        f"{SMALL} --set max_steps=5",
        matching("--set max_steps: the table and its options decide it; .*"),
    ),
    Bad("reproduce: an unknown setting", f"{SMALL} --set temprature=1", matching(".*did you mean 'temperature'.*")),
    Bad(
        "reproduce: a model that is none",
        SMALL.replace("--model model", "--model data"),
        matching("data: not a model.*"),
    ),
    Bad(
        "reproduce: a folder with something else",
        SMALL,
        "--out here: is not empty and holds no grid; give an empty or a new folder",
        write("here/notes", "mine"),
    ),
    Bad("reproduce: a file for a folder", SMALL, "--out here: is a file; pass a folder", write("here", "mine")),
    Bad(
        "reproduce: a folder with another grid",
        SMALL.replace("--out here", "--out grid"),
        "--out grid: holds a grid with settings per_device_train_batch_size=4, refit=false; this call has the default "
        "per_device_train_batch_size, the default refit; give another folder",
        with_grid,
    ),
    Bad("reproduce: a seed beyond 32 bits", f"{SMALL} --seeds 9999999999", matching("seed: must be less than .*")),
    Bad("reproduce: no jobs", f"{SMALL} --jobs 0", "--jobs: must be 1 to 1000, got 0"),
]
