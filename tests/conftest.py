"""Small real things for tests: a topical corpus, a static model and a two-layer BERT, all made on the spot."""

from __future__ import annotations

import gc
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # messages and the order of sums are those of the CPU everywhere
os.environ["OMP_NUM_THREADS"] = "1"  # the models here are tiny; threads would only wait for each other

settings.register_profile("opera", deadline=None, derandomize=True)  # the same examples on every machine
settings.register_profile("explore", deadline=None, max_examples=1000)  # pytest --hypothesis-profile=explore
settings.load_profile("opera")

SHARED = Path(__file__).parents[2] / "shared"
TOPICS, WORDS_PER_TOPIC = 12, 8


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = os.environ.get("OPERA_CACHE")
    os.environ["OPERA_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    os.environ.pop("OPERA_CACHE")
    if before is not None:
        os.environ["OPERA_CACHE"] = before


@pytest.fixture(scope="session")
def _libraries_are_not_garbage() -> None:
    """Import the libraries and exempt them from garbage collection: accelerate collects after every training."""
    import opera.training.adapt  # noqa: F401

    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def _signals_as_on_a_terminal() -> None:
    """A background job or nohup ignores some signals, and so would the processes that tests start and stop."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def interrupted_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], AbstractContextManager[None]]:
    """``with interrupted_at(step)``: a training inside breaks off when that step has ended."""

    @contextmanager
    def interrupted(step: int) -> Iterator[None]:
        from opera.training.callbacks import Trace

        on_step_end = Trace.on_step_end

        def interrupt(self: Trace, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            on_step_end(self, args, state, control, **kwargs)
            if state.global_step == step:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Trace, "on_step_end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                yield

    return interrupted


@pytest.fixture(scope="session")
def shared() -> Path:
    if not (SHARED / "data").is_dir():
        pytest.skip("the real data is not beside the checkout (../shared/data)")
    return SHARED


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


@pytest.fixture
def make_beir(tmp_path: Path) -> Callable[..., Path]:
    """Make a fresh BEIR folder that a test may spoil."""
    return lambda **sizes: write_beir(tmp_path / "beir", **sizes)


@pytest.fixture(scope="session")
def beir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_beir(tmp_path_factory.mktemp("data") / "topics")


@pytest.fixture(scope="session")
def static_model(tmp_path_factory: pytest.TempPathFactory, _libraries_are_not_garbage: None) -> Path:
    """A static embedding model in a sentence-transformers folder, random vectors."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: number for number, word in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = torch.randn(len(words), 24, generator=torch.Generator().manual_seed(3))
    folder = tmp_path_factory.mktemp("static") / "model"
    model = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=weights), Normalize()])
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


@pytest.fixture(scope="session")
def bert_model(tmp_path_factory: pytest.TempPathFactory, _libraries_are_not_garbage: None) -> Path:
    """A two-layer BERT with mean pooling and prompts, random weights, in a sentence-transformers folder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    home = tmp_path_factory.mktemp("bert")
    torch.manual_seed(5)
    (home / "vocab.txt").write_text("\n".join(vocabulary()))
    BertTokenizer(str(home / "vocab.txt"), model_max_length=64).save_pretrained(home / "hf")
    config = BertConfig(
        vocab_size=len(vocabulary()),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(home / "hf")
    transformer = Transformer(str(home / "hf"))
    pooling = Pooling(transformer.get_embedding_dimension(), "mean")
    model = SentenceTransformer(
        modules=[transformer, pooling], prompts={"query": "common1 ", "document": "common2 "}, device="cpu"
    )
    model.save_pretrained(str(home / "model"), create_model_card=False)
    return home / "model"
