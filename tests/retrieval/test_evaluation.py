"""Evaluating a model on a split."""

import json

import numpy as np
import pytest

import opera
from opera.core.terminal import shown
from opera.data import Mixture
from opera.experiments.compare import prepare_grid
from opera.retrieval.encoder import open_encoder
from opera.retrieval.evaluation import query_difficulty
from opera.retrieval.measures import FULL_MEASURES
from small_runs import SMALL


def test_evaluate_takes_data_first_and_the_model_by_keyword(beir, static_model):
    evaluation = opera.evaluate(beir, model=static_model, measures=["R@20", "AP"])
    data = opera.load_data(beir)
    assert opera.evaluate(data, model=static_model, measures="R@20, AP").measures == evaluation.measures
    assert evaluation.query_ids == data.queries.ids(data.split("test").query_rows)


def test_evaluating_a_run_at_another_grade_never_asks_a_training_query(make_beir, static_model, tmp_path):
    """The run's own splits stay, whatever grade is asked for; the grades are the original ones."""
    folder = make_beir()
    (folder / "qrels" / "test.tsv").unlink()
    settings = {**SMALL, "method": "ft", "relevant_grade": 2, "seed": 5}
    run = opera.adapt(folder, model=static_model, out=tmp_path / "run", **settings)
    for grade in (None, 1, 2):
        evaluation = opera.evaluate(folder, model=run.path, measures=FULL_MEASURES, relevant_grade=grade)
        assert not set(run.pairs()["query_id"].to_pylist()) & set(evaluation.query_ids)
        assert (evaluation.measures == run.measures["final"]) is (grade != 1)


def test_every_measurement_says_once_that_documents_are_copies(make_beir, static_model, tmp_path, caplog):
    """Copies tie, so their ids decide the scores."""
    folder = make_beir()
    lines = (folder / "corpus.jsonl").read_text().splitlines()
    copy = json.loads(lines[0]) | {"_id": "copy"}
    text = f"{copy['title']} {copy['text']}".strip()
    (folder / "corpus.jsonl").write_text("\n".join([*lines, json.dumps(copy)]) + "\n")
    caplog.set_level("INFO", "opera")

    def notes() -> list[str]:
        messages = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return [message for message in messages if "copies among the documents" in message]

    opera.evaluate(folder, model=static_model)
    (note,) = notes()
    assert note == (
        f"note: {folder.name}: copies among the documents: 1, such as {shown(text)}; training, "
        "negatives and splits treat copies as one, but measures do not: ids decide which copy ranks first"
    )
    prepare_grid([str(folder)], tmp_path / "grid", [str(static_model)], {}, "ft,rp:k=0.5", [0, 1], [4])
    assert notes() == [note]
    run = opera.adapt(folder, model=static_model, out=tmp_path / "run", method="ft", **SMALL)
    assert len(notes()) == 1
    opera.evaluate(run.path)
    assert notes() == [note]


@pytest.mark.shared
@pytest.mark.slow
def test_pretrained_figures_on_nfcorpus(shared):
    # Printed to three decimals. A near-tie that another processor swaps moves a mean over 323 queries by under 0.0003.
    data, model = shared / "data" / "nfcorpus", shared / "models" / "potion-base-4m"
    measures = opera.evaluate(data, model=model, measures=FULL_MEASURES).measures
    assert measures["nDCG@10"] == pytest.approx(0.227, abs=0.001)
    assert measures["retrieved_ideal_nDCG@10"] == pytest.approx(0.303, abs=0.001)
    assert measures["R@20"] == pytest.approx(0.132, abs=0.001)


def test_difficulty_is_the_mean_similarity_to_the_relevant_documents(beir, static_model):
    data, encoder = opera.load_data(beir), open_encoder(static_model)
    queries, documents = encoder.encode(data.queries.texts(), "query"), encoder.encode(data.corpus.texts(), "document")
    test = data.split("test")
    by_hand = [
        (documents[test.doc_rows[start:end]] @ queries[row]).mean()
        for row, start, end in zip(test.query_rows, test.offsets[:-1], test.offsets[1:], strict=True)
    ]
    difficulty = query_difficulty(encoder, Mixture.of(data), "test")
    assert difficulty.dtype == np.float32
    assert difficulty == pytest.approx(np.array(by_hand), abs=1e-5)  # 24 float32 terms: 24·2⁻²⁴ on either side
