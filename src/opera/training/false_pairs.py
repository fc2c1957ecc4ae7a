"""What a run's first visits say of its labels: for ``run.json``, ``pairs.parquet`` and
``suspicious_pairs.csv``.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import BoolArray
from opera.data.pair_files import CUT
from opera.data.pairs import pair_keys
from opera.methods.base import Method
from opera.methods.first_visits import FalsePairs, FirstVisits, estimate
from opera.runs.record import FalsePairsRecord
from opera.training_set.build import TrainingSet

log = logging.getLogger("opera")

TEXT = 2000
"""Characters of a document that the list shows."""


def take_visits(
    made: TrainingSet, visits: FirstVisits, earlier: TrainingSet, known: FirstVisits
) -> None:
    """Take over what an earlier training found of the same pairs: they are visited already.

    The second training so begins with what the first one found; pairs that only it has, those of
    the dev split, have their first visit in it.
    """
    _, own, others = np.intersect1d(_keys(made), _keys(earlier), return_indices=True)
    visits.p[own], visits.step[own] = known.p[others], known.step[others]


def _keys(made: TrainingSet) -> NDArray[np.int64]:
    """One number per pair, by its texts."""
    query_group = made.data.query_group[made.query_rows]
    return pair_keys(
        query_group[made.pairs.pair_query], made.data.document_group[made.pairs.pair_doc]
    )


def label_check(method: Method[Any], visits: FirstVisits) -> FalsePairs | None:
    """Estimate which training pairs are false; ``None``, with a line in the log, where too few were
    visited.
    """
    found = estimate(method.pairs, visits, method.kept)
    if found is None:
        log.info("note: too few pairs were trained to say how many look false")
    return found


def record_of(found: FalsePairs, visits: FirstVisits, kept: BoolArray) -> FalsePairsRecord:
    """Describe the estimate, for ``run.json``."""
    return FalsePairsRecord(
        share=found.share,
        low=found.low,
        high=found.high,
        visited=int(visits.visited.sum()),
        pruned=int((~kept).sum()),
        unvisited=int((kept & ~visits.visited).sum()),
        suspicious=len(found.suspicious),
    )


def visit_columns(found: FalsePairs | None, visits: FirstVisits) -> dict[str, Any]:
    """Describe each pair's first visit, for ``pairs.parquet``; null for a pair without."""
    columns = {"first_rank": visits.p, "first_step": visits.step}
    if found is not None:
        columns["probability_false"] = found.probability
    return {name: pa.array(values, mask=~visits.visited) for name, values in columns.items()}


def suspicious_columns(made: TrainingSet, found: FalsePairs) -> dict[str, list[Any]]:
    """List the pairs that are more probably false than not, the worst first, with their texts."""
    listed = found.suspicious
    queries, documents = made.query_rows[made.pairs.pair_query[listed]], made.pairs.pair_doc[listed]
    return {
        "probability_false": np.round(found.probability[listed].astype(float), 3).tolist(),
        "query_id": made.data.queries.ids(queries),
        "doc_id": made.data.corpus.ids(documents),
        "query": made.data.queries.texts(queries),
        "document": [
            text if len(text) <= TEXT else text[:TEXT] + CUT
            for text in made.data.corpus.texts(documents)
        ],
    }
