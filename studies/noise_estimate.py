"""Does ``opera inspect`` find injected noise? Random false positives at known rates, on real data.

    .venv/bin/python studies/noise_estimate.py

Fills the table noise-estimate of docs/results.md in about a minute. Reads ``../shared``, and stops if it is missing.
"""

from __future__ import annotations

import opera
from opera_paper.noise import add_wrong_pairs
from page import RESULTS, ROOT, fill, need, table_lines

MODEL = "../shared/models/potion-base-4m"
DATA = ("scifact", "entailmentbank", "toollens", "nfcorpus")
SHARES = (0.0, 0.1, 0.3, 0.5)


def with_noise(data: opera.RetrievalData, share: float) -> opera.RetrievalData:
    """Return the data with random false positives as a share of the training pairs."""
    return add_wrong_pairs(data, "random", share, 0, splits=("train",))[0] if share else data


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
