"""Small real things that tests and studies run on: a topical corpus, a static model and a two-layer BERT."""

import hashlib
import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opera.data import Mixture, Qrels, RetrievalData, TextTable, draw_missing_splits

TOPICS, WORDS_PER_TOPIC = 12, 8
Texts = Mapping[str, str]


def data_from_dicts(name: str, *, corpus: Texts, queries: Texts, qrels: Mapping[str, Any]) -> RetrievalData:
    """A data set of texts by id, and grades by split, query and document."""
    tables = TextTable.from_texts(corpus), TextTable.from_texts(queries)
    splits = {}
    for split, judged in qrels.items():
        rows = [(query, doc, grade) for query, docs in judged.items() for doc, grade in docs.items()]
        query_ids, doc_ids, grades = zip(*rows, strict=True) if rows else ((), (), ())
        found = tables[1].find_rows(list(query_ids)), tables[0].find_rows(list(doc_ids))
        splits[split] = Qrels.from_arrays(*found, np.array(grades, dtype=np.int32))
    contents = json.dumps([name, corpus, queries, qrels], default=int)
    short = name.rsplit("/", 1)[-1]
    return RetrievalData(short, name, hashlib.sha256(contents.encode()).hexdigest(), *tables, splits)


def with_drawn_splits(data: RetrievalData, **settings: Any) -> RetrievalData:
    """The data with a test split, and with a dev split if the settings ask for one."""
    return draw_missing_splits(Mixture.of(data), **settings).joined


def judged(data: RetrievalData, split: str) -> list[tuple[str, str, int]]:
    """The judgements of a split, by ids."""
    qrels = data.split(split)
    queries = data.queries.ids(qrels.query_rows[qrels.query_index])
    return list(zip(queries, data.corpus.ids(qrels.doc_rows), qrels.grades.tolist(), strict=True))


def write_table(path: Path, rows: Any) -> Path:
    """Write rows as CSV, TSV, JSON Lines or Parquet, as the name of the file says."""
    import pandas as pd

    frame = pd.DataFrame(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, sep="\t" if path.suffix == ".tsv" else ",", index=False)
    return path


def topic_word(topic: int, word: int) -> str:
    return f"t{topic}w{word}"


def vocabulary() -> list[str]:
    topical = [topic_word(t, w) for t in range(TOPICS) for w in range(WORDS_PER_TOPIC)]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *topical, *(f"common{i}" for i in range(20))]


def write_beir(folder: Path, n_docs: int = 120, n_train: int = 40, n_test: int = 16, dev: bool = False) -> Path:
    """Documents of a topic use some of its words, its queries others; all of a topic's documents are relevant."""
    rng = np.random.default_rng(7)
    (folder / "qrels").mkdir(parents=True)

    def text(topic: int, words: range) -> str:
        chosen = [topic_word(topic, int(w)) for w in rng.choice(words, 3)]
        return " ".join([*chosen, *(f"common{i}" for i in rng.integers(20, size=3))])

    doc_topics = rng.integers(TOPICS, size=n_docs)
    with (folder / "corpus.jsonl").open("w") as file:
        for row, topic in enumerate(doc_topics):
            words = range(WORDS_PER_TOPIC // 2)
            file.write(json.dumps({"_id": f"d{row}", "title": "common0", "text": text(topic, words)}) + "\n")
    sizes = {"train": n_train, "test": n_test, **({"dev": n_test} if dev else {})}
    with (folder / "queries.jsonl").open("w") as file:
        for split, size in sizes.items():
            lines = ["query-id\tcorpus-id\tscore"]
            for number in range(size):
                topic = int(rng.integers(TOPICS))
                words = range(WORDS_PER_TOPIC // 2, WORDS_PER_TOPIC)
                file.write(json.dumps({"_id": f"{split}{number}", "text": text(topic, words)}) + "\n")
                lines += [f"{split}{number}\td{row}\t{1 + row % 2}" for row in np.flatnonzero(doc_topics == topic)]
            (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_noisy_beir(folder: Path, wrong_grade: int) -> Path:
    """The same with 100 queries to train on; 40% of their pairs are random documents, with a grade of their own."""
    train = write_beir(folder, n_train=100, dev=True) / "qrels" / "train.tsv"
    right = {tuple(line.split("\t")[:2]) for line in train.read_text().splitlines()[1:]}
    others = sorted({(f"train{query}", f"d{doc}") for query in range(100) for doc in range(120)} - right)
    wrong = np.random.default_rng(0).permutation(others)[: round(len(right) * 0.4 / 0.6)]
    with train.open("a") as file:
        file.writelines(f"{query}\t{doc}\t{wrong_grade}\n" for query, doc in wrong)
    return folder


def write_static_model(folder: Path) -> Path:
    """A static embedding model of the topical words."""
    return static_model_of(folder, vocabulary(), 24)


def static_model_of(folder: Path, words: Sequence[str], dimension: int) -> Path:
    """A static embedding model in a sentence-transformers folder, random vectors."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    numbers = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(len(numbers), dimension, generator=torch.Generator().manual_seed(3))
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()])
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def write_bert_model(folder: Path) -> Path:
    """A two-layer BERT with mean pooling and prompts, random weights, in a sentence-transformers folder."""
    return _write_bert(folder, vocabulary(), 64, {"query": "common1 ", "document": "common2 "})


def write_letter_model(folder: Path, positions: int = 128) -> Path:
    """The same without prompts, for any text: its tokens are single letters, digits and signs."""
    signs = string.ascii_lowercase + string.digits + string.punctuation
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *(f"##{sign}" for sign in signs)]
    return _write_bert(folder, words, positions, None)


def _write_bert(folder: Path, words: list[str], positions: int, prompts: dict[str, str] | None) -> Path:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    plain = folder.with_name("hf")
    plain.mkdir(parents=True)
    torch.manual_seed(5)
    (plain / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(plain / "vocab.txt"), model_max_length=positions).save_pretrained(plain)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=positions,
    )
    BertModel(config).save_pretrained(plain)
    transformer = Transformer(str(plain))
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[transformer, pooling], prompts=prompts, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder
