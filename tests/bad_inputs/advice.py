"""The options that messages of ``src`` advise: what each is good for, and rows that take the advice.

A message that advises an option which is not in these tables fails a test. An option at the start of a message names
what the user passed, and is not advice.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import opera
from bad_inputs.table import Make, with_run, write

SOURCES = Path(opera.__file__).parent
OPTION = re.compile(r"--[a-z][a-z0-9-]*[a-z0-9]")
DECLARES = {"setting", "Option", "path_option", "source_option", "setting_option"}
"""Functions whose texts are help."""

DATA = "train inspect compare evaluate mine score"
ADVISED: dict[tuple[str, str], str] = {
    ("cli/options.py", "--pairs"): DATA,
    ("cli/options.py", "--set"): "train compare",
    ("cli/scoring.py", "--cbs"): "score",
    ("cli/train.py", "--set"): "train",
    ("cli/train.py", "--resume"): "train",
    ("cli/train.py", "--overwrite"): "train",
    ("cli/train.py", "--steps"): "train",
    ("cli/train.py", "--lr"): "train",
    ("cli/quickstart.py", "--overwrite"): "quickstart",
    ("cli/results.py", "--split"): "review",
    ("cli/results.py", "--method"): "train",
    ("cli/scoring.py", "--expected-documents"): "train",
    ("cli/inspect.py", "--expected-documents"): "train",
    ("cli/inspect.py", "--json"): "inspect",
    ("cli/evaluate.py", "--measures"): "evaluate",
    ("config/trainer.py", "--help-settings"): "train",
    ("core/settings.py", "--help-settings"): "train",
    ("training/session.py", "--help-settings"): "train",
    ("core/files.py", "--overwrite"): "mine score pairs review report",
    ("data/columns.py", "--columns"): f"{DATA} pairs",
    ("data/loading.py", "--pairs"): DATA,
    ("data/rules.py", "--columns"): DATA,
    ("data/splits.py", "--expected-documents"): "train compare",
    ("data/text_files.py", "--encoding"): f"{DATA} pairs report",
    ("deployment/export.py", "--overwrite"): "export",
    ("deployment/export.py", "--data"): "export",
    ("deployment/export.py", "--no-measure"): "export",
    ("deployment/export.py", "--onnx"): "export",
    ("deployment/export.py", "--int8"): "export",
    ("deployment/export.py", "--static"): "export",
    ("training/sampler.py", "--overwrite"): "train",
    ("training/session.py", "--lora"): "train compare",
    ("training/session.py", "--overwrite"): "train",
    ("training/trainer.py", "--overwrite"): "train",
    ("experiments/analysis/corrected.py", "--split"): "review",
    ("experiments/grid/compare.py", "--out"): "compare",
    ("experiments/grid/plan.py", "--set"): "compare",
    ("experiments/grid/plan.py", "--methods"): "compare",
    ("experiments/grid/plan.py", "--steps"): "compare",
    ("experiments/grid/plan.py", "--seeds"): "compare",
    ("retrieval/locate.py", "--model"): "evaluate search",
    ("retrieval/locate.py", "--resume"): "train",
    ("retrieval/locate.py", "--cutoff"): "search",
    ("retrieval/prompts.py", "--query-prompt"): "evaluate mine score inspect",
    ("retrieval/reranker.py", "--model"): "score",
    ("retrieval/search.py", "--min-precision"): "search",
    ("retrieval/search.py", "--no-hybrid"): "search",
    ("run/check.py", "--query-vectors"): "train",
    ("run/check.py", "--document-vectors"): "train",
    ("run/quickstart.py", "--overwrite"): "quickstart",
    ("run/steps.py", "--resume"): "train",
    ("run/steps.py", "--overwrite"): "train",
    ("run_folder/folder.py", "--resume"): "train",
    ("run_folder/housekeeping.py", "--resume"): "train",
    ("run_folder/housekeeping.py", "--overwrite"): "train",
    ("run_folder/record.py", "--overwrite"): "train",
    ("run_folder/verdict.py", "--expected-documents"): "train",
    ("training/negatives.py", "--teacher"): "train compare",
    ("training/prepare.py", "--matryoshka"): "train compare",
    ("training/prepare_data.py", "--reranker"): "score",
    ("training/prepare_data.py", "--teacher"): "train compare",
    ("training/prepare_data.py", "--also"): "train",
}
"""The commands that have each option which a file of ``src`` advises: those that print the message, or the command that
the message names."""
NOT_ADVICE = {
    ("cli/__init__.py", "--help"),  # every command has it
    ("cli/__init__.py", "--set"),  # "no such option: --x; give it as --set x=VALUE", only for names of settings
    ("cli/evaluate.py", "--help"),
    ("config/negatives.py", "--help"),
    ("cli/train.py", "--config"),  # in the list of settings
    ("core/arguments.py", "--help"),
    ("cli/results.py", "--model"),  # in a command to copy; a test runs it
    ("run_folder/cutoffs.py", "--min-precision"),  # an option of opera search; its tests run it
    ("run/evaluate.py", "--no-bm25"),  # names what the user passed
    ("retrieval/hybrid.py", "--bm25"),  # a note for a corpus of more than 200,000 documents
    ("data/hub_source.py", "--repo-type"),  # an option of the program hf
    ("data/hub_source.py", "--local-dir"),
}
EXAMPLES = {"cli/__init__.py", "cli/quickstart.py", "cli/scoring.py"}
"""Files with commands to copy; tests of these commands run them."""


def advised(path: Path) -> Iterator[str]:
    """Yield the options in the messages of a file, except at their start."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts: dict[ast.AST, str] = {}
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)  # a docstring
        name = getattr(node, "func", None)
        is_help = isinstance(node, ast.keyword) and node.arg in ("help", "flag", "epilog")
        if is_help or getattr(name, "id", getattr(name, "attr", "")) in DECLARES:
            skipped |= {*ast.walk(node)}
        if isinstance(node, ast.JoinedStr):
            skipped |= {*node.values}
            texts[node] = "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            texts[node] = node.value
    for node, text in texts.items():
        if node not in skipped:
            yield from (match[0] for match in OPTION.finditer(text) if match.start() > 0)


class Advice(NamedTuple):
    """A command that ends in a message, the option that the message advises, and how a user passes it."""

    command: str
    option: str
    answer: str
    make: tuple[Make, ...]


REVIEW = "query_id,doc_id,decision\ntrain0,d1,correct\n"
TEST_REVIEW = "query_id,doc_id,decision,split\ntest0,{},wrong,test\n"
BAD_ROW = f"{REVIEW},d1,correct\n,d2,correct\ntrain1,d1,correct\ntrain2,d1,correct\n"
QUICK = "train data --model model --out out --steps 1 --batch-size 4 --plan"


def pairs(text: str | bytes) -> tuple[Make, ...]:
    """Write a table of pairs."""
    return (write("p.csv", text),)


TAKEN = [
    *(
        Advice(f"{command} --decisions d.csv", option, f"{option} {value}".strip(), (write("d.csv", contents),))
        for command in ("inspect data --model model", QUICK)
        for option, value, contents in (
            ("--encoding", "utf-16", REVIEW.encode("utf-16")),
            ("--skip-bad-rows", "", BAD_ROW),
        )
    ),
    Advice("report run --out r.html --decisions d.csv", "--encoding", "--encoding utf-16",
        (with_run, write("d.csv", TEST_REVIEW.format("d0").encode("utf-16")))),
    Advice("evaluate p.csv --model model", "--encoding", "--encoding cp1252", pairs(b"query,document,split\n" +
        b"".join(b"frage %d,antwort \xe4 %d,test\n" % (row, row) for row in range(3)))),
    Advice("inspect p.csv --model model", "--skip-bad-rows", "--skip-bad-rows", pairs("query,document\n" +
        "".join(f"question {row},answer {row}\n" for row in range(6)) + ",x\n,y\n")),
    Advice("inspect p.csv --model model", "--columns", "--columns query=first,document=second",
        pairs("first,second\n" + "".join(f"question {row},answer {row}\n" for row in range(6)))),
    Advice("inspect --model model", "--pairs", "--pairs p.csv",
        pairs("query,document\n" + "".join(f"question {row},answer {row}\n" for row in range(6)))),
    Advice("review run --out r.html", "--overwrite", "--overwrite", (with_run, write("r.html", "x"))),
    Advice(f"{QUICK} --set mix=equal", "--also", "--also second", (
        write("second/corpus.jsonl", "".join(f'{{"_id": "s{n}", "text": "t1w{n} t2w{n}"}}\n' for n in range(30))),
        write("second/queries.jsonl", "".join(f'{{"_id": "q{n}", "text": "t1w{n}"}}\n' for n in range(30))),
        write("second/qrels/train.tsv", "query-id\tcorpus-id\tscore\n" +
            "".join(f"q{n}\ts{n}\t1\n" for n in range(30))),
    )),
    Advice(f"{QUICK} --set loss=distill", "--teacher", "--teacher t.tsv",
        (write("t.tsv", "query_id\tdoc_id\tscore\n" + "".join(f"train0\td{n}\t{n}\n" for n in range(9))),)),
    Advice("evaluate data", "--model", "--model model", ()),
]  # fmt: skip
