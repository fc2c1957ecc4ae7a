"""Does distillation from a teacher's scores help? The same negatives with InfoNCE and with the divergence beside it.

    opera score ../shared/data/nfcorpus --model minilm --negatives 30 --out teacher.parquet
    python studies/distillation.py ../shared/data/nfcorpus ../shared/models/potion-base-4m teacher.parquet --out runs

Trains each variant with each seed, without the guard, and tests it against InfoNCE: paired over the test queries,
each one's difference averaged over the seeds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import opera
from opera.experiments.analysis.significance import paired_test

VARIANTS: dict[str, dict[str, Any]] = {
    "infonce": {},
    "distill 0.5": {"loss": "distill"},
    "distill 0.9": {"loss": "distill", "distill_weight": 0.9},
    "distill 1": {"loss": "distill", "distill_weight": 1},
}
SHARED = {"method": "ft", "negatives": "teacher", "guard": False}


def per_query(run: opera.Run, measure: str, when: str) -> np.ndarray:
    """Return a measure of each test query, in the order of their ids."""
    table = run.per_query().sort_by("query_id")
    return table[f"{when} {measure}"].to_numpy()


def main() -> None:
    """Train, measure, print a line per variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "model", "teacher"):
        parser.add_argument(name)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--measure", default="nDCG@10")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    length = {"max_steps": given.steps, "per_device_train_batch_size": given.batch_size}
    length["train_group_size"] = given.group
    found: dict[str, np.ndarray] = {}
    for name, settings in VARIANTS.items():
        runs = []
        for seed in range(given.seeds):
            out = given.out / f"{name.replace(' ', '-')}-{seed}"
            options = {**SHARED, **length, **settings, "seed": seed, "teacher_scores": given.teacher}
            finished = (out / "run.json").is_file()
            runs.append(opera.adapt(given.data, model=given.model, out=out, resume=finished, **options))
        before = per_query(runs[0], given.measure, "before").mean()
        found[name] = np.mean([per_query(run, given.measure, "after") for run in runs], axis=0)
        line = f"{name}: {given.measure} {before:.4f} -> {found[name].mean():.4f}"
        if name != "infonce":
            test = paired_test(found[name] - found["infonce"])
            line += f"; {100 * test.difference:+.2f} points ({100 * test.low:+.2f} to {100 * test.high:+.2f}), "
            line += f"p = {test.t_test:.2g} over {test.queries} queries"
        print(line, flush=True)


if __name__ == "__main__":
    main()
