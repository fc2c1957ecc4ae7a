"""The contract of every kind of model that encodes texts, against sentence-transformers' own functions."""

import json
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.base.model import BaseModel

import opera
from opera.data import TextTable
from opera.retrieval.encoder import Encoder
from opera.retrieval.kinds import KINDS, EncodingKind, encoding_kind_of, kind_in, splade
from opera.retrieval.kinds.rows import FEW_QUERIES, SparseRows, TokenRows, _csr
from opera.retrieval.locate import model_type_in
from opera.retrieval.models import load_model, set_dropout
from opera.retrieval.nearest import exact_search
from opera.retrieval.passages import DocumentVectors, products
from opera.retrieval.vectors import Shards, row_bytes

FOLDERS = {"dense": "dense", "sparse": "splade", "csr": "csr", "multi-vector": "tokens"}
QUERIES = ["t1w5 t1w7", "t2w3", "t3w1 t3w2 t3w9 common1", "t4w4", "common2 t5w5"]
DOCUMENTS = [f"t{topic}w{word} t{topic}w{word + 1} common{word}" for topic in range(6) for word in range(1, 6)]


@pytest.fixture(scope="module", params=FOLDERS)
def model(request, kind_models, bert_model):
    name = FOLDERS[request.param]
    return load_model(bert_model if name == "dense" else kind_models / name, "cpu")


@pytest.fixture(scope="module")
def kind(model):
    return encoding_kind_of(model)


@pytest.fixture(scope="module")
def queries(model, kind):
    return kind.encode(model, QUERIES, "query", "", 4)


@pytest.fixture(scope="module")
def documents(model, kind):
    return kind.encode(model, DOCUMENTS, "document", "", 4)


@pytest.fixture(scope="module")
def expected(model):
    with torch.inference_mode():
        embeddings = model.encode_query(QUERIES, prompt=""), model.encode_document(DOCUMENTS, prompt="")
        if isinstance(embeddings[0], torch.Tensor):
            embeddings = [part.to_dense() for part in embeddings]
        return model.similarity(*embeddings).numpy()


TOLERANCE = {"rtol": 2e-3, "atol": 2e-3}  # the vectors of tokens are rounded to float16


def dense(rows):
    if isinstance(rows, SparseRows):
        return rows.matrix.toarray()
    return rows.vectors if isinstance(rows, TokenRows) else np.asarray(rows)


def test_the_scores_of_rows_are_the_librarys(queries, documents, expected, model):
    if model.similarity_fn_name == "cosine":
        pytest.skip("OPERA divides by the lengths when it encodes")
    np.testing.assert_allclose(products(queries, documents), expected, **TOLERANCE)


def test_the_score_of_a_pair_is_that_of_all_scores(queries, documents):
    numbers = np.arange(len(QUERIES))
    of_pairs = DocumentVectors(documents)
    _, scores = of_pairs.best_rows(queries, numbers + 3)
    np.testing.assert_allclose(scores, products(queries, documents)[numbers, numbers + 3], rtol=1e-5, atol=1e-6)


def test_rows_are_indexed_by_slices_and_numbers(documents):
    scores = products(documents[:4], documents)
    numbers = np.array([7, 0, 7, 3])
    np.testing.assert_allclose(products(documents[:4], documents[numbers]), scores[:, numbers], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(products(documents[:4], documents[2:9]), scores[:, 2:9], rtol=1e-5, atol=1e-6)
    assert len(documents[5:5]) == 0
    assert len(documents[:3]) == 3


def test_files_hold_the_rows_and_join_them(kind, documents, tmp_path):
    shards = Shards(len(DOCUMENTS), 8)
    for number, name in enumerate(shards.names(kind.suffix)):
        kind.write(tmp_path / name, documents[shards.rows(number)])
    stored = kind.stored(tmp_path, shards)
    assert stored.shape == documents.shape
    np.testing.assert_array_equal(dense(stored[:]), dense(documents))
    numbers = np.array([20, 1, 9, 8, 1])
    np.testing.assert_array_equal(dense(stored[numbers]), dense(documents[numbers]))
    np.testing.assert_array_equal(dense(kind.join([documents[:7], documents[7:]])), dense(documents))


def test_a_search_finds_the_best_documents_in_any_tiles(kind, model, queries, documents, expected):
    table = TextTable.from_texts({f"d{number:03d}": text for number, text in enumerate(DOCUMENTS)})
    rankings = []
    for size in (4, 13, 100):
        nearest = kind.nearest(queries, table, 5, "cpu", "dot", None)
        for first in range(0, len(DOCUMENTS), size):
            nearest.add(first, documents[first : first + size])
        rankings.append(nearest.ranking())
    scores = products(queries, documents)
    best = np.sort(scores, axis=1)[:, ::-1][:, :5]
    np.testing.assert_allclose(rankings[0].scores, best, rtol=1e-5, atol=1e-6)
    for ranking in rankings[1:]:
        np.testing.assert_array_equal(ranking.doc_rows, rankings[0].doc_rows)


def test_a_search_keeps_the_best_passage_of_a_document(kind, queries, documents):
    of_documents = np.repeat(np.arange(10), 3)
    table = TextTable.from_texts({f"d{number:03d}": "text" for number in range(10)})
    nearest = kind.nearest(queries, table, 10, "cpu", "dot", of_documents)
    ranking = exact_search(nearest, documents)
    best = products(queries, documents).reshape(len(QUERIES), 10, 3).max(axis=2)
    np.testing.assert_allclose(ranking.scores, -np.sort(-best, axis=1), rtol=1e-5, atol=1e-6)
    assert all(len(set(rows)) == 10 for rows in ranking.doc_rows.tolist())


def test_a_batch_is_compared_as_by_the_library(kind, model, expected):
    def column(texts, task):
        features = model.preprocess(texts, task=task)
        return kind.forward(model, {**features, "task": task})

    parts = [column(DOCUMENTS[:12], "document"), column(DOCUMENTS[12:], "document")]
    with torch.inference_mode():
        similarity = kind.compare(model, column(QUERIES, "query"), kind.join_columns(parts))
    np.testing.assert_allclose(similarity.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_counts_of_parts_add_up(kind, queries, documents):
    parts = kind.counts(documents[:11]) + kind.counts(documents[11:])
    np.testing.assert_array_equal(parts, kind.counts(documents))
    facts = kind.facts(kind.counts(queries), parts)
    assert all(value > 0 for value in facts.values())
    if kind.name == "sparse":
        shared = (queries.matrix != 0).astype(int) @ (documents.matrix != 0).astype(int).T
        assert facts["FLOPS"] == pytest.approx(shared.mean())


def test_a_saved_model_says_what_it_is(kind, model, tmp_path):
    model.save_pretrained(str(tmp_path / "saved"), create_model_card=False)
    assert kind_in(tmp_path / "saved") is kind
    loaded = load_model(tmp_path / "saved", "cpu")
    assert type(loaded) is kind.model_class


def test_a_value_that_is_not_finite_is_found(kind, documents):
    if isinstance(documents, SparseRows):
        data = documents.matrix.data.copy()
        data[documents.matrix.indptr[4]] = np.nan
        spoilt = SparseRows(_csr(data, documents.matrix.indices, documents.matrix.indptr, documents.shape))
    elif isinstance(documents, TokenRows):
        vectors = documents.vectors.copy()
        vectors[documents.offsets[4]] = np.inf
        spoilt = TokenRows(vectors, documents.offsets)
    else:
        spoilt = documents.copy()
        spoilt[4, 0] = np.nan
    assert kind.unusable(documents).tolist() == []
    assert kind.unusable(spoilt).tolist() == [4]


@given(st.integers(0, 2**32 - 1))
def test_few_queries_get_the_scores_of_many(seed):
    rng = np.random.default_rng(seed)
    values = rng.random((FEW_QUERIES + 5, 40), dtype=np.float32) * (rng.random((FEW_QUERIES + 5, 40)) < 0.3)
    from scipy.sparse import csr_array

    rows = SparseRows(csr_array(values.astype(np.float32)))
    np.testing.assert_array_equal(rows.products(rows[:FEW_QUERIES]), rows.products(rows)[:FEW_QUERIES])


class TestSpladeInBlocks:
    @pytest.fixture
    def model(self, kind_models):
        model = load_model(kind_models / "splade", "cpu")
        set_dropout(model, 0.0)
        return model.train()  # else the library's pooling changes its inputs

    def results(self, model, context):
        inputs = model.preprocess([*DOCUMENTS[:6], "", "t1w1"])
        with context:
            weights = model(dict(inputs))["sentence_embedding"]
        model.zero_grad()
        (weights * torch.arange(weights.numel()).view_as(weights).cos()).sum().backward()
        return weights.detach(), {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    def test_weights_and_gradients_are_the_librarys(self, model):
        assert splade._can_run_in_blocks(model)
        expected, gradients = self.results(model, nullcontext())
        weights, found = self.results(model, splade.in_blocks(model))
        torch.testing.assert_close(weights, expected)
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-5)

    def test_the_logits_of_all_tokens_are_never_computed(self, model):
        shapes = []
        decoder = splade._decoder(model)
        with splade.in_blocks(model):
            hook = decoder.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape[-1]))
            model(model.preprocess(["t1w1 t1w2"]))
            hook.remove()
        assert shapes == [decoder.in_features]

    def test_a_block_inside_a_block_leaves_the_outer_one(self, model):
        decoder = splade._decoder(model)
        with splade.in_blocks(model):
            with splade.in_blocks(model):
                pass
            assert "forward" in vars(decoder)
        assert "forward" not in vars(decoder)
        assert "forward" not in vars(model[1])

    def test_another_model_stays_as_it_is(self, kind_models):
        model = load_model(kind_models / "csr", "cpu")
        with splade.in_blocks(model):
            assert not any("forward" in vars(module) for module in model.modules())


def test_an_unknown_kind_of_model_is_an_error(tmp_path, bert_model):
    import shutil

    shutil.copytree(bert_model, tmp_path / "model")
    path = tmp_path / "model" / "config_sentence_transformers.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**content, "model_type": "Oracle"}))
    with pytest.raises(opera.ModelError, match="model_type: must be a model of sentence-transformers, got 'Oracle'"):
        load_model(tmp_path / "model", "cpu")


def test_an_extension_registers_a_kind(registries, tmp_path):
    class Oracle(BaseModel):
        def _load_default_modules(self, *arguments, **options):
            raise NotImplementedError

    class OracleKind(EncodingKind):
        name, title, model_class = "oracle", "oracle", Oracle

    KINDS[OracleKind.name] = OracleKind
    (tmp_path / "config_sentence_transformers.json").write_text('{"model_type": "Oracle"}')
    assert kind_in(tmp_path) is OracleKind
    assert encoding_kind_of(Oracle.__new__(Oracle)) is OracleKind
    with pytest.raises(opera.SettingError, match="kind: must be 'dense', 'sparse' or 'multi-vector', got 'oracle'"):
        opera.search("example:faq", "a question", model=tmp_path, kind="oracle")


def test_a_reranker_is_not_an_encoder(kind_models):
    assert not issubclass(KINDS["reranker"], EncodingKind)
    with pytest.raises(opera.ModelError, match="pass it with --reranker"):
        load_model(kind_models / "reranker", "cpu")


def test_a_loaded_model_keeps_its_kind(kind_models):
    model = load_model(kind_models / "splade", "cpu")
    assert Encoder(model).kind.name == "sparse"
    with pytest.raises(opera.SettingError, match="kind=dense: the loaded model is a SparseEncoder"):
        load_model(model, "cpu", "dense")


class TestIdentity:
    @pytest.mark.parametrize("name", FOLDERS.values())
    def test_encoding_changes_neither_dimension_nor_identity(self, kind_models, bert_model, name):
        model = load_model(bert_model if name == "dense" else kind_models / name, "cpu")
        before = Encoder(model).dimension, Encoder(model).fingerprint
        rows = Encoder(model).encode(QUERIES, "query")
        assert (Encoder(model).dimension, Encoder(model).fingerprint) == before
        assert rows.shape[1] == before[0]

    def test_the_number_of_active_words_is_part_of_a_sparse_model(self, kind_models):
        models = [load_model(kind_models / "splade", "cpu") for _ in range(2)]
        models[1].max_active_dims = 3
        encoders = [Encoder(model) for model in models]
        assert encoders[0].fingerprint != encoders[1].fingerprint

    @pytest.mark.parametrize("name", ["splade", "tokens"])
    def test_half_precision_gives_nearly_the_same_scores(self, kind_models, name):
        scores = []
        for precision in ("fp32", "bf16"):
            encoder = Encoder(load_model(kind_models / name, "cpu"), precision)
            scores.append(products(encoder.encode(QUERIES, "query"), encoder.encode(DOCUMENTS, "document")))
        np.testing.assert_allclose(scores[1], scores[0], rtol=0.05, atol=0.05 * abs(scores[0]).max())

    @pytest.mark.parametrize(
        ("files", "expected"),
        [
            ({"config_sentence_transformers.json": {"model_type": "ColBERT"}}, "MultiVectorEncoder"),
            ({"config.json": {"architectures": ["HF_ColBERT"]}}, "MultiVectorEncoder"),
            ({"config.json": {"architectures": ["BertModel"]}}, "SentenceTransformer"),
            ({"config_sentence_transformers.json": {}, "modules.json": []}, "SentenceTransformer"),
        ],
    )
    def test_models_of_others_say_what_they_are(self, tmp_path, files, expected):
        for name, content in files.items():
            (tmp_path / name).write_text(json.dumps(content))
        assert model_type_in(tmp_path) == expected

    def test_a_saved_projection_is_no_new_head(self, kind_models, bert_model):
        assert not KINDS["multi-vector"].adds_head(kind_models / "tokens", ["BertModel"])
        assert KINDS["multi-vector"].adds_head(bert_model, ["BertModel"])


def test_a_document_without_tokens_scores_zero(kind_models):
    kind, model = KINDS["multi-vector"], load_model(kind_models / "tokens", "cpu")
    queries, documents = torch.ones(2, 3, 9), torch.ones(2, 4, 9)
    documents[1, :, -1] = 0
    queries[1, 1:, -1] = 0
    scores = kind.compare(model, queries, documents)
    assert scores[:, 1].tolist() == [0.0, 0.0]
    assert (scores[:, 0] > 0).all()


def test_a_text_without_tokens_has_no_words():
    hidden, weight = torch.randn(3, 4), torch.randn(5, 4)
    best = splade.MaxLogits.apply(hidden, weight, [3, 3])
    torch.testing.assert_close(best[0], (hidden @ weight.T).amax(0))
    assert best[1].isneginf().all()


def test_a_tile_is_as_large_as_its_vectors(kind_models):
    kind, model = KINDS["multi-vector"], load_model(kind_models / "tokens", "cpu")
    rows = kind.encode(model, DOCUMENTS, "document", "", 8)
    assert row_bytes(rows) == pytest.approx(rows.vectors.nbytes / len(rows), abs=1)
