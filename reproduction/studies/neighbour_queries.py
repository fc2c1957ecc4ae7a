"""Do labels of similar training queries reveal wrong pairs that look plausible? (They do not, on most data.)

    OMP_NUM_THREADS=1 python reproduction/studies/neighbour_queries.py

For each training pair, the documents of the query's five nearest training queries are compared with the pair's
document: its score is the largest cosine. The same score of 50 unlabelled documents, as similar to the query as the
pair's document, gives the pair a rank. Prints the AUC of this rank for wrong pairs, by data set and kind of noise.
Reads ``../shared``.
"""

from __future__ import annotations

import numpy as np
from sentence_transformers import SentenceTransformer

import opera
from false_labels import DATA, auc, noisy
from study import STATIC_MODEL, need

NEIGHBOURS, CONTROLS, PAIRS = 5, 50, 6000
SETS = ("scifact", "entailmentbank", "toollens", "nfcorpus")


def auc_of_neighbours(name: str, noise: str, seed: int) -> float:
    """The AUC of the rank among documents of equal similarity, over at most 6,000 training pairs."""
    data, clean = noisy(name, noise, seed), opera.load_data(DATA / name)
    model = SentenceTransformer(str(STATIC_MODEL))
    documents = model.encode(data.corpus.texts(), normalize_embeddings=True)
    relevant = data.training_split().relevant()
    pair_query, pair_document = relevant.query_index, relevant.doc_rows
    queries = model.encode(data.queries.texts(relevant.query_rows), normalize_embeddings=True)
    query_similarity = queries @ queries.T
    np.fill_diagonal(query_similarity, -np.inf)
    wrong = ~clean.training_split().contains(data.training_split())
    rng = np.random.default_rng(seed)
    sample = rng.permutation(len(pair_document))[:PAIRS]
    ranks = [
        _rank(query_similarity[pair_query[pair]], documents @ queries[pair_query[pair]], pair_document[pair],
              pair_query, pair_document, pair_query[pair], documents)
        for pair in sample
    ]  # fmt: skip
    return auc(np.array(ranks), wrong[sample])


def _rank(similar, scores, document, pair_query, pair_document, query, documents) -> float:  # type: ignore[no-untyped-def]
    nearest = np.argpartition(-similar, NEIGHBOURS)[:NEIGHBOURS]
    labelled = pair_document[np.isin(pair_query, nearest)]
    by_difference = np.argsort(np.abs(scores - scores[document]))[: 4 * CONTROLS]
    controls = by_difference[~np.isin(by_difference, pair_document[pair_query == query])][:CONTROLS]
    closeness = (documents[np.r_[document, controls]] @ documents[labelled].T).max(axis=1)
    higher, equal = closeness[1:] > closeness[0], closeness[1:] == closeness[0]
    return float((higher.sum() + equal.sum() / 2) / len(controls))


def main() -> None:
    """Print the AUC of each data set."""
    need("../shared/data", "../shared/models")
    for name in SETS:
        for noise in ("hard:0.3", "random:0.3"):
            print(name, noise, f"{auc_of_neighbours(name, noise, 0):.2f}", flush=True)


if __name__ == "__main__":
    main()
