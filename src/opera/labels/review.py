"""Describe the items of a review, and the columns about noisy labels in a run's files.

A review has suspicious pairs, a random sample of the other pairs, and documents that look relevant
but have no label. Texts are cut to a readable length. A review becomes an HTML page that needs no
network, or a table.
"""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from opera.core.arrays import IntArray
from opera.core.files import replace_file
from opera.core.page import page_of
from opera.core.rng import generator
from opera.data import RetrievalData
from opera.data.decisions import NOT_KNOWN
from opera.data.delimited_tables import with_apostrophes
from opera.data.id_lists import cut
from opera.data.pairs import TrainingPairs
from opera.labels.estimate import FirstVisits, NoisyLabels

WHOLE, LONG, SHORT = 20_000, 2000, 300
"""Characters of the text to judge, of a text in ``suspicious_pairs.csv``, and of other documents of
the query."""
OTHER_DOCUMENTS = 2
"""Other labelled documents of the query in an item."""
REVIEW_PATTERN = ("worst",) * 3 + ("listed",) * 2 + ("unlisted",) * 2
"""The kinds of seven pairs of a review: the worst suspicious pairs, and random samples of the
suspicious (listed) and the other pairs, which give the noise rate."""
LISTED_SAMPLE = 0.4
"""At most this fraction of the suspicious pairs is sampled; the rest comes worst first."""
MOST_PAIRS = 700
"""Pairs in a run's file for reviews."""

Item = dict[str, Any]


@dataclass(frozen=True)
class Labelled:
    """The labels of a split.

    Attributes:
        data: the texts.
        query_rows: int32 ``[n]``, the query row of each query.
        pairs: the relevant pairs, with query indices.
    """

    data: RetrievalData
    query_rows: NDArray[np.int32]
    pairs: TrainingPairs

    def pair(self, pair_id: int, stratum: str | None, why: str, rank: float | None = None) -> Item:
        """Describe a labelled pair.

        Args:
            pair_id: the pair.
            stratum: the stratum that the pair was sampled from, if it was sampled.
            why: the reason to review it.
            rank: fraction of documents that ranked higher at the first visit.
        """
        query_index, doc_row = (
            int(self.pairs.pair_query[pair_id]),
            int(self.pairs.pair_doc[pair_id]),
        )
        item = {**self.item(query_index, doc_row, why), "stratum": stratum}
        return (
            item
            if rank is None or np.isnan(rank)
            else {**item, "first_rank": round(float(rank), 3)}
        )

    def item(self, query_index: int, doc_row: int, why: str) -> Item:
        """Describe a document of a query, which may have no label."""
        start, end = self.pairs.query_offsets[query_index : query_index + 2].tolist()
        positives = self.pairs.pair_doc[start:end]
        other_doc_rows = positives[positives != doc_row][:OTHER_DOCUMENTS].tolist()
        query_row = self.query_rows[[query_index]]
        return {
            "query_id": self.data.queries.ids(query_row)[0],
            "query": cut(self.data.queries.texts(query_row)[0], WHOLE),
            **describe_document(self.data, doc_row, WHOLE),
            "first_rank": NOT_KNOWN,
            "others": [describe_document(self.data, other, SHORT) for other in other_doc_rows],
            "why": why,
        }


def describe_document(data: RetrievalData, doc_row: int, length: int) -> Item:
    """Describe a document of a corpus."""
    doc_rows = np.array([doc_row])
    text = cut(data.corpus.texts(doc_rows)[0], length)
    return {"doc_id": data.corpus.ids(doc_rows)[0], "document": text}


def in_order(
    seed: int, worst: IntArray, strata: Mapping[str, IntArray]
) -> list[tuple[int, str | None]]:
    """Mix the worst pairs with a random sample of each stratum, in random order.

    A stratum's pairs come in random order, so that any beginning of the list is a random sample
    too. No pair comes twice.

    Args:
        seed: of the run.
        worst: the suspicious pairs, worst first.
        strata: the pairs of each stratum.

    Returns:
        Pair ids, each with its stratum if it was sampled.
    """
    rng = generator(seed, "review")
    block = [name for name in REVIEW_PATTERN if name == "worst" or name in strata]
    blocks = -(-MOST_PAIRS // len(block))
    samples: dict[str, list[int]] = {}
    for name, pair_ids in strata.items():
        size = blocks * block.count(name)
        if np.isin(worst, pair_ids).any():
            size = min(size, 1 + int(LISTED_SAMPLE * len(pair_ids)))
        samples[name] = rng.permutation(pair_ids)[:size].tolist()
    sampled = set(chain.from_iterable(samples.values()))
    queues: dict[str, list[int]] = {
        **samples, "worst": [pair_id for pair_id in worst.tolist() if pair_id not in sampled]
    }  # fmt: skip
    ordered: list[tuple[int, str | None]] = []
    for _ in range(blocks):
        for name in rng.permutation(block).tolist():
            if queues[name]:
                ordered.append((queues[name].pop(0), None if name == "worst" else name))
    return ordered[:MOST_PAIRS]


def training_items(
    labelled: Labelled, estimate: NoisyLabels | None, visits: FirstVisits, kept: Any, seed: int
) -> dict[str, Any]:
    """Describe the training pairs to review, and count the pairs of each stratum.

    Args:
        labelled: the training pairs.
        estimate: for these pairs; ``None`` if too few were visited.
        visits: their first visits.
        kept: bool ``[N]``, the pairs that the method did not prune. Pruned and confirmed pairs are
            not reviewed.
        seed: of the run.
    """
    worst = np.empty(0, dtype=np.int64) if estimate is None else estimate.suspicious
    confirmed = visits.confirmed
    unlisted = np.setdiff1d(np.flatnonzero(kept & ~confirmed), worst)
    strata = {"listed": worst, "unlisted": unlisted}
    strata = {name: pair_ids for name, pair_ids in strata.items() if len(pair_ids)}

    def why(pair_id: int) -> str:
        if estimate is None or not visits.visited[pair_id]:
            return "sampled at random; not trained"
        rank = f"when first trained, {visits.p[pair_id]:.0%} of the other documents ranked higher"
        return f"wrong with a probability of {estimate.probability_wrong[pair_id]:.0%}: {rank}"

    return {
        "strata": {name: len(pair_ids) for name, pair_ids in strata.items()},
        "confirmed": int((kept & confirmed).sum()),
        "estimate": None
        if estimate is None
        else {"rate": estimate.noise_rate, "low": estimate.low, "high": estimate.high},
        "pairs": [
            labelled.pair(pair_id, stratum, why(pair_id), visits.p[pair_id])
            for pair_id, stratum in in_order(seed, worst, strata)
        ],
    }


def test_items(labelled: Labelled, best_rank: IntArray, why: Sequence[str], seed: int) -> Any:
    """Describe the test pairs to review: pairs that neither model ranks well, and random ones.

    Args:
        labelled: the test pairs.
        best_rank: int ``[N]``, the better of the base and the final model's ranks, so that the
            selection favours neither model.
        why: the reason to review each pair.
        seed: of the run.
    """
    all_pair_ids = np.arange(labelled.pairs.n_pairs)
    shuffled = generator(seed, "review.test").permutation(all_pair_ids)
    worst = shuffled[np.argsort(-best_rank[shuffled], kind="stable")]
    return {
        "strata": {"unlisted": len(all_pair_ids)},
        "confirmed": 0,
        "estimate": None,
        "pairs": [
            labelled.pair(pair_id, stratum, why[pair_id])
            for pair_id, stratum in in_order(seed, worst, {"unlisted": all_pair_ids})
        ],
    }


COLUMNS = (
    "query_id",
    "doc_id",
    "decision",
    "judge",
    "split",
    "first_rank",
    "list",
    "query",
    "document",
)
SUFFIXES = (".html", ".csv")
ADDED = ("missing", "correct")
"""The list and the opinion that add a label."""
MISSING_FRACTION, CHANGED_FRACTION = 0.2, 0.1
"""Fractions of a page for missing labels and for changed queries."""


def chosen_items(contents: Mapping[str, Any], changed: Mapping[str, Any], items: int) -> Any:
    """Choose the items of a page: missing labels, changed queries and, for the rest, pairs.

    Args:
        contents: ``pairs`` and ``missing`` of a split.
        changed: queries with ``losses`` and ``gains``.
        items: how many items.
    """
    missing = list(contents.get("missing", ()))[: int(MISSING_FRACTION * items)]
    losses, gains = list(changed.get("losses", ())), list(changed.get("gains", ()))
    size = int(CHANGED_FRACTION * items)
    changed_items = losses[: size - min(len(gains), size // 2)]
    changed_items += gains[: size - len(changed_items)]
    pairs = list(contents["pairs"])[: items - len(missing) - len(changed_items)]
    lists = {"pairs": pairs, "missing": missing, "changed": changed_items}
    return [
        {**item, "list": name, "id": f"{name} {item['query_id']} {item.get('doc_id', '')}"}
        for name, members in lists.items()
        for item in members
    ]


def with_suggestions(items: Sequence[Item], opinions: Mapping[str, str | None]) -> list[Item]:
    """Add the decision that a judge suggests to each item, as ``judge``.

    Args:
        items: from :func:`chosen_items`.
        opinions: by the id of the item; a document without a label is wrong or correct too.
    """
    suggestions = [opinions.get(item["id"]) for item in items]
    return [
        {**item, "judge": "missing" if (item["list"], opinion) == ADDED else opinion}
        for item, opinion in zip(items, suggestions, strict=True)
    ]


class NextStep(NamedTuple):
    """What to do with the decisions of a page.

    Attributes:
        file: the name of the file that the page saves.
        command: the command that uses it.
    """

    file: str
    command: str


@dataclass(frozen=True)
class ReviewPage:
    """A page of a review, or a table.

    Attributes:
        title: of the page.
        split: ``train`` or ``test``.
        contents: ``strata`` with their numbers of pairs, and OPERA's ``estimate``.
        items: from :func:`chosen_items`.
        next_step: what the page advises after the decisions are saved.
        judge: the name of the judge, if items have its suggestions.
    """

    title: str
    split: str
    contents: Mapping[str, Any]
    items: list[Item]
    next_step: NextStep
    judge: str | None = None

    def write(self, file: Path) -> None:
        """Write the page, or a table with an empty column ``decision`` if the file ends in
        ``.csv``. With a judge, the table has the column ``judge``.
        """
        if file.suffix == ".csv":
            replace_file(file, partial(_write_table, split=self.split, items=self.items))
        else:
            replace_file(file, partial(Path.write_bytes, data=self.html()))

    def html(self) -> bytes:
        """Return the HTML page."""
        # The browser stores decisions under this key, which does not depend on the number of items.
        pairs = [(pair["query_id"], pair["doc_id"]) for pair in self.contents["pairs"]]
        identity = json.dumps([self.title, self.split, pairs, self.contents["estimate"]])
        values = {
            "title": self.title,
            "split": self.split,
            "strata": self.contents["strata"],
            "confirmed": self.contents["confirmed"],
            "estimate": self.contents["estimate"],
            "items": self.items,
            "next": self.next_step._asdict(),
            "judge": self.judge,
            "key": hashlib.sha256(identity.encode()).hexdigest()[:16],
        }
        template = files("opera.labels").joinpath("review.html").read_text(encoding="utf-8")
        return page_of(template, values)


def _write_table(file: Path, split: str, items: list[dict[str, Any]]) -> None:
    listed = [item for item in items if item["list"] != "changed"]
    user_columns = list(dict.fromkeys(chain.from_iterable(item.get("row", ()) for item in listed)))
    is_judged = any("judge" in item for item in listed)
    columns = [name for name in COLUMNS if name != "judge" or is_judged] + user_columns
    rows = [
        {name: {**item, **item.get("row", {}), "split": split}.get(name) for name in columns}
        for item in listed
    ]
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(with_apostrophes(pa.Table.from_pylist(rows)).to_pylist())
