"""Values that ``export`` and ``push`` do not take."""

from __future__ import annotations

import json
from pathlib import Path

from bad_inputs.table import Bad, Make, edit, link, matching, remove, with_run, write

STATIC = (
    "is a static model, which looks vectors up and runs no transformer: "
    "there is nothing to gain; use its folder as it is"
)


def source_in_run(source: str) -> Make:
    """Let the record of the run name other data."""

    def make(folder: Path) -> None:
        record = json.loads((folder / "run" / "run.json").read_text())
        record["data"]["source"] = source
        (folder / "run" / "run.json").write_text(json.dumps(record))

    return make


ROWS = [
    Bad(
        "export: no form",
        "export run --out out",
        "nothing to export: pass --onnx, --int8 or --static, or several of them",
        with_run,
    ),
    Bad("export: ONNX of a static model", "export run --onnx --out out", f"--onnx: run {STATIC}", with_run),
    Bad("export: 8 bits of a static model", "export run --int8 --out out", f"--int8: run {STATIC}", with_run),
    Bad("export: no such model", "export ./absent --onnx --out out --no-measure", "./absent: no such model folder"),
    Bad(
        "export: a model without data",
        "export model --onnx --out out",
        "model: is no run, so its data are not known; pass --data DATA, or --no-measure",
    ),
    Bad(
        "export: data that are not there",
        "export run --onnx --out out --data ./absent",
        matching(r"\./absent: no such file or folder.*"),
        with_run,
    ),
    Bad(
        "export: a run whose data are gone",
        "export run --onnx --out out",
        matching(r"data: .*; it is the run's data: pass --data DATA, or --no-measure"),
        with_run,
        remove("data"),
    ),
    Bad(
        "export: a folder that is not empty",
        "export run --onnx --out full",
        "--out full: is not empty and holds no export; pass an empty or a new folder",
        with_run,
        write("full/mine.txt", "x"),
    ),
    Bad(
        "export: a folder that holds an export",
        "export run --onnx --out full",
        "--out full: holds an export; pass --overwrite to replace it, or another folder",
        with_run,
        write("full/export.json", "{}"),
        write("full/.written.json", '["export.json"]'),
    ),
    Bad(
        "export: a folder of which nobody knows what is whose",
        "export run --onnx --out full --overwrite",
        "--out full: is not empty and holds no export; pass an empty or a new folder",
        with_run,
        write("full/export.json", '{"format": 1, "forms": [], "model": "x"}'),
    ),
    Bad(
        "export: over the model it reads",
        "export full --onnx --out full --overwrite --no-measure",
        "--out full: --overwrite would delete full, which this command reads; pass another folder",
        write("full/.written.json", '["export.json", "modules.json"]'),
        write("full/export.json", "{}"),
        write("full/modules.json", "[]"),
    ),
    Bad(
        "export: a file",
        "export run --onnx --out data/corpus.jsonl",
        matching(r"--out data/corpus.jsonl: .*"),
        with_run,
    ),
    Bad(
        "export: a damaged run",
        "export run --onnx --out out",
        matching(r"run/run\.json: .*"),
        with_run,
        edit("run/run.json", 1, "[1]"),
    ),
    Bad(
        "export: a name that is none of the hub's",
        "export run --onnx --out out --push name",
        "--push: must be OWNER/NAME, as the hub names repositories, got 'name'",
        with_run,
    ),
    Bad(
        "export: a static model pushed with others",
        "export run --onnx --static --out out --push a/b",
        "--push: a static model is a model of its own; export and push it alone, under another name",
        with_run,
    ),
    Bad(
        "export: no such run",
        "export absent --onnx --out out",
        "absent: no such run or folder; with a model of the hub pass --data DATA, or --no-measure",
    ),
    Bad(
        "export: a run that names data to be fetched",
        "export run --onnx --out out",
        "hf:someone/something: not a folder or file that OPERA reads; pass the data yourself to read them; it is the "
        "run's data: pass --data DATA, or --no-measure",
        with_run,
        source_in_run("hf:someone/something"),
    ),
    Bad(
        "push: a folder of which nobody knows what is whose",
        "push run a/b",
        "run/model: has no list of the files that OPERA wrote there (.written.json), so it is not known what may be "
        "uploaded; train or export the model again, or upload it with 'hf upload'",
        with_run,
        remove("run/model/.written.json"),
    ),
    Bad(
        "push: a link in place of a file",
        "push run a/b",
        "run/model/README.md: is a link in place of a file that OPERA wrote; put the file itself there",
        with_run,
        link("run/model/README.md", "../../data/corpus.jsonl"),
    ),
    Bad("push: no such folder", "push ./absent a/b", "./absent: no such model folder"),
    Bad(
        "push: no owner",
        "push run name",
        "name: must be OWNER/NAME, as the hub names repositories, got 'name'",
        with_run,
    ),
    Bad(
        "push: control characters",
        ["push", "run", "a/b\x1b[2J"],
        "name: must be OWNER/NAME, as the hub names repositories, got 'a/b\\x1b[2J'",
        with_run,
    ),
    Bad(
        "push: a language in words",
        "push run a/b --language English",
        "--language: must be codes such as en or pt-BR, separated by commas, got 'English'",
        with_run,
    ),
    Bad("push: a model of the hub", "push a/b c/d", "a/b: must be a folder to push, such as a run's"),
    Bad("push: no folder of a model", "push data a/b", matching(r"data: not a model folder: .*")),
]
