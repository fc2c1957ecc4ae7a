"""The steps at which a method reaches the baseline's best result (the paper's Figure 2)."""

from __future__ import annotations

from collections.abc import Iterator

from opera.core.figures import PRIMARY, in_points
from opera.experiments.analysis.results import Comparison


def convergence_lines(comparison: Comparison) -> Iterator[str]:
    """Say at how many steps each method first matches the baseline's best mean over the seeds.

    Each data set has a line about the baseline, then a line per method. Training times are medians
    over the seeds. Data sets with a single number of steps, or without the baseline, are omitted.
    """
    for final in comparison.final_tables():
        groups = [group for group in comparison.groups if group.data == final.data]
        by_steps = sorted(groups, key=lambda group: group.steps)
        reference = [group for group in by_steps if group.method == comparison.baseline]
        if not reference or len({group.steps for group in by_steps}) < 2:
            continue
        best = max(reference, key=lambda group: group.mean_std(PRIMARY).mean)
        target = best.mean_std(PRIMARY).mean
        yield (
            f"\n{final.name}: {best.method} has its best {PRIMARY}, {in_points(target)}, at "
            f"{best.steps:,} steps; matched by"
        )
        reached = [group for group in by_steps if group.mean_std(PRIMARY).mean >= target]
        for method in dict.fromkeys(group.method for group in by_steps):
            group = next((group for group in reached if group.method == method), None)
            if group is None:
                yield f"  {method}: never"
            elif method != best.method:
                ratio = group.training_seconds / best.training_seconds
                yield f"  {method}: {group.steps:,} steps, {ratio:.2f} × the time"
