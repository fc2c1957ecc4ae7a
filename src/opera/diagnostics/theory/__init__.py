"""When does pruning help? Appendix B of the paper in closed form, and a simulator that runs the real methods."""

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
from opera.diagnostics.theory.simulation import (
    METHOD_NAMES,
    Outcome,
    Point,
    World,
    examine,
    predict,
    simulate,
)
from opera.diagnostics.theory.survey import AUCS, NOISES, as_records, grid, sweeps

__all__ = [
    "AUCS",
    "METHOD_NAMES",
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
