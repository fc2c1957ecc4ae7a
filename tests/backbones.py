"""Tiny models of the architectures that are adapted in practice: random weights, their makers' folders."""

from pathlib import Path
from typing import Any

from tiny_world import vocabulary

SIZE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.5,  # with the usual 0.02, the first token hardly sees the others
}
POSITIONS = 48
"""Tokens that the models read."""


def write_backbone(name: str, folder: Path) -> Path:
    """Write a model as a sentence-transformers folder, and beside it, in ``plain``, as a folder of transformers alone.

    Args:
        name: ``bge`` (BERT, first token), ``bge-m3`` (XLM-R, first token), ``e5`` (BERT, mean) or ``qwen3`` (a decoder,
            last token, left padding, a prompt of its own).
        folder: where to write it.
    """
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    torch.manual_seed(11)
    plain = folder.with_name("plain")
    {"bge": _bert, "e5": _bert, "bge-m3": _xlm_roberta, "qwen3": _qwen3}[name](plain)
    transformer = Transformer(str(plain), max_seq_length=POSITIONS)
    pooling = {"e5": "mean", "qwen3": "lasttoken"}.get(name, "cls")
    modules = [transformer, Pooling(transformer.get_embedding_dimension(), pooling), Normalize()]
    prompts = {"query": "Instruct: common1 common2\nQuery:", "document": ""} if name == "qwen3" else None
    model = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    model.save_pretrained(str(folder), create_model_card=False)
    return folder


def write_reranker(folder: Path, labels: int = 1) -> Path:
    """Write a cross-encoder: a BERT with a head for sequences, as sentence-transformers saves one."""
    import torch
    from sentence_transformers import CrossEncoder
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    torch.manual_seed(13)
    plain = folder.with_name(f"{folder.name}-plain")
    _bert(plain)
    config = BertConfig(vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, num_labels=labels, **SIZE)
    BertForSequenceClassification(config).save_pretrained(plain)
    AutoTokenizer.from_pretrained(plain).save_pretrained(plain)
    CrossEncoder(str(plain), device="cpu").save_pretrained(str(folder))
    return folder


def _bert(plain: Path) -> None:
    from transformers import BertConfig, BertModel, BertTokenizer

    plain.mkdir(parents=True)
    (plain / "vocab.txt").write_text("\n".join(vocabulary()))
    BertTokenizer(str(plain / "vocab.txt"), model_max_length=POSITIONS).save_pretrained(plain)
    BertModel(BertConfig(vocab_size=len(vocabulary()), max_position_embeddings=POSITIONS, **SIZE)).save_pretrained(
        plain
    )


def _xlm_roberta(plain: Path) -> None:
    from transformers import XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

    words = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in vocabulary()[5:]), "<mask>"]
    tokenizer = XLMRobertaTokenizer(vocab=[(word, -1.0) for word in words], model_max_length=POSITIONS)
    tokenizer.save_pretrained(plain)
    config = XLMRobertaConfig(
        vocab_size=len(words), max_position_embeddings=POSITIONS + 2, pad_token_id=1, type_vocab_size=1, **SIZE
    )
    XLMRobertaModel(config).save_pretrained(plain)


def _qwen3(plain: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3Model

    end = "<|endoftext|>"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=[end], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([" ".join(vocabulary()[5:])] * 4, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=end, eos_token=end, padding_side="left", model_max_length=POSITIONS
    )
    fast.save_pretrained(plain)
    config = Qwen3Config(
        vocab_size=tokenizer.get_vocab_size(),
        max_position_embeddings=POSITIONS,
        num_key_value_heads=1,
        head_dim=8,
        architectures=["Qwen3ForCausalLM"],
        **SIZE,
    )
    Qwen3Model(config).save_pretrained(plain)
