"""Bad command lines: unknown and missing words, values that no option takes, and options that contradict each other."""

from __future__ import annotations

from bad_inputs.table import Bad, matching, with_grid, with_run

TRAIN = "train data --model model --out run"
REFUSED = r"\((No such file or directory|Permission denied)\)"  # what root is told, and what others are
COMPARE = "compare data --model model --out grid"

ROWS = [
    Bad("command: unknown", "nonsense", "no such command 'nonsense'; see opera --help"),
    Bad(
        "command: unknown, with an escape character",
        ["\x1b[31mtrain\x07"],
        "no such command '\\x1b[31mtrain\\x07'; did you mean 'train'?; see opera --help",
    ),
    Bad(
        "command: an option before it",
        "--json train",
        "no such option: --json (Possible options: --version); see opera --help",
    ),
    Bad(
        "option: unknown",
        "train data --model model --out run --folds 3",
        "no such option: --folds; see opera train --help",
    ),
    Bad(
        "option: unknown, with an escape character",
        ["evaluate", "data", "--\x1b[2J\u202e", "x"],
        "no such option: --\\x1b[2J\\u202e; see opera evaluate --help",
    ),
    Bad(
        "option: misspelt",
        f"{TRAIN} --methid dp",
        "no such option: --methid (Possible options: --method, --set); see opera train --help",
    ),
    Bad(
        "option: without its value",
        "train data --model model --out",
        "option '--out' requires an argument; see opera --help",
    ),
    Bad(
        "option: a flag with a value",
        "evaluate data --model model --json=yes",
        "option '--json' does not take a value; see opera --help",
    ),
    Bad("train: no data", "train --model model --out run", "missing argument 'DATA'; see opera train --help"),
    Bad("train: no folder", "train data --model model", "missing option '--out'; see opera train --help"),
    Bad(
        "train: no model",
        "train data --out run",
        "--model: give a model, or its vectors with --query-vectors and --document-vectors",
    ),
    Bad(
        "train: two data sets",
        "train data data --model model --out run",
        "got unexpected extra argument(s) (data); see opera train --help",
    ),
    Bad("evaluate: no model", "evaluate data", "missing option '--model'; see opera evaluate --help"),
    Bad(
        "evaluate: a model in place of data",
        "evaluate model data",
        "missing option '--model'; evaluate takes one data set: opera evaluate my-data --model run",
    ),
    Bad("score: no file", "score data --model model", "missing option '--out'; see opera score --help"),
    Bad("mine: no file", "mine data --model model", "missing option '--out'; see opera mine --help"),
    Bad("compare: no data", "compare --model model --out grid", "missing argument 'DATA...'; see opera compare --help"),
    Bad("inspect: no model", "inspect data", "missing option '--model'; see opera inspect --help"),
    Bad("report: no folder", "report", "missing argument 'GRID|RUN'; see opera report --help"),
    Bad("search: no query", "search data --model model", "missing argument 'QUERY'; see opera search --help"),
    Bad(
        "search: three arguments",
        "search run data garlic --model model",
        "got unexpected extra argument(s) (garlic); search takes one data set and one query: opera "
        "search my-data QUERY --model run",
    ),
    Bad("search: an empty query", ["search", "data", "", "--model", "model"], "query: must not be empty"),
    Bad(
        "search: a query of white space",
        ["search", "data", " \t\u2003", "--model", "model"],
        "query: must not be empty",
    ),
    Bad(
        "search: a query that is no UTF-8",
        ["search", "data", "caf\udce9", "--model", "model"],
        "query: text holds half a character ('\\udce9'); remove it",
    ),
    Bad(
        "search: none wanted",
        "search data words --model model --top 0",
        "--top: must be greater than or equal to 1, got '0'; see opera search --help",
    ),
    Bad(
        "search: more than anyone reads",
        "search data words --model model --top 1000000000000000000000",
        "--top: must be less than or equal to 1000000000, got '1000000000000000000000'; see opera search --help",
    ),
    Bad(
        "search: a number in words",
        "search data words --model model --top five",
        "--top: must be a whole number, got 'five'; see opera search --help",
    ),
    Bad(
        "train: steps are no number",
        f"{TRAIN} --steps 1e",
        "--steps: must be a whole number, got '1e'; see opera train --help",
    ),
    Bad(
        "train: steps with an escape character",
        [*TRAIN.split(), "--steps", "\x9b2J"],
        "--steps: must be a whole number, got '\\x9b2J'; see opera train --help",
    ),
    Bad(
        "train: half a step",
        f"{TRAIN} --steps 0.5",
        "--steps: must be a whole number, got '0.5'; see opera train --help",
    ),
    Bad("train: no steps", f"{TRAIN} --steps 0", "max_steps: must be greater than or equal to 1, got 0"),
    Bad(
        "train: more steps than there are seconds",
        f"{TRAIN} --steps 1000000000000000000",
        "max_steps: must be less than or equal to 1000000000, got 1000000000000000000",
    ),
    Bad(
        "train: steps of 5,000 digits",
        f"{TRAIN} --steps {'9' * 5000}",
        "--steps: must be a whole number of fewer digits, got "
        "'9999999999999999999999999999999999999999999999999…99999999999999999999999999999999999999999999"
        "9999'; see opera train --help",
    ),
    Bad(
        "train: steps and epochs",
        f"{TRAIN} --steps 3 --epochs 2",
        "epochs=2 and max_steps=3: both say how long to train; give one of them",
    ),
    Bad("train: epochs without end", f"{TRAIN} --epochs inf", "epochs: must be a finite number, got inf"),
    Bad("train: no epochs", f"{TRAIN} --epochs 0", "epochs: must be greater than 0, got 0.0"),
    Bad("train: epochs that are none", f"{TRAIN} --epochs nan", "epochs: must be a finite number, got nan"),
    Bad(
        "train: a rate of 1e300", f"{TRAIN} --lr 1e300", "learning_rate: must be less than or equal to 100, got 1e+300"
    ),
    Bad("train: a rate below zero", f"{TRAIN} --lr -1", "learning_rate: must be greater than 0, got -1.0"),
    Bad("train: an infinite rate", f"{TRAIN} --lr inf", "learning_rate: must be a finite number, got inf"),
    Bad(
        "train: a batch of 10⁹",
        f"{TRAIN} --batch-size 1000000000",
        "per_device_train_batch_size: must be less than or equal to 100000, got 1000000000",
    ),
    Bad(
        "train: an empty batch",
        f"{TRAIN} --batch-size 0",
        "per_device_train_batch_size: must be greater than or equal to 1, got 0",
    ),
    Bad("train: a seed below zero", f"{TRAIN} --seed -1", "seed: must be greater than or equal to 0, got -1"),
    Bad(
        "train: a seed beyond 32 bits",
        f"{TRAIN} --seed 4294967296",
        "seed: must be less than 4294967296, got 4294967296",
    ),
    Bad("train: a setting twice", f"{TRAIN} --set lag=1 --set lag=2", "--set lag: given twice"),
    Bad(
        "train: a setting by both of its names",
        f"{TRAIN} --set lr=1 --set learning_rate=1",
        "given twice, as lr and as learning_rate: leave one of them out",
    ),
    Bad(
        "train: a setting by its option and by --set",
        f"{TRAIN} --steps 3 --set max_steps=3",
        "given twice, by its own option and by --set: max_steps",
    ),
    Bad(
        "output: a chart where nothing can be made",
        "theory --out /proc/chart.svg",
        matching(rf"--out /proc/chart\.svg: its folder cannot be written to {REFUSED}"),
    ),
    Bad(
        "output: a run where nothing can be made",
        "train data --model model --out /proc/run",
        matching(rf"--out /proc/run: /proc cannot be written to {REFUSED}"),
    ),
    Bad(
        "train: an unknown method",
        f"{TRAIN} --method dq",
        "unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: no method",
        [*TRAIN.split(), "--method", ""],
        "unknown method '' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method that is a path",
        f"{TRAIN} --method ../../dp",
        "unknown method '../../dp' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method with control characters",
        [*TRAIN.split(), "--method", "dp\x1b[31m\u202e"],
        "unknown method 'dp\\x1b[31m\\u202e' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method of 10,000 letters",
        f"{TRAIN} --method {'m' * 10_000}",
        "unknown method "
        "'mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm…mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"
        "mmmmmm' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method with settings",
        f"{TRAIN} --method sp:k=0.5",
        "--method sp:k=0.5: settings after colons are for opera compare; use --method sp --set k=0.5",
    ),
    Bad(
        "train: an unknown preset", f"{TRAIN} --preset release2", "preset: must be 'paper' or 'release', got 'release2'"
    ),
    Bad(
        "train: unknown negatives",
        f"{TRAIN} --negatives harder",
        "negatives: must be 'random', 'hard' or 'given', got 'harder'",
    ),
    Bad(
        "train: a range without hard negatives",
        f"{TRAIN} --range 1:50",
        "range=1:50 needs negatives=hard, but negatives is auto",
    ),
    Bad(
        "train: a range backwards",
        f"{TRAIN} --negatives hard --range 50:1",
        "range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '50:1'",
    ),
    Bad(
        "train: a range from zero",
        f"{TRAIN} --negatives hard --range 0:5",
        "range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '0:5'",
    ),
    Bad(
        "train: a range of one rank",
        f"{TRAIN} --negatives hard --range 5",
        "range: must be LO:HI, two ranks such as 10:100, got '5'",
    ),
    Bad(
        "train: a range in other digits",
        f"{TRAIN} --negatives hard --range ١:٥",
        "range: must be LO:HI, two ranks such as 10:100, got '١:٥'",
    ),
    Bad(
        "train: a range beyond the corpus",
        f"{TRAIN} --negatives hard --range 500:600",
        "range=500:600 starts past the end of the corpus (40 documents)",
    ),
    Bad(
        "train: given negatives where there are none",
        f"{TRAIN} --negatives given",
        "negatives=given: data holds no negatives; use negatives=random or negatives=hard",
    ),
    Bad(
        "train: an unknown adapter",
        f"{TRAIN} --adapter documents",
        "adapter: must be 'query' or 'both', got 'documents'",
    ),
    Bad(
        "train: a gain required without the guard",
        f"{TRAIN} --require-gain --set guard=false",
        "--require-gain: needs the guard's verdict, but guard is false; pass --set guard=true",
    ),
    Bad(
        "train: resume and overwrite",
        f"{TRAIN} --resume --overwrite",
        "--resume continues a run and --overwrite replaces it: pass one of the two",
        with_run,
    ),
    Bad(
        "train: query vectors alone",
        "train data --out run --query-vectors q.npy",
        "query_vectors needs document_vectors: give both files",
    ),
    Bad(
        "evaluate: an unknown split",
        "evaluate data --model model --split dev",
        "data: has no split 'dev' (it has: test, train)",
    ),
    Bad(
        "evaluate: no split",
        ["evaluate", "data", "--model", "model", "--split", ""],
        "data: has no split '' (it has: test, train)",
    ),
    Bad(
        "evaluate: a split with control characters",
        ["evaluate", "data", "--model", "model", "--split", "\x1b]0;t\x07"],
        "data: has no split '\\x1b]0;t\\x07' (it has: test, train)",
    ),
    Bad(
        "evaluate: no measure",
        ["evaluate", "data", "--model", "model", "--measures", ""],
        "measures: name at least one, such as nDCG@10",
    ),
    Bad(
        "evaluate: an empty measure among others",
        "evaluate data --model model --measures nDCG@10,,AP",
        "measures: name at least one, such as nDCG@10",
    ),
    Bad(
        "evaluate: a measure without its cutoff",
        "evaluate data --model model --measures R",
        "unknown measure 'R': R needs a cutoff, such as R@10",
    ),
    Bad(
        "evaluate: an unknown measure",
        "evaluate data --model model --measures ndgc@10",
        "unknown measure 'ndgc@10'; did you mean 'nDCG@10'? (known: retrieved_ideal_nDCG, and those of "
        "https://ir-measur.es/en/latest/measures.html)",
    ),
    Bad(
        "evaluate: a cutoff of zero",
        "evaluate data --model model --measures nDCG@0",
        "unknown measure 'nDCG@0': the cutoff must be 1 or more",
    ),
    Bad(
        "evaluate: a cutoff of 10¹²",
        "evaluate data --model model --measures nDCG@1000000000000",
        "unknown measure 'nDCG@1000000000000': 1000000000000 has more than 9 digits",
    ),
    Bad(
        "evaluate: a cutoff of 5,000 digits",
        f"evaluate data --model model --measures R@{'1' * 5000}",
        "unknown measure "
        "'R@11111111111111111111111111111111111111111111111…11111111111111111111111111111111111111111111"
        "1111': the name is too long",
    ),
    Bad(
        "evaluate: a cutoff that is no number",
        "evaluate data --model model --measures nDCG@1x",
        "unknown measure 'nDCG@1x'; did you mean 'nDCG@10'? (write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
    ),
    Bad(
        "evaluate: a measure's unknown parameter",
        "evaluate data --model model --measures P(rell=2)@5",
        "unknown measure 'P(rell=2)@5': unsupported params found: ['rell']",
    ),
    Bad(
        "evaluate: a measure with control characters",
        ["evaluate", "data", "--model", "model", "--measures", "AP\x9b\u2066"],
        "unknown measure 'AP\\x9b\\u2066'; did you mean 'AP@10'? (write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
    ),
    Bad(
        "evaluate: a grade of zero",
        "evaluate data --model model --relevant-grade 0",
        "--relevant-grade: must be greater than or equal to 1, got '0'; see opera evaluate --help",
    ),
    Bad(
        "evaluate: a grade beyond all",
        "evaluate data --model model --relevant-grade 10000000000",
        "--relevant-grade: must be less than or equal to 1000000000, got '10000000000'; see opera evaluate --help",
    ),
    Bad(
        "evaluate: a grade that no pair has",
        "evaluate data --model model --relevant-grade 9",
        "data: split 'test' has no judgement above 0: nothing to measure",
    ),
    Bad("score: a pool without CBS", "score data --model model --out x.tsv --cbs-pool 5", "--cbs-pool: needs --cbs"),
    Bad(
        "score: an empty pool",
        "score data --model model --out x.tsv --cbs --cbs-pool 0",
        "--cbs-pool: must be greater than or equal to 1, got '0'; see opera score --help",
    ),
    Bad(
        "score: a grade that no pair has",
        "score data --model model --out x.tsv --relevant-grade 9",
        "data: split 'train' has no pair with a grade above 0: nothing to train on",
    ),
    Bad(
        "mine: ranks backwards",
        "mine data --model model --out x.tsv --range 9:1",
        "range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'",
    ),
    Bad(
        "mine: ranks beyond the corpus",
        "mine data --model model --out x.tsv --range 100:200",
        "range=100:200 starts past the end of the corpus (40 documents)",
    ),
    Bad(
        "mine: ranks of 5,000 digits",
        f"mine data --model model --out x.tsv --range 1:{'9' * 5000}",
        "range: must be LO:HI, two ranks such as 10:100, got "
        "'1:99999999999999999999999999999999999999999999999…99999999999999999999999999999999999999999999"
        "9999'",
    ),
    Bad(
        "mine: none kept",
        "mine data --model model --out x.tsv --keep 0",
        "--keep: must be greater than or equal to 1, got '0'; see opera mine --help",
    ),
    Bad(
        "mine: a seed that is no number",
        "mine data --model model --out x.tsv --seed x",
        "--seed: must be a whole number, got 'x'; see opera mine --help",
    ),
    Bad(
        "inspect: fewer than none",
        "inspect data --model model --show -1",
        "--show: must be greater than or equal to 0, got '-1'; see opera inspect --help",
    ),
    Bad(
        "inspect: a grade that no pair has",
        "inspect data --model model --relevant-grade 5",
        "data: split 'train' has no pair with a grade above 0: nothing to train on",
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
        "https://ir-measur.es/en/latest/measures.html)",
    ),
    Bad(
        "report: an unknown baseline",
        "report grid --baseline dp",
        "--baseline dp: no run has this label; there are ft, rp:k=0.5",
        with_grid,
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
