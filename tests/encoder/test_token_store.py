"""The store of token ids: what is read from it is what tokenising gives."""

from typing import Any

import numpy as np
import pytest
from tokenizers.models import WordLevel

from opera.core.cache import cache_folder
from opera.data import load_data
from opera.encoder import TokenSource
from opera.encoder import _token_source as token_source
from opera.retrieval.models import load_model

ROWS = np.array([119, 3, 3, 0, 64, 31, 32])


@pytest.fixture(autouse=True)
def _small_parts_and_own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(token_source, "ROWS_AT_ONCE", 32)  # four of them


def same(found: list[Any], expected: list[Any]) -> bool:
    return all(map(np.array_equal, found, expected)) and all(ids.dtype == np.int32 for ids in found)


@pytest.mark.parametrize("kind", ["bert", "static"])
def test_the_store_has_the_ids_of_texts_and_outlives_training(kind, request, beir, monkeypatch):
    model, data = load_model(request.getfixturevalue(f"{kind}_model"), "cpu"), load_data(beir)
    sources = [
        TokenSource.of(model, data, "document", "common1 "),
        TokenSource.of(model, data, "document", corpus_text="text"),
        TokenSource.of(model, data, "query"),
    ]
    expected = []
    for source in sources:
        rows = ROWS % len(source.table)
        expected.append(source.tokenise(rows))
        assert same(source.store(source.key).rows(rows), expected[-1])
    assert source.store(source.key).rows(ROWS[:0]) == []
    homes = list((cache_folder() / "tokens").iterdir())
    assert len(homes) == 3
    for parameter in model.parameters():
        parameter.data += 1
    monkeypatch.setattr(token_source, "token_ids", None)
    assert same(sources[0].store(sources[0].key).rows(ROWS), expected[0])
    if kind == "bert":
        model[0].document_length = 5
        with pytest.raises(TypeError):  # they are other ids
            sources[0].store(sources[0].key)


@pytest.mark.parametrize(("largest", "size"), [(2**16 - 1, 2), (70_000, 4)])
def test_ids_take_two_bytes_unless_the_vocabulary_is_large(largest, size, static_model, beir):
    model = load_model(static_model, "cpu")
    model[0].tokenizer.model = WordLevel({"[UNK]": 1, "t1w1": largest}, unk_token="[UNK]")  # with gaps
    source = TokenSource.of(model, load_data(beir), "document")
    assert same(source.store(source.key).rows(ROWS), source.tokenise(ROWS))
    (home,) = (cache_folder() / "tokens").iterdir()
    count = sum(map(len, source.tokenise(np.arange(len(source.table)))))
    assert (home / token_source.IDS).stat().st_size == size * count


def test_few_texts_of_a_large_table_are_tokenised_as_they_are_drawn(static_model, beir):
    source = TokenSource.of(load_model(static_model, "cpu"), load_data(beir), "document")
    expected = source.tokenise(ROWS)
    for drawn, stored in ((11, False), (12, True), (11, True)):  # of 120; in the end all are there
        assert same(source.lookup(drawn)(ROWS), expected)
        assert (cache_folder() / "tokens").is_dir() == stored
