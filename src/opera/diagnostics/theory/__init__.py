"""When does pruning help? The paper's Appendix B as functions, and a simulator that applies the shipped methods."""

from opera.diagnostics.theory.closed_form import (
    dynamic_share,
    expected_similarity,
    finetuning_share,
    lemma_slope,
    lemma_value,
    mean_length,
    pruning_beats_finetuning,
    selection_precision,
    static_beats_dynamic,
    static_share,
)
from opera.diagnostics.theory.simulation import COMPARED, Outcome, Point, World, examine, predict, simulate
from opera.diagnostics.theory.survey import AUCS, NOISES, as_records, grid, sweeps

__all__ = [
    "AUCS",
    "COMPARED",
    "NOISES",
    "Outcome",
    "Point",
    "World",
    "as_records",
    "dynamic_share",
    "examine",
    "expected_similarity",
    "finetuning_share",
    "grid",
    "lemma_slope",
    "lemma_value",
    "mean_length",
    "predict",
    "pruning_beats_finetuning",
    "selection_precision",
    "simulate",
    "static_beats_dynamic",
    "static_share",
    "sweeps",
]
