"""Does ``opera inspect`` find injected noise? Random false positives at known rates, on real data.

    .venv/bin/python studies/noise_estimate.py

Fills the table noise-estimate of docs/results.md in about a minute. Reads ``../shared``, and stops if it is missing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from opera.training_set.noise import add_false_positives, random_candidates

import opera
from opera.training_set.documents import DocumentPool
from page import RESULTS, ROOT, fill, need, table_lines

MODEL = "../shared/models/potion-base-4m"
DATA = ("scifact", "entailmentbank", "toollens", "nfcorpus")
SHARES = (0.0, 0.1, 0.3, 0.5)


def with_noise(data: opera.RetrievalData, share: float) -> opera.RetrievalData:
    """Return the data with random false positives as a share of the training pairs."""
    if share == 0:
        return data
    clean = data.training_split()
    noisy = add_false_positives(clean, share, 0, random_candidates(clean, DocumentPool(len(data.corpus)))).qrels
    relevant = replace(noisy, grades=np.maximum(noisy.grades, 1).astype(np.int32))
    return replace(data, splits={**data.splits, "train": relevant})


def main() -> None:
    """Inspect each data set at each share, then fill the table."""
    need(MODEL, *(f"../shared/data/{name}" for name in DATA))
    rows = []
    for name in DATA:
        data = opera.load_data(ROOT / "../shared/data" / name)
        inspections = [opera.inspect(with_noise(data, share), model=ROOT / MODEL, show=0) for share in SHARES]
        rows.append([name, *(f"{s.quality.noise:.3f} ± {s.quality.noise_error:.3f}" for s in inspections)])
    heads = ["", *(f"{share:.0%} injected" for share in SHARES)]
    fill(RESULTS, {"noise-estimate": table_lines(heads, rows)})
    print(RESULTS.read_text())


if __name__ == "__main__":
    main()
