"""How long texts are, and how much of them a model reads."""

import pytest

import opera
from opera.retrieval.encoder import open_encoder
from opera.retrieval.lengths import text_lengths
from tiny_world import data_from_dicts

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def data_of_lengths(lengths: list[int]) -> opera.RetrievalData:
    corpus = {f"d{number}": " ".join(WORDS[:length]) for number, length in enumerate(lengths)}
    return data_from_dicts("m", corpus=corpus, queries={"q": "one two"}, qrels={"train": {"q": {"d0": 1}}})


def test_tokens_beyond_the_limit_are_lost(bert_model):
    encoder = open_encoder(bert_model)
    data = data_of_lengths([4, 4, 4, 10])
    whole = text_lengths(encoder, data, "document", None)
    assert whole.cut == whole.lost == 0
    assert whole.sentence.endswith("the model reads them whole")
    assert whole.advice is None
    cut = text_lengths(encoder, data, "document", whole.median)
    assert (cut.limit, cut.cut) == (whole.median, 0.25)
    total = 3 * whole.median + whole.longest
    assert cut.lost == pytest.approx((whole.longest - whole.median) / total)
    assert cut.advice == f"--set max_passage_length={whole.longest} reads more of them, and takes longer"


def test_a_static_model_cuts_nothing_but_mixes_long_documents(static_model):
    encoder = open_encoder(static_model)
    short = text_lengths(encoder, data_of_lengths([4, 10]), "document", 5)
    assert short.sentence.endswith("the model reads them whole")
    assert short.advice is None
    corpus = {"d": "one two " * 600}
    data = data_from_dicts("long", corpus=corpus, queries={"q": "one " * 900}, qrels={"train": {"q": {"d": 1}}})
    assert text_lengths(encoder, data, "document", 512).advice.startswith("--passages 200 ")
    assert text_lengths(encoder, data, "query", 512).advice is None
    split = text_lengths(open_encoder(static_model, passages=200), data, "document", 512)
    assert split.sentence.startswith("passages: ")
    assert split.advice is None


def test_at_the_models_own_limit_only_shorter_texts_help(bert_model):
    encoder = open_encoder(bert_model, max_passage_length=5)
    lengths = text_lengths(encoder, data_of_lengths([10]), "document", 512)
    assert (lengths.limit, lengths.cut) == (5, 1.0)
    assert lengths.advice == "--passages 4 reads all of them"
    assert "1 of 1 are longer than the 5 tokens that the model reads" in lengths.sentence


def test_inspect_and_train_say_that_texts_are_cut(bert_model, beir, tmp_path, caplog):
    seen = opera.inspect(beir, model=bert_model, max_passage_length=5)
    assert [lengths.role for lengths in seen.lengths] == ["query", "document"]
    assert seen.lengths[1].cut > 0
    with caplog.at_level("INFO"):
        opera.adapt(beir, model=bert_model, out=tmp_path / "run", max_steps=1, max_passage_length=5, bm25=False)
    assert [line for line in caplog.messages if "longer than the 5 tokens that the model reads" in line]
