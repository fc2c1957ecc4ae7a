"""Bad run and grid folders: in a report, as a model, under --resume and --overwrite, and in a grid."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bad_inputs.table import Bad, Make, link, make_folder, matching, pipe, remove, with_grid, with_run, write

REPORT = "report run --out report.html"
EVALUATE = "evaluate data --model run"
RESUME = "train data --model model --out run --steps 4 --batch-size 4 --set refit=false --resume"
COMPARE = (
    "compare data --model model --out grid --methods ft,rp:k=0.5 --seeds 0 --steps 4 --batch-size 4 --set refit=false"
)
CELL = "grid/data/ft/steps4/seed0"

BROKEN_JSON = {
    '{"status": "fin': "not JSON (Unterminated string starting at column 12)",
    "[]": "must be a JSON object",
    b'{"status": "\xff"}': "line 1 is not UTF-8; convert the file to UTF-8",
}
"""What is in a JSON file, and the reason in the message."""


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Make:
    """Change the values of a JSON file."""

    def make(folder: Path) -> None:
        values = json.loads((folder / name).read_text())
        change(values)
        (folder / name).write_text(json.dumps(values))

    return make


def put(*keys: str, value: Any) -> Callable[[dict[str, Any]], object]:
    """Put a value at nested keys."""

    def change(values: dict[str, Any]) -> None:
        for key in keys[:-1]:
            values = values[key]
        values[keys[-1]] = value

    return change


def wrong(place: str, reason: str) -> str:
    """The message on a damaged file."""
    return f"{place}: is damaged: {reason}; restore it, or delete the run"


def of_run(reason: str, make: Make, name: str = "run.json", command: str = REPORT) -> Bad:
    """A row with a damaged file in its run."""
    return Bad(command, wrong(f"run/{name}", reason), with_run, make)


FILES = [
    *(of_run(reason, write("run/run.json", text)) for text, reason in BROKEN_JSON.items()),
    *(
        of_run("not JSON (Expecting value at column 1)", write("run/run.json", ""), command=command)
        for command in (EVALUATE, RESUME, RESUME.replace("--resume", "--overwrite"), "search data query --model run")
    ),
    of_run("status: Input should be 'running', 'failed' or 'finished'",
        changed("run/run.json", put("status", value="done"))),
    of_run("guard.mixing_weight: Input should be less than or equal to 1",
        changed("run/run.json", put("guard", "mixing_weight", value=2))),
    of_run("final.nDCG@10: Input should be a valid number, unable to parse string as a number",
        changed("run/measures.json", put("final", "nDCG@10", value="good")), "measures.json"),
    Bad(REPORT, "run/measures.json: is missing", with_run, remove("run/measures.json")),
    Bad(REPORT, matching(r"run/trace.parquet: is damaged: .{5,200}"), with_run,
        write("run/trace.parquet", b"PAR1")),
    Bad(REPORT, "run/run.json: cannot be read: it is a named pipe", with_run, pipe("run/run.json")),
    Bad(REPORT, "run/run.json: has format 8, and this version of OPERA reads only format 9; use OPERA '0.0.9', "
        "which wrote it, or train again with --overwrite", with_run, changed("run/run.json", put("format", value=8)),
        changed("run/run.json", put("versions", "opera-retrieval", value="0.0.9"))),
    *(
        Bad(RESUME, f"--resume run: run/{name} is a link, and OPERA writes only to the run folder; remove the link, "
            "or pass --overwrite to start again", with_run,
            changed("run/run.json", put("status", value="running")), make_folder("elsewhere"),
            link(f"run/{name}", "../elsewhere"))
        for name in ("model", "checkpoints", "trial")
    ),
]  # fmt: skip

GRIDS = [
    Bad(COMPARE.replace("refit=false", "refit=true"), f"{CELL}: was started differently; pass another --out:\n"
        "refit: the run has False, this call True", with_grid),
]  # fmt: skip


def decided(rows: str, message: str) -> Bad:
    """A row whose test labels are corrected by these decisions."""
    file = write("decisions.csv", f"query_id,doc_id,decision,split\n{rows}")
    return Bad("report run --decisions decisions.csv", f"decisions.csv: {message}", with_run, file)


DECISIONS = [
    decided("test0,d0,unsure,test\ntrain0,d0,wrong,train\n",
        "has no decision about a test label; make decisions with opera review RUN --split test"),
    decided("test0,d0,wrong,test\ntest0,d0,missing,test\n", "query 'test0', document 'd0' is wrong in one row, and "
        "correct or missing in another; keep one of them"),
    decided("test0,d0,wrong,test\ntest0,00,correct,test\n", "1 of 2 decisions match run; query 'test0', document '00' "
        "is not there; is this decision list for other data, or did a spreadsheet change the ids, as in 00123 to 123? "
        "Import the columns of ids as text"),
    decided("test0,d0,,test\n", "column 'decision' is empty; write wrong, correct or missing in this column"),
]  # fmt: skip

GONE = changed("run/run.json", put("data", "source", value="gone"))
SHOW = [
    Bad("show data", "data: not a run folder: it has no run.json of OPERA"),
    Bad("show run", "run: this run is not finished; continue it with --resume", with_run,
        changed("run/run.json", put("status", value="running"))),
    Bad("show run", "gone: no such file or folder; the run trained on it; pass the data with --data", with_run, GONE),
    Bad("show run --data example:faq", "example:faq: has other texts than those that run ranked; pass the data with "
        "--data as the run read them, or train again", with_run),
    Bad("show run --out page.txt", "--out page.txt: must end in .html; the suffix decides the format", with_run),
    Bad("show run --out page.html", "--out page.html: exists; pass --overwrite to replace it, or another file",
        with_run, write("page.html", "mine")),
    Bad("show run --data data --out data/qrels/page.html", "--out data/qrels/page.html: is inside data/qrels, which "
        "OPERA reads as data; pass a folder outside the data", with_run),
    Bad("show run --serve --out page.html", "--serve --out: the server writes no file; pass only one", with_run),
    Bad("show run --port 8000", "--port: is the port of --serve; pass both", with_run),
    Bad("show run --base model", "--base: is the base model of --serve; pass both", with_run),
    Bad("show run --serve --port 80",
        "invalid value for '--port': must be greater than or equal to 1024; see opera show --help", with_run),
    Bad("show run --serve", "/gone: no such model folder; it is the base model of run; pass the model with --base",
        with_run, changed("run/run.json", put("model", "source", value="/gone"))),
    Bad("show run", matching(r"run/per_query.parquet: is damaged: .{5,200}"), with_run,
        write("run/per_query.parquet", b"PAR1")),
]  # fmt: skip

JUDGES = [
    Bad(f"review run {options}", message, with_run)
    for options, message in (
        ("--judge-pairs 5", "--judge-pairs: needs --judge"),
        ("--judge-thresholds 0:1", "--judge-thresholds: needs --judge"),
        ("--yes", "--yes: needs --judge"),
        ("--judge model --clean clean.csv", "--judge: needs a page; leave --clean out"),
        ("--judge model --judge-pairs 0", "judge_pairs: must be 1 or more, got 0"),
        *(
            (f"--judge model --judge-thresholds={text}",
                f"--judge-thresholds: must be LOW:HIGH, such as -2.5:1, got {text!r}")
            for text in ("1", "2:1", "a:b", "nan:1", "1:2:3", "")
        ),
        ("--judge model", matching("model: cannot be loaded as a reranker \\(a cross-encoder\\): .*")),
        ("--judge ''", "--judge: must not be empty"),
        ("--judge ./absent", "./absent: no such model folder"),
        ("--judge openai:", "--judge openai: needs the name of a model, as in openai:MODEL"),
    )
]  # fmt: skip

ROWS = [*FILES, *GRIDS, *DECISIONS, *SHOW, *JUDGES]
