"""Values that ``evaluate``, ``search``, ``score``, ``mine`` and ``inspect`` do not take."""

from __future__ import annotations

from bad_inputs.table import Bad

ROWS = [
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
        "https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
    ),
    Bad(
        "evaluate: a cutoff of zero",
        "evaluate data --model model --measures nDCG@0",
        "unknown measure 'nDCG@0': the cutoff must be 1 or more",
    ),
    Bad(
        "evaluate: a cutoff of 10¹²",
        "evaluate data --model model --measures nDCG@1000000000000",
        "unknown measure 'nDCG@1000000000000': of 100 characters at most, and numbers of 9 digits",
    ),
    Bad(
        "evaluate: a cutoff of 5,000 digits",
        f"evaluate data --model model --measures R@{'1' * 5000}",
        "unknown measure "
        "'R@11111111111111111111111111111111111111111111111…11111111111111111111111111111111111111111111"
        "1111': of 100 characters at most, and numbers of 9 digits",
    ),
    Bad(
        "evaluate: a cutoff that is no number",
        "evaluate data --model model --measures nDCG@1x",
        "unknown measure 'nDCG@1x'; did you mean 'nDCG@10'? (known: retrieved_ideal_nDCG, and those of "
        "https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
    ),
    Bad(
        "evaluate: a measure's unknown parameter",
        "evaluate data --model model --measures P(rell=2)@5",
        "unknown measure 'P(rell=2)@5': unsupported params found: ['rell']",
    ),
    Bad(
        "evaluate: a measure with control characters",
        ["evaluate", "data", "--model", "model", "--measures", "AP\x9b\u2066"],
        "unknown measure 'AP\\x9b\\u2066'; did you mean 'AP@10'? (known: retrieved_ideal_nDCG, and those of "
        "https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)",
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
        "data: split 'test' has no judgement of 9 or more (relevant_grade=9; a recipe may set it): nothing to measure",
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
        "data: split 'train' has no pair with a grade of 9 or more (relevant_grade=9; a recipe may set it): nothing to "
        "train on",
    ),
    Bad(
        "mine: ranks backwards",
        "mine data --model model --out x.tsv --range 9:1",
        "--range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'",
    ),
    Bad(
        "mine: ranks beyond the corpus",
        "mine data --model model --out x.tsv --range 100:200",
        "range=100:200 starts past the end of the corpus (40 documents)",
    ),
    Bad(
        "mine: ranks of 5,000 digits",
        f"mine data --model model --out x.tsv --range 1:{'9' * 5000}",
        "--range: must be LO:HI, two ranks such as 10:100, got "
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
        "data: split 'train' has no pair with a grade of 5 or more (relevant_grade=5; a recipe may set it): nothing to "
        "train on",
    ),
]
