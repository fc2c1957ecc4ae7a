"""The options that messages of ``src`` advise: what each is good for, and rows that take the advice.

A message that advises an option which is not in these tables fails a test. An option at the start of a message names
what the user passed, and is not advice.
"""

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
ADVISED = {
    "--also": "train",
    "--base": "show",
    "--clean": "review",
    "--columns": f"{DATA} pairs",
    "--cutoff": "search",
    "--data": "export show",
    "--decisions": "review",
    "--document-vectors": "train",
    "--encoding": f"{DATA} pairs report",
    "--expected-documents": "train compare",
    "--first-stage": "evaluate",
    "--help-settings": "train",
    "--int8": "export",
    "--json": "inspect",
    "--judge": "review",
    "--kind": "train",
    "--judge-thresholds": "review",
    "--lora": "train compare",
    "--lr": "train",
    "--matryoshka": "train compare",
    "--max-length": "evaluate score",
    "--measures": "evaluate",
    "--method": "train",
    "--methods": "compare",
    "--min-precision": "search",
    "--model": "evaluate search score",
    "--negatives": "train compare",
    "--no-hybrid": "search",
    "--no-measure": "export",
    "--onnx": "export",
    "--out": "compare show",
    "--overwrite": "train quickstart export mine score pairs review report show",
    "--pairs": DATA,
    "--passages": "train inspect evaluate search mine score",
    "--query-prompt": "evaluate mine score inspect",
    "--query-vectors": "train",
    "--reranker": "evaluate score",
    "--resume": "train",
    "--seeds": "compare",
    "--serve": "show",
    "--set": "train compare",
    "--split": "review",
    "--static": "export",
    "--steps": "train compare",
    "--teacher": "train compare",
    "--yes": "review",
}
"""The commands that have each option which a message advises: those that print the message, or the command that the
message names."""
NOT_ADVICE = {
    "--help",  # every command has it
    "--config",  # in the list of settings
    "--no-bm25",  # names what the user passed
    "--bm25",  # a note for a corpus of more than 200,000 documents
    "--repo-type",  # an option of the program hf
    "--local-dir",
}
EXAMPLES = {"cli/__init__.py", "cli/scoring.py"}
"""Files with commands to copy; tests of these commands run them."""


def advised(path: Path) -> Iterator[str]:
    """Yield the options in the messages of a file, except at their start."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {}
    skipped = set()
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
