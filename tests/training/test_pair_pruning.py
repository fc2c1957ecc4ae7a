"""``opera.PairPruning`` under sentence-transformers' own trainer."""

import csv
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator
from sentence_transformers.sentence_transformer.losses import MarginMSELoss, MultipleNegativesRankingLoss, TripletLoss

import opera
from opera.training.sampler import Observations
from opera.training.trainer_batches import TrainerBatches
from opera.training.user_pairs import UserPairs
from own_scripts import arguments, draws_of, open_model, train_script, trainer_of, weights_of


@pytest.fixture
def model(static_model) -> SentenceTransformer:
    return open_model(static_model)


def observed_by(pruning: opera.PairPruning) -> list[list[Any]]:
    """Return a list that gets what a data set observes: the rows of each batch, similarity, loss and p-value."""
    (data_set_batches,) = pruning.batches
    observe, observed = data_set_batches.observe, []

    def keep(observations: Observations) -> None:
        observed.append([data_set_batches.data_set.rows(observations.pair_ids), *observations[1:]])
        observe(observations)

    data_set_batches.observe = keep
    return observed


@pytest.mark.parametrize(("column", "kind"), [("label", int), ("score", float)])
def test_rows_with_label_0_do_not_train(column, kind, dataset, model, tmp_path, caplog):
    labels = [kind(row % 3 > 0) for row in range(len(dataset))]
    args = arguments(tmp_path, per_device_train_batch_size=4, num_train_epochs=3)
    pruning = opera.PairPruning(model, dataset.add_column(column, labels), "ft", args=args)
    assert caplog.messages == ["dataset: skipped 16 of 48 rows: their label is 0"]
    seen, trainer = observed_by(pruning), trainer_of(pruning, args, MultipleNegativesRankingLoss(model))
    trainer.train()
    assert trainer.state.max_steps == 3 * 32 / 4
    assert set(pruning.batches[0].data_set.row_of_pair) == {row for row in range(48) if row % 3}
    assert {row for batch in seen for row in batch[0]} <= {row for row in range(48) if row % 3}


@pytest.mark.parametrize("labels", [[0] * 48, [1] * 48, [0.0, 0.5] * 24, [[0.0, 1.0]] * 48])
def test_a_loss_gets_the_labels_of_the_rows_that_are_drawn(labels, dataset, model, tmp_path):
    """Those with fractions, and lists, are scores; labels that are all alike say nothing."""
    texts, labels_of_loss = dataset["answer"], list[Any]()
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]]).add_column("label", labels)
    args = arguments(tmp_path, num_train_epochs=1)
    pruning = opera.PairPruning(model, rows, "ft", args=args, temperature=0.05)
    loss, seen = MarginMSELoss(model), observed_by(pruning)
    loss.register_forward_pre_hook(lambda module, inputs: labels_of_loss.append(inputs[1]))
    trainer_of(pruning, args, loss if labels[1] == 0.5 else MultipleNegativesRankingLoss(model)).train()
    assert set(pruning.batches[0].data_set.row_of_pair) == set(range(48))
    for batch, of_batch in zip(seen, labels_of_loss, strict=False):
        torch.testing.assert_close(of_batch, torch.tensor([labels[row] for row in batch[0]]))
    assert len(labels_of_loss) == (6 if labels[1] == 0.5 else 0)


def test_lists_of_negatives_are_columns(dataset, static_model, tmp_path):
    """As many as the shortest list has; with the prompt of their column, and several data sets in a dictionary."""
    texts = dataset["answer"]
    negatives = [[texts[row - offset] for offset in range(1, 3 + row % 2)] for row in range(len(texts))]
    columns = {f"neg_{number + 1}": [texts[number] for texts in negatives] for number in range(2)}
    datasets = dataset.add_column("neg", negatives), Dataset.from_dict({**dataset.to_dict(), **columns})
    weights = []
    for rows, names in zip(datasets, (["neg"], columns), strict=True):
        prompts, model = dict.fromkeys(names, "t3w1: "), open_model(static_model)
        args = arguments(tmp_path, max_steps=6, prompts={"a": prompts, "b": prompts})
        sets = {"a": rows.select(range(28)), "b": rows.select(range(20, 48))}
        pruning = opera.PairPruning(model, sets, args=args)
        trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
        weights.append(weights_of(model))
    assert weights[0] == weights[1] != weights_of(open_model(static_model))


TEXT_LISTS = {
    "lists": lambda texts: texts,
    "arrays": lambda texts: [np.array(part) for part in texts],
    "large lists": lambda texts: pa.array(texts, pa.large_list(pa.large_string())),
}


@pytest.mark.parametrize("kind", TEXT_LISTS)
def test_lists_of_positives_are_rows(kind, model):
    """Columns stay in order, whatever their type, and lists of different lengths are allowed."""
    positives, make = [["a", "b"], ["c"], ["d", "e", "f"]], TEXT_LISTS[kind]
    table = {
        "query": ["q", "r", "s"],
        "pos": make(positives),
        "negs": make([["x", "y"], ["x", "y", "z"], ["z", "y"]]),
        "neg": ["u", "v", "w"],
        "label": [1, 1, 1],
    }
    pruning = opera.PairPruning(model, Dataset(pa.table(table)), "ft")
    assert pruning.dataset.column_names == ["query", "pos", "negs_1", "negs_2", "neg", "label"]
    rows = list(zip(*(pruning.dataset[name] for name in ("query", "pos", "negs_1", "negs_2", "neg")), strict=True))
    assert rows == [
        *(("q", text, "x", "y", "u") for text in "ab"),
        ("r", "c", "x", "y", "v"),
        *(("s", text, "z", "y", "w") for text in "def"),
    ]


def test_lists_of_positives_of_one_length(model):
    features = Features({"query": Value("string"), "pos": List(Value("string"), length=2), "neg": Value("string")})
    table = {"query": ["q", "r"], "pos": [["a", "b"], ["c", "d"]], "neg": ["x", "y"]}
    assert opera.PairPruning(model, Dataset.from_dict(table, features), "ft").dataset["pos"] == ["a", "b", "c", "d"]


def test_distinct_texts_stay_where_the_user_has_them():
    """The peak is that of a block of rows as Python strings, and of arrays of numbers."""
    rows = 6000
    documents = [f"{row} {'x' * 2000}" for row in range(rows)]
    dataset = Dataset.from_dict({"query": [f"query {row}" for row in range(rows)], "document": documents})
    text_bytes = sum(map(len, documents))
    del documents
    UserPairs("", Dataset.from_dict({"query": ["a"], "document": ["b"]}), 0)  # imports
    arrow_bytes = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        data_set = UserPairs("", dataset, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    arrow_bytes = pa.total_allocated_bytes() - arrow_bytes
    assert len(data_set.data.corpus) == rows
    assert arrow_bytes + peak < 0.6 * text_bytes


def test_a_list_of_one_positive_trains_as_its_text(dataset, static_model, tmp_path):
    """Also if a column of texts follows, for several data sets, and after a resume."""
    texts = dataset["answer"]
    as_text = dataset.add_column("wrong", [*texts[1:], texts[0]])
    as_list = Dataset.from_dict({**as_text.to_dict(), "answer": [[text] for text in texts]})
    drawn, weights = [], []
    for name, rows in (("text", as_text), ("list", as_list)):
        sets = DatasetDict({"a": rows.select(range(28)), "b": rows.select(range(20, 48))})
        train_script(sets, static_model, tmp_path / name, stop=4, num_train_epochs=1)
        more = {"save_steps": 4, "num_train_epochs": 1}
        pruning, trainer = train_script(sets, static_model, tmp_path / name, resume=True, **more)
        drawn.append(draws_of(pruning))
        weights.append(weights_of(trainer.model))
    assert drawn[0] == drawn[1]
    assert weights[0] == weights[1]


def test_a_state_is_resumed_only_with_the_weights_of_its_checkpoint(dataset, static_model, tmp_path):
    """The state must be that of the checkpoint whose weights are loaded, which may lie elsewhere."""
    for name, rate in (("one", 0.05), ("other", 0.01)):
        train_script(dataset, static_model, tmp_path / name, stop=4, learning_rate=rate)
    cut, other = (tmp_path / name / "checkpoint-4" for name in ("one", "other"))

    def resume(rows: Dataset, checkpoint: Path, out: str, method: str = "dp") -> None:
        args, model = arguments(tmp_path / out), open_model(static_model)
        pruning = opera.PairPruning(model, rows, method, args=args)
        trainer = trainer_of(pruning, args, MultipleNegativesRankingLoss(model))
        trainer.train(resume_from_checkpoint=str(checkpoint))

    with pytest.raises(opera.RunFolderError, match=r"npz: cannot be resumed \(its weights are from another training"):
        resume(dataset, other, "one")
    with pytest.raises(opera.RunFolderError, match=r"sampler.npz: cannot be resumed .* with the same data set"):
        resume(dataset.select(range(41)), other, "other")
    with pytest.raises(opera.RunFolderError, match=r"cannot be resumed \(its method is not ft\)"):
        resume(dataset, other, "other", "ft")
    (cut / "sampler.npz").unlink()
    with pytest.raises(opera.RunFolderError, match=r"sampler.npz: does not exist"):
        resume(dataset, cut, "one")


def test_evaluations_change_no_draw_and_no_weight(dataset, static_model, tmp_path):
    """Losses over the user's own data set and an evaluator change no draw and no weight."""
    results = []
    for evaluates in (False, True):
        model, more = open_model(static_model), dict[str, Any]()
        args = arguments(tmp_path / str(evaluates), max_steps=4)
        if evaluates:
            args = arguments(tmp_path / "eval", max_steps=4, eval_strategy="steps", eval_steps=2, eval_on_start=True)
            texts = {str(row): text for row, text in enumerate(dataset["answer"])}
            questions = {str(row): text for row, text in enumerate(dataset["question"][:6])}
            evaluator = InformationRetrievalEvaluator(questions, texts, {str(row): {str(row)} for row in range(6)})
            more = {"eval_dataset": dataset, "evaluator": evaluator}
        pruning = opera.PairPruning(model, dataset, "dp", args=args)
        trainer = trainer_of(pruning, args, MultipleNegativesRankingLoss(model), **more)
        trainer.train()
        assert any("eval_loss" in row for row in trainer.state.log_history) == evaluates
        results.append((draws_of(pruning), weights_of(trainer.model)))
    assert results[0] == results[1]


def test_several_data_sets_with_a_loss_and_prompts_each(dataset, static_model, tmp_path):
    several = DatasetDict({"small": dataset.select(range(14)), "large": dataset.select(range(8, 48))})
    model = open_model(static_model)
    prompts = {"small": {"question": "common1 "}, "large": {"question": "common2 common3 ", "answer": "common4 "}}
    args = arguments(tmp_path, per_device_train_batch_size=4, prompts=prompts)
    pruning = opera.PairPruning(model, several, "dp", args=args)
    losses = {"small": MultipleNegativesRankingLoss(model, scale=10), "large": MultipleNegativesRankingLoss}
    trainer = trainer_of(pruning, args, losses)
    assert {name: loss.temperature for name, loss in trainer.loss.items()} == {"small": 0.1, "large": 0.05}
    trainer.train()
    assert [sampler.trained_steps for sampler in pruning.samplers] == [2 * 4, 2 * 10]
    assert [sampler.plan.max_steps for sampler in pruning.samplers] == [2 * 4, 2 * 10]
    last = trainer.state.log_history[-2]
    assert (last["opera/small_alpha"], last["opera/large_alpha"]) == pytest.approx((5, 5), abs=0.2)


def test_a_loss_without_temperature_and_lora(dataset, bert_model, tmp_path):
    texts, model = dataset["answer"], open_model(bert_model)
    rows = dataset.add_column("other", [*texts[5:], *texts[:5]])
    peft = pytest.importorskip("peft")
    model.add_adapter(peft.LoraConfig(r=2, target_modules=["query", "value"], task_type="FEATURE_EXTRACTION"))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    args = arguments(tmp_path, max_steps=2)
    with pytest.raises(opera.SettingError, match=r"^temperature: 'TripletLoss' has neither scale nor temp"):
        opera.PairPruning(model, rows).watch(TripletLoss(model))
    pruning = opera.PairPruning(model, rows, "dp", args=args, temperature=0.05)
    trainer_of(pruning, args, TripletLoss(model)).train()
    assert pruning.samplers[0].trained_steps == 2
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert changed
    assert all("lora" in name for name in changed)


@pytest.mark.parametrize(
    ("changed", "lag"), [({"gradient_accumulation_steps": 4}, 5), ({"dataloader_num_workers": 1}, 4), ({}, 2)]
)
def test_the_lag_is_the_least_that_the_arguments_allow(changed, lag, dataset, static_model, tmp_path):
    model, args = open_model(static_model), arguments(tmp_path, num_train_epochs=3, **changed)
    pruning = opera.PairPruning(model, dataset, "dp", args=args)
    trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
    sampler = pruning.samplers[0]
    assert sampler.lag == lag
    assert sampler.trained_steps == sampler.plan.max_steps == 18


@pytest.mark.parametrize(
    ("changed", "more", "message"),
    [
        ({"per_device_train_batch_size": 40}, {}, "per_device_train_batch_size=40: method=dp samples only 24 d"),
        ({}, {"loss": None}, "PairPruning: no loss is watched"),
        ({}, {"train_dataset": None}, "PairPruning: the trainer does not train on pruning.dataset; pass train_datas"),
        ({}, {"train_dataset": None, "callback": None}, "PairPruning: the batch has no pair ids; pass train_dataset"),
        ({}, {"callback": None}, "PairPruning: a training .* without its callback; pass callbacks"),
        ({"prompts": {"question": "common1 "}}, {"args": None}, "args.prompts=.*: the pairs were scored with None"),
        ({"eval_strategy": "steps", "eval_on_start": True}, {"eval_dataset": None}, "PairPruning: dataset is read aga"),
    ],
)  # fmt: skip
def test_scripts_that_do_not_train_on_what_is_drawn(changed, more, message, dataset, model, tmp_path):
    """``more`` names what the script does not take from OPERA, or takes where it must not."""
    args, loss = arguments(tmp_path, **changed), MultipleNegativesRankingLoss(model)
    pruning = opera.PairPruning(model, dataset, "dp", args=None if "args" in more else args)
    args.batch_sampler = pruning.sampler
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=dataset if "train_dataset" in more else pruning.dataset,
        eval_dataset=pruning.dataset if "eval_dataset" in more else None,
        loss=loss if "loss" in more else pruning.watch(loss),
        callbacks=[] if "callback" in more else [pruning.callback],
    )
    with pytest.raises((opera.SettingError, opera.TrainingError), match=f"^{message}"):
        trainer.train()


def test_another_sampler_is_refused(dataset, model, tmp_path):
    with pytest.raises(opera.SettingError, match=r"^args.batch_sampler=.*: PairPruning samples the batches itself"):
        opera.PairPruning(model, dataset, args=arguments(tmp_path, batch_sampler="no_duplicates"))


LABELLED = {"query": ["a", "b", "c"], "d": ["d", "e", " "], "label": [0, 1, 1]}


def of(query: list[Any], d: list[Any]) -> Callable[[Dataset], Dataset]:
    return lambda dataset: Dataset.from_dict({"q": query, "d": d})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.to_iterable_dataset(), "must be a datasets.Dataset, got IterableDataset: a method"),
        (lambda d: d.select_columns(["answer"]), "must have two text columns"),
        (lambda d: d.add_column("n", [["a"]] * 47 + [[]]), "row 47, column 'n': must be a list of at least one text"),
        (of(["a", "b"], [["c", "e"], []]), "row 1, column 'd': must be a list of at least one text"),
        (of(["a", "b"], [["c"], ["f", None]]), "row 1, column 'd': must be a text that is not empty, got None"),
        (of([["a"], ["b"]], ["c", "e"]), r"row 0, column 'q': must be a text that is not empty, got \['a'\]"),
        (
            lambda d: d.add_column("n", [["a"]] * 48).with_transform(lambda batch: batch),
            "column 'n': a data set with a transform must not have lists",
        ),
        (lambda d: d.add_column("n", ["a"] * 47 + [None]), "row 47, column 'n': must be a text, got None"),
        (lambda d: Dataset.from_dict(LABELLED), "row 2, column 'd': must be a text that is not empty, got ' '"),
    ],
)
def test_data_that_are_no_pairs(change, message, dataset, model):
    """Rows are counted in the user's data set, also behind rows that are left out."""
    with pytest.raises(opera.DataError, match=f"^dataset: {message}"):
        opera.PairPruning(model, change(dataset))


@pytest.mark.parametrize("settings", [{"method": "dpp"}, {"method": {}}, {"temperature": "warm"}])
def test_unknown_methods_and_wrong_values_are_refused(settings, dataset, model):
    with pytest.raises(opera.SettingError):
        opera.PairPruning(model, dataset, **settings)


def test_it_says_which_rows_look_false(static_model, tmp_path):
    """Of 500 rows about 12 topics, 200 have the answer of another row. 20 rows before them are not relevant."""
    rng = np.random.default_rng(0)
    topics, false = rng.integers(12, size=500), np.arange(500) % 5 < 2
    answered = np.where(false, rng.permutation(topics), topics)
    question, answer = (
        [" ".join(f"t{topic}w{word}" for word in rng.choice(words, 3, replace=False)) for topic in topics_of_texts]
        for topics_of_texts, words in ((topics, range(4, 8)), (answered, range(4)))
    )
    columns = {"question": ["t0w4"] * 20 + question, "answer": ["t1w0"] * 20 + answer, "label": [0] * 20 + [1] * 500}
    data, model = Dataset.from_dict(columns), open_model(static_model)
    args = arguments(tmp_path, max_steps=80, per_device_train_batch_size=32, learning_rate=0.1)
    pruning = opera.PairPruning(model, data, "denoise", args=args)
    with pytest.raises(opera.SettingError, match=r"^noisy_labels: nothing is trained yet"):
        pruning.noisy_labels()
    trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
    estimate = pruning.noisy_labels()
    assert estimate.low < estimate.noise_rate < estimate.high
    listed = estimate.probability_wrong[estimate.suspicious]
    assert (np.diff(listed) <= 0).all()
    assert len(listed) == (estimate.probability_wrong > 0.5).sum() > 100
    assert np.isnan(estimate.probability_wrong[:20]).all()
    wrong, probability = topics != answered, estimate.probability_wrong[20:]
    assert np.nanmean(probability[wrong]) > np.nanmean(probability[~wrong]) + 0.2
    assert pruning.review(tmp_path / "review.html").read_text().startswith("<!doctype html>")
    with pruning.review(tmp_path / "review.csv", items=50).open(newline="") as file:
        items = list(csv.DictReader(file))
    assert len(items) == 50
    with pytest.raises(opera.SettingError, match="exists"):  # it may hold decisions
        pruning.review(tmp_path / "review.csv")
    pruning.review(tmp_path / "review.html", items=20)
    other = tmp_path / "index.html"
    other.write_text("<!doctype html><title>My site</title>")
    with pytest.raises(opera.SettingError, match="exists"):
        pruning.review(other)
    assert "My site" in other.read_text()
    pruning.review(other, overwrite=True)
    assert "OPERA review" in other.read_text()
    for item in items:
        row = data[int(item["query_id"])]
        assert (item["query"], item["document"]) == (row["question"], row["answer"])


def test_a_document_is_ranked_among_those_that_were_trained_as_it_was(static_model, tmp_path):
    """Never before, or before. A pair that nothing was comparable with is not ranked later, when it was trained."""
    things = [f"t{topic}w{word}" for topic in range(4) for word in range(3)]
    rows = Dataset.from_dict(
        {"q": [thing for thing in things for _ in range(4)], "d": [f"{a} {b}" for a in things for b in things[:4]]}
    )
    model = open_model(static_model)
    args = arguments(tmp_path, num_train_epochs=3, per_device_train_batch_size=4)
    pruning = opera.PairPruning(model, rows, "ft", args=args)
    observed = observed_by(pruning)
    trainer_of(pruning, args, MultipleNegativesRankingLoss(model)).train()
    seen, trained, ranked = set[str](), set[int](), set[int]()
    for batch, _, _, p in observed:
        was_seen = [rows[row]["d"] in seen for row in batch]
        for row, value, row_was_seen in zip(batch, p, was_seen, strict=True):
            others = was_seen.count(row_was_seen) - 1
            assert np.isnan(value) == (others == 0)
            if others:  # (a + 1/2) / (b + 1), a a whole number: nothing scores the same
                assert value * (others + 1) % 1 == pytest.approx(0.5, abs=1e-5)
                ranked |= {row} - trained
        trained.update(batch)
        seen.update(rows[row]["d"] for row in batch)
    (data_set_batches,) = pruning.batches
    visits = data_set_batches.pair_sampler.all_visits()
    visited = set(data_set_batches.data_set.rows(np.flatnonzero(visits.visited)))
    assert visited == ranked < trained


def test_an_epoch_begins_when_its_batches_are_opened_not_when_one_is_read():
    """A loader of several data sets opens the batches of all sets, and saves before it reads a rare one."""
    data_set = UserPairs("", Dataset.from_dict({"query": ["a", "b"], "document": ["c", "d"]}), 0)
    batches = TrainerBatches(data_set)
    batches.begin(SimpleNamespace(trained_steps=7, upcoming=lambda: iter(())))
    iter(batches)
    assert batches.epoch_start == 7
