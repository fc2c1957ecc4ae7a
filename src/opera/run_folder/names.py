"""The names of a measure such as ``nDCG@10`` in files, in the trainer and on the hub."""

from __future__ import annotations


def column(moment: str, measure: str) -> str:
    """Return the name of a column of ``per_query.parquet``: ``base nDCG@10``."""
    return f"{moment} {measure}"


def trainer_key(measure: str) -> str:
    """Return the name of a dev measure in the trainer's logs: ``eval_nDCG@10``."""
    return f"eval_{measure}"


def hub_key(measure: str) -> str:
    """Return the name of a measure in a model card of the hub: ``ndcg_at_10``."""
    return measure.lower().replace("@", "_at_")
