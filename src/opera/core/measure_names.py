"""The measures that OPERA reports, and their names in files, in the trainer and on the hub."""

from __future__ import annotations

PRIMARY = "nDCG@10"
"""The measure that chooses and compares models, unless ``metric_for_best_model`` is set."""
RECALL = "R@20"
DEFAULT_MEASURES = (PRIMARY, RECALL, "RR@10", "Success@10")


def column(model: str, measure: str) -> str:
    """Return the name of a column of ``per_query.parquet``: ``base nDCG@10``."""
    return f"{model} {measure}"


def trainer_key(measure: str) -> str:
    """Return the name of a dev measure in the trainer's logs: ``eval_nDCG@10``."""
    return f"eval_{measure}"


def hub_key(measure: str) -> str:
    """Return the name of a measure in a model card of the hub: ``ndcg_at_10``."""
    return measure.lower().replace("@", "_at_")
