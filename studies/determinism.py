"""How far do figures move from processor to processor, and does OPERA_REPRODUCIBLE make them agree?

    .venv/bin/python studies/determinism.py            # runs what is missing, then fills in docs/determinism.md
    .venv/bin/python studies/determinism.py --tables   # makes the tables of the committed results

A run is repeated under variables by which torch, oneDNN, MKL, OpenBLAS and NumPy take the kernels that they would take
on another processor, and with another seed, which is the yardstick. Tiny runs take three steps on one small package,
short ones 20 on a larger one; whole ones are the quickstart. Each has an embedding cache of its own. ``--qemu PATH``
(a qemu-x86_64, 7.2 or newer) adds a run of one layer on an emulated Haswell, which is a real processor as far as any
library can tell. Finished runs are not repeated, so it can be stopped at any time. ``--finished`` makes the tables of
what is finished.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import math
import os
import resource
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np

from opera.data import load_python
from opera.retrieval.models import load_model
from opera.runs.folder import Run, holds_run
from opera.training.quickstart import CHUNKS, RECIPE, TEST_QUERIES, TRAIN_QUERIES
from page import ROOT, fill, table_lines

PAGE = ROOT / "docs" / "determinism.md"
RESULTS = ROOT / "studies" / "results" / "determinism.csv"
RUNS = Path("runs/determinism")
NO_AVX512 = "AVX512F AVX512_SKX AVX512_ICL AVX512_SPR X86_V4"
AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_CBWR": "COMPATIBLE",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": NO_AVX512,
}
NO_AVX2 = {"NPY_DISABLE_CPU_FEATURES": f"X86_V3 {NO_AVX512}"}  # QEMU 7.2 gets NumPy's sort with AVX2 wrong
FIXED = {"OPERA_REPRODUCIBLE": "1"}
HASWELL = "Haswell-noTSX"


@dataclass(frozen=True)
class Variant:
    """How to run: variables, variables set after OPERA has set its own, settings, and a processor to emulate."""

    variables: Mapping[str, str] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    processor: str = ""


FP32 = {"precision": "fp32"}
VARIANTS = {
    "as it is": Variant(),
    "two threads": Variant({"OMP_NUM_THREADS": "2"}),
    "bf16 without AVX512_BF16": Variant({"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}),
    "bf16, torch for AVX2": Variant({"ATEN_CPU_CAPABILITY": "avx2"}),
    "fp32": Variant(settings=FP32),
    "fp32, all for AVX2": Variant(AVX2, settings=FP32),
    "reproducible": Variant(FIXED),
    "reproducible, other variables set": Variant({**FIXED, "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "AVX2"}),
    "reproducible, C library without FMA": Variant({**FIXED, "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2"}),
    "reproducible, Haswell": Variant(FIXED, NO_AVX2, processor="Haswell-noTSX"),
}
BASES = {"reproducible": "reproducible", "fp32, ": "fp32", "": "as it is"}
PLAN = [
    *(("tiny", name, 0) for name, variant in VARIANTS.items() if not variant.processor),
    *(("least", name, 0) for name in ("reproducible", "reproducible, Haswell")),
    *(("short", name, 0) for name in ("as it is", "bf16, torch for AVX2", "fp32", "bf16 without AVX512_BF16")),
    *(("short", "as it is", seed) for seed in (1, 2, 3)),
    *(("whole", name, seed) for name, seed in (("reproducible", 0), ("as it is", 0), ("fp32", 0), ("as it is", 1))),
]
CHANGES: dict[str, dict[str, object]] = {
    "tiny": {"max_steps": 3, "save_steps": 3, "per_device_train_batch_size": 8, "guard": False, "range": "1:10"},
    "short": {"max_steps": 20, "save_steps": 20, "per_device_train_batch_size": 16, "guard": False},
    "whole": {},
}
CHANGES["least"] = {**CHANGES["tiny"], "max_steps": 2, "save_steps": 2, "per_device_train_batch_size": 4}
CHANGES["least"] |= {"max_query_length": 8, "max_passage_length": 8}
SOURCES = {
    "tiny": ("concurrent", 1500, 10),
    "least": ("concurrent", 1500, 10),
    "short": ("asyncio", 1500, 60),
    "whole": ("stdlib", TRAIN_QUERIES, TEST_QUERIES, CHUNKS),
}
TRAIN = "\nfrom opera.cli import main; main()"
EMBED = """
import sys
import opera
import numpy as np
from opera.data import load_data
from opera.retrieval.encoder import open_encoder
from opera.retrieval.search import exact_search

model, data, out, precision, queries, passages = sys.argv[1:]
data = load_data(data)
encoder = open_encoder(model, precision, int(queries), int(passages))
texts = encoder.encode_queries(data, np.arange(len(data.queries))), encoder.encode_corpus(data)
ranked = exact_search(*texts, data.corpus, 50)
np.savez(out, queries=texts[0], documents=texts[1], ranked=ranked.doc_rows)
"""


@dataclass(frozen=True)
class Row:
    """One run, compared with another.

    Attributes:
        embeddings: largest difference of a component, before training.
        lists: share of the queries whose 50 nearest documents are others, or in another order.
        first_step: the first step whose loss is another; 0 if none is.
        moved: points of nDCG@10 by which the one handed over differs, and ``queries`` how many queries are affected.
        same: whether the weights are the same bytes.
        seconds: of the processor, for a short or whole run.
    """

    kind: str
    variant: str
    seed: int
    before: float
    fine_tuned: float
    after: float
    share: float
    embeddings: float
    lists: float
    first_step: int
    moved: float
    queries: int
    same: bool
    seconds: float


def folder_of(kind: str, variant: str, seed: int) -> Path:
    """Return the folder of a run and of what belongs to it."""
    return RUNS / kind / f"{variant.replace(' ', '-').replace(',', '')}-{seed}"


def run(kind: str, variant: str, seed: int, qemu: str | None) -> Path:
    """Do a run unless it is done, and return its folder; ``embedded.npz`` and ``seconds`` are beside it."""
    how = VARIANTS[variant]
    home = folder_of(kind, variant, seed)
    out = home / "run"
    if holds_run(out) and Run.open(out).finished and (home / "seconds").exists():
        return out
    if how.processor and not qemu:
        sys.exit(f"{variant}: pass --qemu PATH")
    home.mkdir(parents=True, exist_ok=True)
    python = [*([qemu, "-cpu", how.processor] if how.processor and qemu else []), sys.executable, "-c"]
    later = f"import opera, os\nos.environ.update({dict(how.later)})\n"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **how.variables, "OPERA_CACHE": str(home / "cache")}
    data = RUNS / "data" / f"{kind}-{seed}"
    if not data.is_dir():
        package, *limits = SOURCES[kind]
        load_python(package, seed, *limits).write_beir(data)
    recipe = {**RECIPE, "seed": seed, "precision": "auto", **how.settings, **CHANGES[kind]}
    lengths = [str(recipe["max_query_length"]), str(recipe["max_passage_length"])]
    model = first_layer() if kind == "least" else "minilm"
    embed = [EMBED, model, str(data), str(home / "embedded.npz"), str(recipe["precision"]), *lengths]
    words = [word for name, value in recipe.items() for word in ("--set", f"{name}={str(value).lower()}")]
    train_it = [TRAIN, "train", str(data), "--model", model, "--out", str(out), "--overwrite", *words]
    for code, *arguments in (embed, train_it):
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*python, later + code, *arguments], env=environment, check=True)
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
    (home / "seconds").write_text(f"{end.ru_utime - start.ru_utime + end.ru_stime - start.ru_stime:.1f}")
    return out


def first_layer() -> str:
    """Return a folder with the first of MiniLM's six layers: an emulated processor is a thousand times slower."""
    folder = RUNS / "data" / "first-layer"
    if not folder.is_dir():
        model = load_model("minilm", "cpu")
        transformer = model[0].auto_model
        transformer.encoder.layer = transformer.encoder.layer[:1]
        transformer.config.num_hidden_layers = 1
        model.save_pretrained(str(folder), create_model_card=False)
    return str(folder)


def row(kind: str, variant: str, seed: int, out: Path, base: Path) -> Row:
    """Compare a run with another."""
    one, other = Run.open(out), Run.open(base)
    mine, theirs = (np.load(place.parent / "embedded.npz") for place in (out, base))
    losses = [np.array(of.trace()["loss"]) for of in (one, other)]
    after = [np.array(of.per_query()["after nDCG@10"]) for of in (one, other)]
    different = np.flatnonzero(losses[0] != losses[1])
    digests = [hashlib.sha256((of.model_path / "model.safetensors").read_bytes()).digest() for of in (one, other)]
    values = {name: one.measures[name]["nDCG@10"] for name in ("before", "fine_tuned", "after")}
    embeddings, lists = math.nan, math.nan
    if mine["queries"].shape == theirs["queries"].shape:  # another seed draws other queries
        embeddings = max(float(np.abs(mine[name] - theirs[name]).max()) for name in ("queries", "documents"))
        lists = float((mine["ranked"] != theirs["ranked"]).any(axis=1).mean())
    return Row(
        kind,
        variant,
        seed,
        **values,
        share=one.record.guard.share if one.record.guard else 1.0,
        embeddings=embeddings,
        lists=lists,
        first_step=int(different[0]) + 1 if len(different) else 0,
        moved=100 * float(after[0].mean() - after[1].mean()),
        queries=int((after[0] != after[1]).sum()) if len(after[0]) == len(after[1]) else -1,
        same=digests[0] == digests[1],
        seconds=float((out.parent / "seconds").read_text()) if kind in ("short", "whole") else math.nan,
    )


def measure(qemu: str | None, finished: bool) -> None:
    """Do all runs, and write the results as soon as there are new ones."""
    rows = []
    for kind, variant, seed in PLAN:
        if finished and not (folder_of(kind, variant, seed) / "seconds").exists():
            continue
        begins = "" if kind in ("short", "whole") else variant
        base = next(BASES[start] for start in BASES if begins.startswith(start))
        places = [run(kind, name, at, qemu) for name, at in ((variant, seed), (base, 0))]
        rows.append(row(kind, variant, seed, *places))
        with RESULTS.open("w", newline="") as file:
            writer = csv.DictWriter(file, [one.name for one in fields(Row)], lineterminator="\n")
            writer.writeheader()
            writer.writerows(asdict(one) for one in rows)


def tables() -> None:
    """Fill in the tables of the page."""
    with RESULTS.open() as file:
        rows = list(csv.DictReader(file))
    head = ["run", "embeddings differ by", "other ranks of 50", "first other loss", "nDCG@10, points"]
    tiny = [
        [
            row["variant"] + (" (one layer)" if row["kind"] == "least" else ""),
            f"{float(row['embeddings']):.1e}",
            f"{float(row['lists']):.0%}",
            {"0": "never"}.get(row["first_step"], f"step {row['first_step']}"),
            "the same bytes" if row["same"] == "True" else f"{float(row['moved']):+.2f}",
        ]
        for row in rows
        if row["kind"] in ("tiny", "least")
    ]
    fill(PAGE, {"tiny": table_lines(head, tiny)})


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--finished", action="store_true")
    parser.add_argument("--qemu")
    arguments = parser.parse_args()
    if not arguments.tables:
        measure(arguments.qemu, arguments.finished)
    tables()


if __name__ == "__main__":
    main()
