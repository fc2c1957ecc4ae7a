"""Values that ``compare``, ``report``, ``paper``, ``theory`` and ``quickstart`` do not take."""

from __future__ import annotations

from bad_inputs.table import Bad, link, matching, with_grid, write

COMPARE = "compare data --model model --out grid"

ROWS = [
    Bad(
        "compare: one train query, from which no dev can be drawn",
        COMPARE,
        "data: has no split 'dev', and 1 train queries are too few to draw one; the guard needs one, so "
        "pass guard=false",
        write("data/qrels/train.tsv", "query-id\tcorpus-id\tscore\ntrain0\td0\t1\n"),
    ),
    Bad(
        "compare: one data set under two names",
        "compare data ./data --model model --out grid",
        "DATA: data and ./data are the same place; give it once",
    ),
    Bad(
        "compare: one data set by a link to it",
        "compare data also --model model --out grid",
        "DATA: data and also are the same place; give it once",
        link("also", "data"),
    ),
    Bad(
        "compare: a range past the corpus",
        f"{COMPARE} --methods ft,sp:negatives=hard:range=500:600",
        "range=500:600 starts past the end of the corpus (40 documents)",
    ),
    Bad(
        "compare: seeds in words",
        f"{COMPARE} --seeds one",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got 'one'",
    ),
    Bad(
        "compare: a seed below zero",
        f"{COMPARE} --seeds 0,-1",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got '-1'",
    ),
    Bad(
        "compare: a seed beyond 32 bits",
        f"{COMPARE} --seeds 99999999999",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got '99999999999'",
    ),
    Bad(
        "compare: a seed of 5,000 digits",
        f"{COMPARE} --seeds {'7' * 5000}",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got "
        "'7777777777777777777777777777777777777777777777777…77777777777777777777777777777777777777777777"
        "7777'",
    ),
    Bad(
        "compare: a seed in other digits",
        f"{COMPARE} --seeds ١",
        "--seeds: must be whole numbers separated by commas, such as 0,1,2, got '١'",
    ),
    Bad("compare: no seeds", [*COMPARE.split(), "--seeds", ","], "--seeds: give at least one"),
    Bad("compare: a seed twice", f"{COMPARE} --seeds 0,0", "--seeds: 0 is given twice"),
    Bad(
        "compare: steps in words",
        f"{COMPARE} --steps few",
        "--steps: must be whole numbers separated by commas, such as 100,1000, got 'few'",
    ),
    Bad("compare: no methods", [*COMPARE.split(), "--methods", " , "], "--methods: give at least one"),
    Bad(
        "compare: an unknown method",
        f"{COMPARE} --methods ft,dq",
        "dq: unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad("compare: a method twice", f"{COMPARE} --methods ft,FT", "--methods: ft is given twice"),
    Bad(
        "compare: a label that holds a path",
        f"{COMPARE} --methods sp:score=../../../tmp/x",
        "sp:score=../../../tmp/x: names a folder, so it must hold no space, slash or control character; "
        "use --set for those",
    ),
    Bad(
        "compare: a label that leads elsewhere",
        f"{COMPARE} --methods ft:loss=infonce/../../../x",
        "ft:loss=infonce/../../../x: names a folder, so it must hold no space, slash or control "
        "character; use --set for those",
    ),
    Bad(
        "compare: a label with control characters",
        [*COMPARE.split(), "--methods", "sp:k=\x1b[31m0.5"],
        "sp:k=\\x1b[31m0.5: names a folder, so it must hold no space, slash or control character; use --set for those",
    ),
    Bad(
        "compare: a label with a tab",
        [*COMPARE.split(), "--methods", "sp:k=0.5\t:score=cbs"],
        "sp:k=0.5\\t:score=cbs: names a folder, so it must hold no space, slash or control character; "
        "use --set for those",
    ),
    Bad(
        "compare: a label too long for a folder",
        f"{COMPARE} --methods ft:precision={'0' * 300}",
        "ft:precision=0000000000000000000000000000000000000…00000000000000000000000000000000000000000000"
        "00000: names a folder, so it must have at most 200 bytes; use --set for some settings",
    ),
    Bad(
        "compare: a label of dots",
        f"{COMPARE} --methods ft,..",
        "..: names a folder, so it must hold no space, slash or control character; use --set for those",
    ),
    Bad(
        "compare: a label without a value",
        f"{COMPARE} --methods sp:k",
        "sp:k: unknown method 'sp:k'; did you mean 'sp'? (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "compare: a label with another method's setting",
        f"{COMPARE} --methods ft:k=0.5",
        "ft:k=0.5: setting 'k' applies only to the methods rp, sp, sp+cbs and sp+dp; this run's method is ft",
    ),
    Bad(
        "compare: an unknown baseline", f"{COMPARE} --baseline dq", "--baseline dq: must be one of the methods: ft, dp"
    ),
    Bad(
        "compare: a baseline that is not among the methods",
        f"{COMPARE} --methods ft,dp --baseline sp",
        "--baseline sp: must be one of the methods: ft, dp",
    ),
    Bad("compare: no jobs", f"{COMPARE} --jobs 0", "--jobs: must be 1 to 1000, got 0"),
    Bad("compare: 10⁹ jobs", f"{COMPARE} --jobs 1000000000", "--jobs: must be 1 to 1000, got 1000000000"),
    Bad(
        "compare: an unknown measure for the best model",
        f"{COMPARE} --set metric_for_best_model=best",
        "unknown measure 'best'; did you mean 'SetR@10'? (known: retrieved_ideal_nDCG, and those of "
        "https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
    ),
    Bad(
        "report: an unknown baseline",
        "report grid --baseline dp",
        "--baseline dp: no run has this label; there are ft, rp:k=0.5",
        with_grid,
    ),
    Bad(
        "report: a file in place of the folder of tables",
        "report grid --tables tables",
        "--tables tables: is a file; pass a folder",
        with_grid,
        write("tables", "mine"),
    ),
    Bad(
        "report: a table that is there",
        "report grid --tables .",
        matching(r"--tables .*data-cost-4\.csv: exists; pass --overwrite to replace it, or another folder"),
        with_grid,
        write("data-cost-4.csv", "mine"),
    ),
    Bad(
        "paper: an unknown table",
        "paper --table mian",
        "--table mian: no such table; did you mean 'main'? (known: main, qwen3, hierarchy, overhead, "
        "overhead-fever, denoising, cbs, components, bge-m3, reversed, difficulty, retention, full, "
        "qwen3-full)",
    ),
    Bad(
        "paper: a table with control characters",
        ["paper", "--table", "\x1b[31m"],
        "--table \\x1b[31m: no such table (known: main, qwen3, hierarchy, overhead, overhead-fever, "
        "denoising, cbs, components, bge-m3, reversed, difficulty, retention, full, qwen3-full)",
    ),
    Bad(
        "paper: steps without a grid",
        "paper --table main --steps 5",
        "--steps and --set pick runs of a grid: give --grid FOLDER too",
    ),
    Bad(
        "paper: data without a table",
        "paper --data fiqa",
        "needs --table: which of the paper's tables (opera paper lists them)",
    ),
    Bad(
        "paper: unknown data",
        "paper --table main --data nosuch",
        "--data nosuch: table main has no such data set (it has: NFCorpus, TripClick (head), TripClick "
        "(torso), FiQA, ANTIQUE, TriviaQA, HotpotQA, FEVER)",
    ),
    Bad(
        "paper: no steps",
        "paper --table main --grid grid --steps 0",
        "--steps: must be greater than or equal to 1, got '0'; see opera paper --help",
        with_grid,
    ),
    Bad(
        "paper: a setting without a value",
        "paper --table main --grid grid --set k",
        "--set k: must be key=value, such as --set temperature=0.05",
        with_grid,
    ),
    Bad("theory: noise beyond one", "theory --noise 1.5", "noise: must be less than 1, got 1.5"),
    Bad("theory: noise that is none", "theory --noise nan", "noise: must be a finite number, got nan"),
    Bad("theory: an infinite AUC", "theory --auc inf", "auc: must be a finite number, got inf"),
    Bad("theory: an AUC of zero", "theory --noise 0.2 --auc 0", "auc: must be greater than 0, got 0.0"),
    Bad(
        "theory: an unknown setting", "theory --set gamma=1", "unknown setting 'gamma' (opera theory --help lists all)"
    ),
    Bad(
        "theory: a setting with an option of its own",
        "theory --set noise=0.1",
        "--set noise: has an option of its own, --noise; use that",
    ),
    Bad(
        "theory: more repeats than there is time",
        "theory --set repeats=10000000000",
        "repeats: must be less than or equal to 1000000, got 10000000000",
    ),
    Bad(
        "theory: an infinite concentration",
        "theory --set concentration=.inf",
        "concentration: must be a finite number, got inf",
    ),
    Bad("theory: true for a number", "theory --set documents=true", "documents: must be a whole number, got True"),
    Bad(
        "quickstart: an unknown method",
        "quickstart --out q --method dq",
        "unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "quickstart: a seed below zero",
        "quickstart --out q --seed -1",
        "--seed: must be greater than or equal to 0, got '-1'; see opera quickstart --help",
    ),
]
