"""Models, rerankers and teachers that are none, or are spoilt, or would run code; forms that cannot be exported."""

import json
from pathlib import Path

import numpy as np

from attacks import change
from backbones import write_backbone, write_reranker
from bad_inputs.table import Bad, Make, link, make_folder, matching, remove, table, with_run, write

EVALUATE = "evaluate data --model model"
LOADER = matching("model: cannot be loaded as a sentence-transformers model: [^\n]+")
"""The place is ours; the reason, one line, is the library's."""
POOLING = (
    "bge-m3: has no modules.json, so its pooling would be mean, but models of the family bge-m3 need cls (model card "
    "of BAAI/bge-m3); use the whole model folder, or save it with sentence_transformers as Transformer and "
    "Pooling(dimension, 'cls')"
)
DISTILL = "train data --model model --steps 2 --batch-size 4 --out out --set loss=distill"
HEADER = "query_id\tdoc_id\tscore\n"


def backbone(name: str) -> Make:
    """Write a tiny transformer to ``whole``, and to ``NAME`` without its modules.json."""
    return lambda folder: write_backbone(name, Path(folder, "whole")).with_name("plain").rename(Path(folder, name))


def without_padding(folder: Path) -> None:
    """Write a decoder whose tokenizer has neither a padding token nor an end-of-text token."""
    write_backbone("qwen3", folder / "decoder")
    change(folder / "decoder" / "tokenizer_config.json", pad_token=..., eos_token=...)


def two_scores(folder: Path) -> None:
    """Write a cross-encoder that gives two scores per pair."""
    write_reranker(folder / "reranker", labels=2)


def data_of_the_hub(folder: Path) -> None:
    """Let the record of the run name data of the hub."""
    path = folder / "run" / "run.json"
    record = json.loads(path.read_text())
    record["data"]["source"] = "hf:someone/something"
    path.write_text(json.dumps(record))


MODELS = [
    *table("", """
evaluate data --model ./absent => ./absent: no such model folder
evaluate data --model org/absent-model =~ org/[a-z -]+: cannot be loaded as a sentence-transformers model: [^\\n]+
    """),
    Bad(EVALUATE,
        "model/sentence_bert_config.json: 'model_kwargs.device_map': a model may not set this argument, got 'auto'; "
        "remove it from the file",
        write("model/sentence_bert_config.json", '{"model_kwargs": {"device_map": "auto", "offload_folder": "x"}}')),
    Bad("evaluate data --model run",
        "run: this run is not finished and holds no model yet; run its command again with --resume", with_run,
        remove("run/model")),
    Bad(EVALUATE,
        "model/modules.json: '0.type': the type of a module must be a module of sentence_transformers, got 'os.path'; "
        "OPERA runs no code that a model's folder names",
        write("model/modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "os.path"}]')),
    Bad(EVALUATE, LOADER, remove("model/model.safetensors")),
    Bad("evaluate data --model minilm",
        "minilm: is the packaged model, but also a folder here; pass ./minilm for the folder, or start OPERA elsewhere "
        "for the packaged model", make_folder("minilm")),
    Bad(EVALUATE, matching("model/opera_run.npz: is damaged: .{5,200}"), write("model/opera_run.npz", b"PK")),
    Bad("evaluate data --model run/model",
        matching("run/model/opera_run.npz: is damaged: run: Field required; .{5,200}"), with_run,
        lambda folder: np.savez(folder / "run/model/opera_run.npz", record="{}", queries=[1])),
    Bad("evaluate data --model run", "run/model/opera_run.npz: is missing", with_run,
        remove("run/model/opera_run.npz")),
    Bad("evaluate data --model m",
        "m/pytorch_model.bin: weights must be .safetensors, but this is a pickle, which may run code; if you "
        "trust it, load the model with sentence_transformers and save it again with save_pretrained",
        write("m/config.json", '{"architectures": ["BertModel"], "model_type": "bert"}'),
        write("m/pytorch_model.bin", b"\x80\x04.")),
    *table("train data --out run", """
--query-vectors q.npy --document-vectors d.npy --set query_prompt=a => query_prompt=a: has no effect with
    adapter=query, because the vectors come from files; remove the setting
--model model --set gradient_checkpointing=true => gradient_checkpointing=true: StaticEmbedding does not support it;
    leave the setting out
    """),
    Bad(["evaluate", "data", "--model", "whole", "--query-prompt", "common1 " * 60],
        "--query-prompt: has 48 tokens, so max_query_length=48 leaves no room for the query; raise max_query_length, "
        "or shorten the prompt", backbone("bge")),
    Bad("evaluate data --model whole --passages 47",
        "--passages=47: the model reads 48 tokens of a text, with title, prompt and special tokens; pass --passages 38",
        backbone("bge")),
    Bad("evaluate data --model bge-m3", POOLING, backbone("bge-m3")),
    Bad("train data --model decoder --out run",
        "decoder: its tokenizer has neither a padding token nor an end-of-text token; set pad_token in its "
        "tokenizer_config.json", without_padding),
]  # fmt: skip

TEACHERS = [
    *table("", """
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill =~ loss=distill: data has no
    teacher scores; .*--teacher
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill --teacher t.tsv => t.tsv: cannot be
    read (No such file or directory)
train data --model model --steps 2 --batch-size 4 --out out --set distill_weight=0.3 => distill_weight=0.3: has no
    effect without loss=distill
train data --model model --steps 2 --batch-size 4 --out out --negatives hard --set train_group_size=1 =>
    --negatives=hard: train_group_size=1 leaves no room for negatives; pass train_group_size=2 or more
train data --model model --steps 2 --batch-size 4 --out out --negatives none --set train_group_size=3 =>
    train_group_size=3: has no effect with negatives=none; remove one of the two settings
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill --set distill_weight=1.5 =>
    distill_weight: must be less than or equal to 1, got 1.5
    """),
    *table("score data --out x.tsv", """
--model model --reranker reranker => model: with a reranker, the model only mines; pass negatives=N, or leave the model
    out
--reranker model =~ model: cannot be loaded as a reranker \\(a cross-encoder\\): .*
    """),
    *table("mine data --model model --out x.tsv", """
--relative-margin -0.1 => --relative-margin: must be greater than or equal to 0, got -0.1
    """),
    Bad(f"{DISTILL} --teacher t.tsv", "t.tsv: column 'doc_id' is missing (it has: query-id, corpus-id, score)",
        write("t.tsv", "query-id\tcorpus-id\tscore\n")),
    Bad(f"{DISTILL} --teacher t.tsv",
        "t.tsv: 0 of 1 score match data; query 'q', document 'd' is not there; is this score list for other data, or "
        "did a spreadsheet change the ids, as in 00123 to 123? Import the columns of ids as text",
        write("t.tsv", f"{HEADER}q\td\t1\n")),
    Bad(f"{DISTILL} --teacher t.jsonl", "t.jsonl: column 'score' must hold one value per row, got lists",
        write("t.jsonl", '{"query_id": "train0", "doc_id": "d0", "score": [1.5]}\n')),
    Bad("train data --model model --out out --teacher t.tsv",
        "--teacher=t.tsv: no setting uses them; pass loss=distill, or negatives=teacher",
        write("t.tsv", f"{HEADER}train0\td0\t1\n")),
    Bad("score data --out x.tsv --reranker reranker",
        "--reranker: a reranker must give one score per pair, but it gives 2", two_scores),
]  # fmt: skip

EXPORTS = [
    *table("", """
export ./absent --onnx --out out --no-measure => ./absent: no such model folder
export model --onnx --out out => 'model' is not a run, so OPERA does not know its data; pass --data DATA, or
    --no-measure
    """),
    Bad("export run --out out", "nothing to export: pass --onnx, --int8 or --static, or several of them", with_run),
    Bad("export run --onnx --out out", "run is a static model, which looks vectors up and runs no transformer: nothing "
        "to export; serve run/model as it is", with_run),

    Bad("export run --onnx --out full --overwrite",
        "--out full: --overwrite would delete full/mine.txt, which OPERA did not write; move it away, or pass another "
        "folder", with_run, write("full/export.json", "{}"), write("full/mine.txt", "x")),
    Bad("export run --onnx --out out",
        "hf:someone/something: not a local folder or file that OPERA reads; pass the data yourself; the "
        "run trained on it; pass --data DATA, or --no-measure", with_run, data_of_the_hub),
    Bad("push model a/b --keep-run",
        "--keep-run: model has no opera_run.npz, because no run made it; remove the option"),
    Bad("push run a/b", "run/model/README.md: is a link, but OPERA uploads files only; replace it by a file", with_run,
        link("run/model/README.md", "../../data/corpus.jsonl")),
]  # fmt: skip

ROWS = [*MODELS, *TEACHERS, *EXPORTS]
