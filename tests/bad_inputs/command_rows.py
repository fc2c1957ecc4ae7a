"""Bad command lines: unknown and missing words, and options that no command has."""

from __future__ import annotations

from bad_inputs.table import Bad

TRAIN = "train data --model model --out run"

NO_DATA = "DATA: is missing; give a data set, or --pairs FILE"

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
        "train data --model model --out run --zfolds 3",
        "no such option: --zfolds; see opera train --help",
    ),
    Bad(
        "option: unknown, with an escape character",
        ["evaluate", "data", "--\x1b[2J\u202e", "x"],
        "no such option: --\\x1b[2J\\u202e; see opera evaluate --help",
    ),
    Bad(
        "option: misspelt",
        f"{TRAIN} --methid dp",
        "no such option: --methid (Possible options: --method, --mix, --set); see opera train --help",
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
    Bad("train: no data", "train --model model --out run", NO_DATA),
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
        "missing option '--model'; see opera evaluate --help",
    ),
    Bad("score: no file", "score data --model model", "missing option '--out'; see opera score --help"),
    Bad("mine: no file", "mine data --model model", "missing option '--out'; see opera mine --help"),
    Bad("compare: no data", "compare --model model --out grid", NO_DATA),
    Bad("inspect: no model", "inspect data", "missing option '--model'; see opera inspect --help"),
    Bad("report: no folder", "report", "missing argument 'GRID|RUN'; see opera report --help"),
    Bad("search: no query", "search data --model model", "missing argument 'QUERY'; see opera search --help"),
    Bad(
        "search: an index that there is not",
        "search data garlic --model model --index flat",
        "--index: must be one of exact, hnsw, ivf, got 'flat'",
    ),
    Bad(
        "search: three arguments",
        "search run data garlic --model model",
        "got unexpected extra argument(s) (garlic); see opera search --help",
    ),
]
