"""Teachers, rerankers and margins that cannot be used."""

from __future__ import annotations

from pathlib import Path

from backbones import write_reranker
from bad_inputs.table import Bad, matching, pipe, with_run, write

TRAIN = "train data --model model --steps 2 --batch-size 4 --out out --set loss=distill"
HEADER = "query_id\tdoc_id\tscore\n"


def two_scores(folder: Path) -> None:
    """Write a cross-encoder that gives two scores per pair."""
    write_reranker(folder / "reranker", labels=2)


ROWS = [
    Bad("teacher: none", TRAIN, matching(r"loss=distill: data holds no scores of a teacher; .*--teacher")),
    Bad(
        "teacher: a file that is not there",
        f"{TRAIN} --teacher t.tsv",
        "t.tsv: cannot be read (No such file or directory)",
    ),
    Bad(
        "teacher: another format",
        f"{TRAIN} --teacher t.xlsx",
        matching(r"t\.xlsx: must be a table .*"),
        write("t.xlsx", ""),
    ),
    Bad("teacher: a pipe", f"{TRAIN} --teacher t.jsonl", matching(r"t\.jsonl: .*pipe.*"), pipe("t.jsonl")),
    Bad(
        "teacher: a column is missing",
        f"{TRAIN} --teacher t.tsv",
        "t.tsv: column 'query_id' is missing (it has: query-id, corpus-id, score)",
        write("t.tsv", "query-id\tcorpus-id\tscore\n"),
    ),
    Bad(
        "teacher: a score that is no number",
        f"{TRAIN} --teacher t.tsv",
        "t.tsv:2: column 'score' must be a number, got 'high'",
        write("t.tsv", f"{HEADER}train0\td0\thigh\n"),
    ),
    Bad(
        "teacher: of other data",
        f"{TRAIN} --teacher t.tsv",
        "t.tsv: none of its 1 pairs is of data (query 'q', document 'd'); was it scored on it?",
        write("t.tsv", f"{HEADER}q\td\t1\n"),
    ),
    Bad(
        "teacher: a training file",
        f"{TRAIN} --teacher t.jsonl",
        "t.jsonl: is a training file with texts; pass it as the data, whose pos_scores and neg_scores are used",
        write("t.jsonl", '{"query": "q", "pos": ["d"], "neg": [], "pos_scores": [1]}\n'),
    ),
    Bad(
        "teacher: Parquet that is none",
        f"{TRAIN} --teacher t.parquet",
        matching(r"t\.parquet: cannot be read \(.*\)"),
        write("t.parquet", "PAR1 and no more"),
    ),
    Bad(
        "teacher: scores that nothing uses",
        "train data --model model --out out --teacher t.tsv",
        "teacher_scores=t.tsv: nothing uses them; pass loss=distill, or negatives=teacher",
        write("t.tsv", f"{HEADER}train0\td0\t1\n"),
    ),
    Bad(
        "teacher: no negatives to compare",
        f"{TRAIN} --set train_group_size=1 --teacher t.tsv",
        "loss=distill: needs negatives to compare the positive with; pass train_group_size=2 or more",
        write("t.tsv", f"{HEADER}train0\td0\t1\n"),
    ),
    Bad(
        "teacher: more than all of the loss",
        f"{TRAIN} --set distill_weight=1.5",
        "distill_weight: must be less than or equal to 1, got 1.5",
    ),
    Bad(
        "score: neither model nor reranker",
        "score data --out x.tsv",
        "model: give a model, or a reranker",
    ),
    Bad(
        "score: a model without a use",
        "score data --out x.tsv --model model --reranker reranker",
        "model: beside a reranker a model mines; give negatives=N, or leave the model out",
    ),
    Bad(
        "score: negatives that are no number",
        "score data --out x.tsv --model model --negatives many",
        "negatives: must be 'given' or how many to mine, got 'many'",
    ),
    Bad(
        "score: negatives that the data lack",
        "score data --out x.tsv --model model --negatives given",
        "negatives=given: data holds no negatives; use negatives=random or negatives=hard",
    ),
    Bad(
        "reranker: nowhere",
        "score data --out x.tsv --reranker ./nowhere",
        "./nowhere: no such model folder",
    ),
    Bad(
        "reranker: a static model",
        "score data --out x.tsv --reranker model",
        matching(r"model: cannot be loaded as a reranker \(a cross-encoder\): .*"),
    ),
    Bad(
        "reranker: of two scores",
        "score data --out x.tsv --reranker reranker",
        "reranker: must give one score per pair to be a reranker, but gives 2",
        two_scores,
    ),
    Bad(
        "reranker: a run",
        "mine data --model model --out x.tsv --reranker run",
        matching(r"run: cannot be loaded as a reranker \(a cross-encoder\): .*"),
        with_run,
    ),
    Bad(
        "mine: a margin below zero",
        "mine data --model model --out x.tsv --relative-margin -0.1",
        "--relative-margin: must be greater than or equal to 0, got -0.1",
    ),
    Bad(
        "mine: a margin that is no number",
        "mine data --model model --out x.tsv --absolute-margin wide",
        "--absolute-margin: must be a number, got 'wide'; see opera mine --help",
    ),
    Bad(
        "mine: a similarity above 1",
        "mine data --model model --out x.tsv --max-score 1.5",
        "--max-score: must be less than or equal to 1, got 1.5",
    ),
    Bad(
        "mine: an index that there is not",
        "mine data --model model --out x.tsv --index hsnw",
        "--index: must be one of exact, hnsw, ivf, got 'hsnw'; did you mean 'hnsw'?",
    ),
]
