"""Wrong pairs: how many, which, in which splits, and the folder that the command writes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import opera
from opera.data import with_relevant_grade
from opera_paper.noise import add_wrong_pairs
from tiny_world import data_from_dicts, write_beir

Pairs = set[tuple[str, str]]


def pairs_of(data: opera.RetrievalData, split: str, lowest: int = 1) -> Pairs:
    """The ids of a split's relevant pairs."""
    qrels = with_relevant_grade(data, lowest).split(split).relevant()
    queries = data.queries.ids(qrels.query_rows[qrels.query_index])
    return set(zip(queries, data.corpus.ids(qrels.doc_rows), strict=True))


def wrong_of(wrong: list[tuple[str, str, str]], split: str) -> Pairs:
    return {(query, doc) for query, doc, of in wrong if of == split}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> opera.RetrievalData:
    """Train, dev and test; half of the documents are judged 2, the others 1."""
    return opera.load_data(write_beir(tmp_path_factory.mktemp("noise") / "data", dev=True))


@settings(max_examples=30)
@given(share=st.floats(0.02, 0.7), kind=st.sampled_from(["random", "neighbour"]), seed=st.integers(0, 3))
def test_wrong_pairs_make_up_the_share_and_right_ones_stay(tiny, share, kind, seed):
    noisy, wrong = add_wrong_pairs(tiny, kind, share, seed)
    for split in ("train", "dev"):
        right, all_pairs, added = pairs_of(tiny, split), pairs_of(noisy, split), wrong_of(wrong, split)
        assert all_pairs == right | added
        assert not right & added
        assert abs(len(added) / len(all_pairs) - share) <= 1 / len(right)
        assert {query for query, _ in added} <= {query for query, _ in right}
    assert noisy.split("test") is tiny.split("test")
    assert noisy.fingerprint != tiny.fingerprint
    again, listed = add_wrong_pairs(tiny, kind, share, seed)
    assert (listed, again.fingerprint) == (wrong, noisy.fingerprint)


@pytest.mark.parametrize("kind", ["hard", "clicks"])
def test_ranked_kinds_draw_from_the_models_ranking(kind, tiny, static_model):
    _, wrong = add_wrong_pairs(tiny, kind, 0.3, 0, model=static_model)
    evaluation = opera.evaluate(tiny, model=static_model, split="train", measures=["R@100"])
    rank_of = {
        (query, doc): rank
        for query, row in zip(evaluation.query_ids, evaluation.ranking.doc_rows, strict=True)
        for rank, doc in enumerate(tiny.corpus.ids(row), start=1)
    }
    ranks = [rank_of[pair] for pair in wrong_of(wrong, "train")]
    assert max(ranks) <= 100
    assert (min(ranks) > 10) == (kind == "hard")


@settings(max_examples=30)
@given(names=st.lists(st.sampled_from("ab"), min_size=8, max_size=20), seed=st.integers(0, 5))
def test_no_copy_of_a_right_document_and_no_empty_one_is_wrong(names, seed):
    texts = {f"d{row}": name for row, name in enumerate(["a", *names, "b", "c", "", " "])}
    judged = {split: {split: {"d0": 1}} for split in ("train", "test")}
    data = data_from_dicts("x", corpus=texts, queries={"train": "q", "test": "t"}, qrels=judged)
    _, wrong = add_wrong_pairs(data, "random", 2 / 3, seed)
    assert sorted(texts[doc] for _, doc, _ in wrong) == ["b", "c"], "each text once"


def test_documents_judged_lower_become_positives_of_train(tiny):
    """ANTIQUE in the paper: what counts as relevant starts at one grade, training lets in the one below."""
    noisy, wrong = add_wrong_pairs(tiny, "grade", None, 0, grade=1)
    assert pairs_of(noisy, "train", 2) == pairs_of(tiny, "train", 1)
    assert wrong_of(wrong, "train") == pairs_of(tiny, "train", 1) - pairs_of(tiny, "train", 2)
    assert noisy.split("dev") is tiny.split("dev")
    for grade, relevant_grade in ((0, 1), (2, 2)):
        with pytest.raises(opera.SettingError):
            add_wrong_pairs(tiny, "grade", None, 0, grade=grade, relevant_grade=relevant_grade)


def test_wrong_pairs_get_the_relevant_grade_and_the_mean_weight(tiny):
    train = tiny.split("train")
    weights = np.arange(len(train.doc_rows), dtype=np.float32)
    weighted = replace(tiny, splits={**tiny.splits, "train": replace(train, weights=weights)})
    noisy, wrong = add_wrong_pairs(weighted, "random", 0.5, 0, relevant_grade=2, splits=["train"])
    added = pairs_of(noisy, "train", 2) - pairs_of(tiny, "train", 2)
    assert added == {(query, doc) for query, doc, _ in wrong}
    assert noisy.split("train").weights is not None
    assert np.count_nonzero(noisy.split("train").weights == weights.mean()) >= len(added)


def test_the_command_writes_a_folder_that_trains(run_opera_paper, beir, static_model, tmp_path):
    options = ["--share", "0.3", "--kind", "hard", "--model", static_model, "--out", "noisy"]
    done = run_opera_paper("noise", beir, *options)
    assert done.stdout.splitlines()[-1] == f"  opera train noisy --model {static_model} --out run"
    right, noisy = opera.load_data(beir), opera.load_data(tmp_path / "noisy")
    added = pairs_of(noisy, "train") - pairs_of(right, "train")
    assert f"{len(added)} of the {len(pairs_of(noisy, 'train'))} pairs of train are wrong (hard)" in done.stdout
    head, *lines = (tmp_path / "noisy" / "wrong_pairs.tsv").read_text().splitlines()
    assert head == "split\tquery_id\tdoc_id"
    assert {tuple(line.split("\t")) for line in lines} == {("train", *pair) for pair in added}
    assert pairs_of(noisy, "test") == pairs_of(right, "test")
    settings = {"method": "ft", "guard": False, "max_steps": 2}
    run = opera.adapt(tmp_path / "noisy", model=static_model, out=tmp_path / "run", **settings)
    assert run.pairs().num_rows == len(pairs_of(noisy, "train"))


@pytest.mark.parametrize(
    "options",
    [
        "--kind some --share 0.3",
        "--kind random",
        "--kind hard --share 0.3",
        "--kind random --share 1",
        "--kind random --share 0.3 --out data",
    ],
)
def test_what_cannot_be_is_refused_in_one_message(run_opera_paper, tmp_path, make_beir, options):
    make_beir().rename(tmp_path / "data")
    before = sorted(tmp_path.rglob("*"))
    done = run_opera_paper("noise", "data", "--out", "noisy", *options.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert sorted(tmp_path.rglob("*")) == before
