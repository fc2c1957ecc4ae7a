"""Keyword search against BM25 by hand, and its fusion with a model against the formula."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opera.data import Mixture, TextTable
from opera.retrieval.evaluation import KeywordSearch
from opera.retrieval.keywords import POOL, Fusion, KeywordIndex, reason_against
from opera.retrieval.measures import Ranking
from tiny_world import data_from_dicts

TEXTS = ["cats chase mice", "the cat sleeps", "dogs bark at cats and dogs", "nothing else"]


def corpus_of(texts: list[str]) -> TextTable:
    return TextTable.from_texts({f"d{row}": text for row, text in enumerate(texts)})


def test_scores_are_bm25_of_the_stems():
    ranking = KeywordIndex.build(corpus_of(TEXTS), "text").search(["a cat and dogs"], 10)
    documents = [["cat", "chase", "mice"], ["cat", "sleep"], ["dog", "bark", "cat", "dog"], ["noth", "els"]]
    mean_length = np.mean([len(words) for words in documents])
    expected = {}
    for row, words in enumerate(documents):
        for stem in ("cat", "dog"):
            containing = sum(stem in other for other in documents)
            idf = np.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))
            count = words.count(stem)
            length = 1 - 0.75 + 0.75 * len(words) / mean_length
            expected[row] = expected.get(row, 0) + idf * count / (count + 1.5 * length)
    (rows,), (scores,) = ranking.doc_rows, ranking.scores
    assert rows.tolist() == [2, 1, 0, -1]
    assert scores[:3] == pytest.approx([expected[row] for row in (2, 1, 0)], rel=1e-5)
    assert scores[3] == -np.inf


def test_equal_scores_rank_the_greater_id_first():
    corpus = TextTable.from_texts(dict.fromkeys(("b", "d", "a", "c"), "same words"))
    (rows,) = KeywordIndex.build(corpus, "text").search(["words"], 3).doc_rows
    assert corpus.ids(rows) == ["d", "c", "b"]


def test_unknown_words_and_stop_words_find_nothing():
    ranking = KeywordIndex.build(corpus_of(TEXTS), "text").search(["zebra", "the and", ""], 4)
    assert (ranking.doc_rows == -1).all()


def test_the_saved_index_ranks_alike_and_has_the_same_bytes_in_every_process(tmp_path):
    corpus = corpus_of(TEXTS)
    index = KeywordIndex.build(corpus, "text")
    index.save(tmp_path / "one")
    opened = KeywordIndex.open(tmp_path / "one", corpus)
    assert np.array_equal(opened.search(["dog cat"], 4).scores, index.search(["dog cat"], 4).scores)
    code = (
        "import sys; from opera.data import TextTable; from opera.retrieval.keywords import KeywordIndex;"
        f"corpus = TextTable.from_texts({ {f'd{row}': text for row, text in enumerate(TEXTS)}!r});"
        f"KeywordIndex.build(corpus, 'text').save({str(tmp_path / 'other')!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": "7", "PATH": ""})
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "other" / file.name).read_bytes()


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (["私は猫が好きです", "犬も好き"], "no spaces"),
        (["ฉันชอบแมว"], "no spaces"),
        (["the of and", "a"], "no words"),
        (["", " "], "no words"),
        (["한국어 문장 하나"], None),
        (["हिन्दी में किताबें"], None),
        (TEXTS, None),
    ],
)
def test_a_corpus_without_separate_words_has_no_keyword_search(texts, reason):
    found = reason_against(corpus_of(texts), "text")
    assert found is None if reason is None else reason in str(found)


def test_combining_marks_belong_to_words():
    texts = ["हिन्दी में किताबें पढ़ना", "தமிழ் மொழி புத்தகம்", "nai\u0308ve idea"]
    for query, row in {"किताबें": 0, "மொழி": 1, "nai\u0308ve": 2}.items():
        assert KeywordIndex.build(corpus_of(texts), "text").search([query], 3).doc_rows[0].tolist() == [row, -1, -1]


def test_a_corpus_without_words_gets_a_note(caplog):
    data = data_from_dicts("stops", corpus={"d": "the of"}, queries={"q": "a"}, qrels={"test": {"q": {"d": 1}}})
    with caplog.at_level("INFO", logger="opera"):
        assert KeywordSearch.of(Mixture.of(data), "text", None) is None
    assert "no keyword search in stops: stops has no words" in caplog.text


def ranking_of(scores: dict[int, float], width: int) -> Ranking:
    rows = sorted(scores, key=lambda row: -scores[row])
    padded = rows + [-1] * (width - len(rows))
    values = [scores.get(row, -np.inf) for row in padded]
    return Ranking(np.array([padded], np.int32), np.array([values], np.float32))


@st.composite
def parts(draw: st.DrawFn) -> tuple[dict[int, float], dict[int, float]]:
    """The scores of two rankings of up to 130 documents, all different."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    sizes = draw(st.integers(1, 130)), draw(st.integers(0, 130))
    found = []
    for size in sizes:
        rows = rng.permutation(200)[:size].tolist()
        scores = np.sort(rng.random(size))[::-1] + 0.5
        found.append(dict(zip(rows, scores.tolist(), strict=True)))
    return found[0], found[1]


@given(scores=parts(), weight=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_fused_scores_are_those_of_the_formula(scores, weight):
    corpus = corpus_of(["x"] * 200)
    rankings = [ranking_of(part, 130) for part in scores]
    fused = Fusion(*rankings, corpus).ranking(weight, 250)
    expected = dict.fromkeys([*scores[0], *scores[1]], 0.0)
    pools = [sorted(part.values(), reverse=True)[:POOL] for part in scores]
    for share, part, pool in zip((1 - weight, weight), scores, pools, strict=True):
        low = pool[-1] if len(pool) == POOL else 0.0
        for row, score in part.items():
            if score in pool:
                expected[row] += share * (score - low) / (pool[0] - low) if pool[0] > low else share
    pooled = {row for part, pool in zip(scores, pools, strict=True) for row, score in part.items() if score in pool}
    (rows,), (values,) = fused.doc_rows, fused.scores
    found = dict(zip(rows[rows >= 0].tolist(), values[rows >= 0].tolist(), strict=True))
    assert found.keys() == pooled
    assert found == pytest.approx({row: expected[row] for row in pooled}, abs=1e-5)
    assert (np.diff(values[np.isfinite(values)]) <= 0).all()
