"""Token ids, also those that are stored, are those that sentence-transformers' own preprocessing makes."""

from typing import Any

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize, Router
from tokenizers.models import WordLevel

from backbones import write_backbone
from opera.core.cache import cache_folder
from opera.data import TextTable, load_data
from opera.encoder import TokenSource
from opera.encoder import _token_source as token_source
from opera.encoder._token_source import token_ids
from opera.retrieval.models import load_model

TEXTS = ["t1w1 common3 t2w2", "", "unknown 中文 words, 🙂", "common1 " * 60, "t3w1", " \n"]


def source_of(model: SentenceTransformer, task: Any = None, prompt: str = "") -> TokenSource:
    return TokenSource(model, TextTable.from_texts({"a": "t1w1"}), "", task, prompt, "text")


def expected_ids(model: SentenceTransformer, task: Any, prompt: str) -> list[np.ndarray]:
    features = model.preprocess(TEXTS, prompt=prompt, task=task)
    if "offsets" in features:
        return np.split(features["input_ids"].numpy(), features["offsets"].numpy()[1:])
    masks = features["attention_mask"].numpy().astype(bool)
    return [row[mask] for row, mask in zip(features["input_ids"].numpy(), masks, strict=True)]


@pytest.fixture(params=["bert", "static", "bge-m3", "qwen3"])
def model(request, tmp_path) -> SentenceTransformer:
    if request.param in ("bert", "static"):
        return load_model(request.getfixturevalue(f"{request.param}_model"), "cpu")
    return load_model(write_backbone(request.param, tmp_path / "model"), "cpu")


def test_ids_are_those_of_the_library(model):
    seen = set()
    for query_length, document_length in ((None, None), (9, 30)):
        if hasattr(model[0], "query_length"):
            model[0].query_length, model[0].document_length = query_length, document_length
        for task in (None, "query", "document"):
            for prompt in ("", "common1 common2: "):
                assert source_of(model, task, prompt).suffices
                found = token_ids(model, TEXTS, task, prompt)
                for ids, expected in zip(found, expected_ids(model, task, prompt), strict=True):
                    assert ids.dtype == np.int32
                    assert np.array_equal(ids, expected)
                seen.add(source_of(model, task, prompt).key)
    assert len(seen) == (2 if type(model[0]).__name__ == "StaticEmbedding" else 6)  # prompts times lengths
    assert token_ids(model, []) == []


def test_models_that_read_texts_in_another_way_are_left_to_the_library(bert_model, tmp_path):
    def spoilt(**attributes: Any) -> SentenceTransformer:
        model = load_model(bert_model, "cpu")
        for name, value in attributes.items():
            setattr(model[0], name, value)
        return model

    assert source_of(spoilt()).suffices
    assert not source_of(spoilt(processing_kwargs={"text": {"max_length": 4}})).suffices
    assert not source_of(spoilt(preprocess=lambda *inputs, **more: {})).suffices
    routed = spoilt()
    routed.append(Router.for_query_document([Normalize()], [Normalize()]))
    assert not source_of(routed).suffices, "the task decides"
    decoder = load_model(write_backbone("qwen3", tmp_path / "model"), "cpu")
    assert source_of(decoder).suffices
    decoder[0].tokenizer.model_input_names = ["input_ids", "attention_mask", "token_type_ids"]
    assert not source_of(decoder).suffices, "it has no segments: GPT-2 would add the embedding of token 0 to each token"


def test_the_length_of_a_prompt_counts_where_pooling_leaves_it_out(bert_model):
    model = load_model(bert_model, "cpu")
    assert source_of(model, prompt="common1 common2: ").prompt_length is None
    model[1].include_prompt = False
    assert source_of(model, prompt="").prompt_length is None
    length = source_of(model, prompt="common1 common2 ").prompt_length
    assert length == model.preprocess(["t1w1"], prompt="common1 common2 ")["prompt_length"]


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
