"""Known positives of queries, among the documents of a batch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opera.data.pairs import pair_keys
from opera.training.documents import KnownPositives

QUERIES, DOCUMENTS = 6, 9


@given(st.data())
def test_known_positives_of_a_batch_are_those_of_each_query(data):
    def numbers(below: int, size: int) -> np.ndarray:
        return np.array(data.draw(st.lists(st.integers(0, below - 1), min_size=size, max_size=size)), dtype=np.int32)

    count = data.draw(st.integers(1, 20))
    keys = np.unique(pair_keys(numbers(QUERIES, count), numbers(DOCUMENTS, count)))
    known = KnownPositives(keys, numbers(QUERIES, QUERIES), numbers(DOCUMENTS, DOCUMENTS))
    batch, columns = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    documents = numbers(DOCUMENTS, batch * columns).reshape(batch, columns)
    first = data.draw(st.integers(0, batch - 1))
    queries = numbers(QUERIES, batch - first)
    expected = known.contains(queries[:, None], documents.T.ravel())
    expected[np.arange(len(queries)), first + np.arange(len(queries))] = False
    assert np.array_equal(known.among_negatives(queries, documents, first), expected)
