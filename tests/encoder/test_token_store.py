"""The store of token ids: what is read from it is what tokenising gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opera.core.cache import MANIFEST, cache_folder
from opera.data import load_data
from opera.encoder import embeddings, token_ids, token_store
from opera.encoder.token_store import TokensOnDemand, TokenSource, TokenStore, training_tokens
from opera.retrieval.models import load_model

ROWS = np.array([119, 3, 3, 0, 64, 31, 32])


@pytest.fixture(autouse=True)
def _small_shards_and_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPERA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embeddings, "LEAST_ROWS", 32)  # four of them


def same(found: list[Any], expected: list[Any]) -> bool:
    return all(map(np.array_equal, found, expected)) and all(ids.dtype == np.int32 for ids in found)


@pytest.mark.parametrize("kind", ["bert", "static"])
def test_rows_have_the_ids_of_their_texts(kind: str, request: pytest.FixtureRequest, beir: Path) -> None:
    model, data = load_model(request.getfixturevalue(f"{kind}_model"), "cpu"), load_data(beir)
    for source, table in (
        (TokenSource.of_corpus(model, data, "common1 "), data.corpus),
        (TokenSource.of_queries(model, data), data.queries),
        (TokenSource.of_corpus(model, data, corpus_text="text"), data.corpus),
    ):
        rows = ROWS % len(table)
        texts = table.texts(rows, source.corpus_text)
        expected = token_ids.token_ids(model, texts, source.task, source.prompt)
        store = source.store()
        assert same(store.rows(rows), expected)
        assert store.lengths(rows).tolist() == [len(ids) for ids in expected]
        assert len(store) == len(table)
        assert same(TokensOnDemand(source).rows(rows), expected)
    assert store.rows(rows[:0]) == []


def test_a_store_outlives_training_and_is_made_once(
    bert_model: Path, beir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = load_model(bert_model, "cpu"), load_data(beir)
    found = TokenSource.of_corpus(model, data).store().rows(ROWS)
    for parameter in model.parameters():
        parameter.data += 1
    monkeypatch.setattr(token_store, "token_ids", None)
    assert same(TokenSource.of_corpus(model, data).store().rows(ROWS), found)
    (home,) = (cache_folder() / "tokens").iterdir()
    assert len(list(home.iterdir())) == 5, "four files and the manifest"
    manifest = json.loads((home / MANIFEST).read_text())
    assert (manifest["rows"], manifest["rows_per_file"], len(manifest["files"])) == (120, 32, 4)
    model[0].document_length = 5
    with pytest.raises(TypeError):
        TokenSource.of_corpus(model, data).store()


@pytest.mark.parametrize(("vocabulary", "dtype"), [(2**16, np.uint16), (2**16 + 1, np.int32)])
def test_ids_take_two_bytes_where_they_fit(
    vocabulary: int, dtype: type, static_model: Path, beir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "vocabulary_size", lambda model: vocabulary)
    ids = [np.array([vocabulary - 1, 0], np.int32)]
    monkeypatch.setattr(token_store, "token_ids", lambda model, texts, *rest: ids * len(texts))
    source = TokenSource.of_corpus(load_model(static_model, "cpu"), load_data(beir))
    store = source.store()
    assert same(store.rows(ROWS), ids * len(ROWS))
    size = sum(path.stat().st_size for path in (cache_folder() / "tokens").rglob("*.tokens"))
    assert size == (120 + 4) * 8 + 120 * 2 * np.dtype(dtype).itemsize


def test_few_texts_of_a_large_table_are_tokenised_on_demand(
    static_model: Path, beir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TokenSource.of_corpus(load_model(static_model, "cpu"), load_data(beir))
    lazy = training_tokens(source, 11)
    assert isinstance(lazy, TokensOnDemand)
    expected = source.tokenise(ROWS)
    assert isinstance(training_tokens(source, 12), TokenStore)
    assert isinstance(training_tokens(source, 11), TokenStore), "it is there now"
    calls = []
    plain = token_store.token_ids
    monkeypatch.setattr(token_store, "token_ids", lambda *given: calls.append(given[1]) or plain(*given))
    assert same(lazy.rows(ROWS), expected)
    assert same(lazy.rows(ROWS[::-1]), expected[::-1])
    assert [len(texts) for texts in calls] == [6], "each text once"
    full = TokensOnDemand(source, most_kept=0)
    assert same(full.rows(ROWS), expected)
    assert same(full.rows(ROWS), expected)
    assert len(calls) == 3
