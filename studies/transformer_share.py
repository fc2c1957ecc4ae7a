"""How much of a transformer's training holds on new documents, and which anchor lets the guard see it?

    OMP_NUM_THREADS=1 .venv/bin/python studies/transformer_share.py            # 10 to 30 minutes a world
    OMP_NUM_THREADS=1 .venv/bin/python studies/transformer_share.py --tables   # fills docs/when-fine-tuning-hurts.md

all-MiniLM-L6-v2, trained fully, 64 tokens, in worlds whose test and dev documents no training pair names: nDCG@10 of
both at every share λ, and the λ that the rule chooses by dev with each of :data:`ANCHORS`. Finished trainings are kept
in studies/results. Reads ``../shared``, and stops with a message if it is absent.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np

import opera
from curves import choose
from opera.data.splits import draw_missing_splits
from opera.retrieval.encoder import open_encoder
from opera.retrieval.measures import parse_measures, per_query
from opera.retrieval.models import load_model
from opera.retrieval.search import exact_search
from opera.training.guard import rule
from opera.training.guard.choice import Weights, mix
from page import ROOT, fill, need, table_lines
from worlds import DATA, load_world

PAGE = ROOT / "docs" / "when-fine-tuning-hurts.md"
RESULTS = ROOT / "studies" / "results" / "transformer_share.csv"
WORLDS = ("entailmentbank+new", "toollens+new", "scifact+new", "nfcorpus+new")
SHARES = rule.shares_to_try(static=False)
ANCHORS = (0.7, 0.875, 1.0)
LENGTHS = {"max_query_length": 64, "max_passage_length": 64}
MEASURE = parse_measures(["nDCG@10"])
DEPTH = 10


def measure(world: str, steps: int) -> dict[str, str]:
    """Train once, and measure dev and test at every share."""
    data = draw_missing_splits(load_world(world), seed=0, test_fraction=0.1, needs_dev=True, future="new-documents")
    with TemporaryDirectory() as folder:
        run = opera.adapt(
            data, model="minilm", out=Path(folder) / "run", method="ft", guard=False, max_steps=steps, **LENGTHS
        )
        tuned = Weights.of(load_model(run.model_path, "cpu"))
    untrained = Weights.of(load_model("minilm", "cpu"))
    values: dict[str, dict[float, np.ndarray]] = {"dev": {}, "test": {}}
    for share in SHARES:
        encoder = open_encoder("minilm", **LENGTHS)
        mix(untrained, tuned, share).put_into(encoder.model)
        documents = np.asarray(encoder.encode_corpus(data))
        for split, found in values.items():
            qrels = data.judged_qrels(split)
            ranking = exact_search(encoder.encode_queries(data, qrels.query_rows), documents, data.corpus, DEPTH)
            found[share] = per_query(ranking, qrels, MEASURE)["nDCG@10"]
    row = {"world": world, "steps": str(steps), "queries": str(data.training_split().n_queries)}
    for split, found in values.items():
        row |= {f"{split} {share:g}": f"{100 * value.mean():.2f}" for share, value in found.items()}
    for anchor in ANCHORS:
        with patch.object(rule, "TRANSFORMER_ANCHOR", (anchor, anchor, 1.0)):
            row[f"chosen {anchor:g}"] = f"{choose(values['dev'], 0.0, static=False):g}"
    return row


def main() -> None:
    """Train what is missing, or fill the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--worlds", type=lambda text: text.split(","), default=WORLDS)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    rows = list(csv.DictReader(RESULTS.open(encoding="utf-8"))) if RESULTS.is_file() else []
    if options.tables:
        fill(PAGE, {"transformer": table(rows)})
        return
    need(str(DATA))
    for world in options.worlds:
        if (world, str(options.steps)) not in {(row["world"], row["steps"]) for row in rows}:
            rows.append(measure(world, options.steps))
            print(rows[-1], flush=True)
            with RESULTS.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, rows[-1], lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


def table(rows: list[dict[str, str]]) -> str:
    """Test by share, and at the share that each anchor chooses."""
    lines = []
    for row in rows:
        chosen = [row[f"chosen {anchor:g}"] for anchor in ANCHORS]
        values = [row[f"test {share:g}"] for share in SHARES]
        lines.append((row["world"], row["steps"], *values, *(f"{row[f'test {share}']} ({share})" for share in chosen)))
    heads = ("world", "steps", *(f"λ = {share:g}" for share in SHARES), *(f"chosen at {a:g}" for a in ANCHORS))
    return table_lines(heads, lines)


if __name__ == "__main__":
    main()
