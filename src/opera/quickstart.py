"""``opera quickstart``: teach all-MiniLM-L6-v2 to search the source code of the Python standard library."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.text import Text

from opera.adaptation import adapt
from opera.config import make_recipe
from opera.data import RetrievalData, load_data, load_python
from opera.errors import RunFolderError
from opera.locate import MINILM, minilm_folder
from opera.rng import generator
from opera.runs import Run, check_out_folder, holds_run
from opera.show import how_to_load, print_before_after, print_found

log = logging.getLogger("opera")

RECIPE: dict[str, Any] = {
    "max_steps": 80,
    "save_steps": 40,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-4,
    "temperature": 0.05,
    "negatives": "hard",
    "range": "5:50",
    "max_query_length": 32,
    "max_passage_length": 96,
    "dropout": 0.0,
    "attn_implementation": "eager",
}
PACKAGE, TRAIN_QUERIES, TEST_QUERIES = "stdlib", 1500, 200
MARK = "README.txt"
SHOWN_SEARCHES, SHOWN_DOCUMENTS = 3, 3


def quickstart(out: Path, method: str = "dp", seed: int = 0, overwrite: bool = False) -> Run:
    """Write the data to ``out/data`` as a BEIR folder, and adapt MiniLM to it in ``out/run``.

    Raises:
        InputError: if the model's package is missing or ``out/run`` is not free.
    """
    settings = {"method": method, "seed": seed, **RECIPE}
    make_recipe(settings)
    minilm_folder()
    if holds_run(out / "run") and not overwrite:
        raise RunFolderError(f"--out {out}: holds an earlier quickstart; give --overwrite to replace it")
    check_out_folder(out / "run", resume=False, overwrite=overwrite)
    if (out / "data").exists() and not (out / "data" / MARK).is_file():
        raise RunFolderError(f"--out {out}: {out / 'data'} is there and is not of a quickstart; give another folder")
    log.info("reading the Python standard library")
    data = load_python(PACKAGE, seed, TRAIN_QUERIES, TEST_QUERIES)
    shutil.rmtree(out / "data", ignore_errors=True)
    data.write_beir(out / "data")
    (out / "data" / MARK).write_text("Written by opera quickstart, which replaces this folder when it runs again.\n")
    return adapt(load_data(out / "data"), model=MINILM, out=out / "run", overwrite=overwrite, **settings)


def show(run: Run, console: Console) -> None:
    """Print the figures, three searches before and after, where the model is and how to load it."""
    data = load_data(run.about["data"]["source"])
    console.print("\nThree held-out queries, drawn by seed among those whose best documents changed:", style="bold")
    for query in _queries_to_show(run):
        _show_search(run, data, query, console)
    counts = data.counts()
    settings = run.settings
    title = (
        f"{counts['test_queries']} held-out queries, {counts['documents']:,} chunks, {run.steps} steps of "
        f"{settings['method']}, mask_known_positives={str(settings['mask_known_positives']).lower()}"
    )
    print_before_after(console, run.measures, title)
    console.print(f"\nThe model: {run.model_path}", style="bold")
    console.print(Text(how_to_load(str(run.model_path))))
    opera = sys.argv[0] if Path(sys.argv[0]).name == "opera" else "opera"
    console.print("\nNext:", style="bold")
    console.print(Text(f'  {opera} search {run.path} {data.source} "parse a date string"'))
    console.print(Text(f"  {opera} train {data.source} --model minilm --method sp --out {run.path.parent / 'sp'}"))
    console.print(Text(f"  {opera} train python:YOUR_PACKAGE --model minilm --out yours"))


def _queries_to_show(run: Run) -> list[int]:
    """Draw queries by seed among those whose best documents changed, so that no side is favoured."""
    table = run.per_query()
    before, after = (table[f"{when} documents"].to_pylist() for when in ("before", "after"))
    changed = [at for at in range(table.num_rows) if before[at][:SHOWN_DOCUMENTS] != after[at][:SHOWN_DOCUMENTS]]
    order = generator(run.settings["seed"], "quickstart.shown").permutation(len(changed))[:SHOWN_SEARCHES]
    return [changed[at] for at in np.sort(order)]


def _show_search(run: Run, data: RetrievalData, at: int, console: Console) -> None:
    row = run.per_query().slice(at, 1).to_pylist()[0]
    query = int(data.queries.rows_of([row["query_id"]])[0])
    judgements = data.split("test").relevant()
    place = int(np.flatnonzero(judgements.query_rows == query)[0])
    rows = judgements.doc_rows[judgements.offsets[place] : judgements.offsets[place + 1]]
    relevant = frozenset(data.corpus.ids(rows))
    console.print(Text(f"\n“{data.queries.texts(np.array([query]))[0]}”", style="bold"))
    for when in ("before", "after"):
        ids = row[f"{when} documents"][:SHOWN_DOCUMENTS]
        texts = data.corpus.texts(data.corpus.rows_of(ids), "text")
        found = [{"rank": i, "id": d, "text": t} for i, (d, t) in enumerate(zip(ids, texts, strict=True), start=1)]
        print_found(console, found, f"{when} (✓ belongs to the object)", relevant)
