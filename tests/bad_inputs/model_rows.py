"""Models, rerankers and teachers that are none, or are spoilt, or would run code; forms that cannot be exported."""

from __future__ import annotations

import json
from pathlib import Path

from backbones import write_backbone, write_reranker
from bad_inputs.table import (
    Bad,
    Make,
    cut,
    edit,
    link,
    make_folder,
    matching,
    pipe,
    remove,
    table,
    with_run,
    write,
)  # fmt: skip

EVALUATE = "evaluate data --model model"
CONFIG = '{"architectures": ["BertModel"], "model_type": "bert"'
NO_MODEL = "not a model folder: it holds neither modules.json (sentence-transformers) nor config.json (transformers)"
WORDS = "cannot be loaded as a sentence-transformers model: [^\n]+"
LOADER, LOADER_M, HUB = (matching(f"{place}: {WORDS}") for place in ("model", "m", "org/[a-z -]+"))
"""The place is ours; the reason, one line, is the library's."""
LONG = "common1 " * 60
NO_ROOM = (
    "query_prompt: has 48 tokens, and max_query_length=48 leaves no room for the query; raise max_query_length, or "
    "shorten the prompt"
)
POOLING = (
    "bge-m3: has no modules.json, which says how tokens are pooled: sentence-transformers takes mean, and models of "
    "the family bge-m3 need cls (model card of BAAI/bge-m3); use the model's whole folder, with modules.json, or save "
    "it with sentence_transformers as the modules Transformer and Pooling(dimension, 'cls')"
)
DISTILL = "train data --model model --steps 2 --batch-size 4 --out out --set loss=distill"
HEADER = "query_id\tdoc_id\tscore\n"
STATIC = (
    "is a static model, which looks vectors up and runs no transformer: nothing to export; serve run/model as it is"
)


def backbone(name: str) -> Make:
    """Write a tiny transformer to ``whole``, and to ``NAME`` without its modules.json."""
    return lambda folder: write_backbone(name, Path(folder, "whole")).with_name("plain").rename(Path(folder, name))


def two_scores(folder: Path) -> None:
    """Write a cross-encoder that gives two scores per pair."""
    write_reranker(folder / "reranker", labels=2)


def source_in_run(source: str) -> Make:
    """Let the record of the run name other data."""

    def make(folder: Path) -> None:
        record = json.loads((folder / "run" / "run.json").read_text())
        record["data"]["source"] = source
        (folder / "run" / "run.json").write_text(json.dumps(record))

    return make


MODELS = [
    *table("", """
evaluate data --model ./absent => ./absent: no such model folder
evaluate data --model data/corpus.jsonl => data/corpus.jsonl: must be the folder of a model, but is a file
evaluate data --model data => data: not a model folder: it holds neither modules.json (sentence-transformers) nor
    config.json (transformers)
evaluate data --model org/absent-model =~ org/[a-z -]+: cannot be loaded as a sentence-transformers model: [^\\n]+
evaluate data --model https://example.org/model => https://example.org/model: no such model folder
    """),
    Bad(EVALUATE,
        "model/sentence_bert_config.json: 'model_kwargs.device_map': a model may not set this argument, got 'auto'; "
        "take it out of the file",
        write("model/sentence_bert_config.json", '{"model_kwargs": {"device_map": "auto", "offload_folder": "x"}}')),
    Bad(EVALUATE,
        "model/config.json: 'attn_implementation': a model may ask for eager or sdpa, got 'owner/kernel'; other "
        "implementations can be code from the hub. Take it out of the file; the setting attn_implementation is "
        "yours", write("model/config.json", '{"model_type": "bert", "attn_implementation": "owner/kernel"}')),
    Bad("evaluate data --model ./m", "./m: no such model folder", link("m", "absent")),
    Bad("evaluate data --model m",
        "m: not a model folder: it holds neither modules.json (sentence-transformers) nor config.json "
        "(transformers)", make_folder("m")),
    Bad("evaluate data --model run",
        "run: this run is not finished and holds no model yet; run its command again with --resume", with_run,
        remove("run/model")),
    Bad(EVALUATE, "model/modules.json: not JSON", write("model/modules.json", "{")),
    Bad(EVALUATE, "model/modules.json: must be a list of objects, one per module",
        write("model/modules.json", "[1, 2]")),
    Bad(EVALUATE,
        "model/modules.json: '0.type': the type of a module must be a module of sentence_transformers, got 'os.path'; "
        "OPERA runs no code that a model's folder names",
        write("model/modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "os.path"}]')),
    Bad(EVALUATE, LOADER,
        write("model/modules.json", '[{"idx": 0, "name": "0", "path": "../../x", '
              '"type": "sentence_transformers.models.Normalize"}]')),
    Bad(EVALUATE, LOADER, cut("model/model.safetensors", 100)),
    Bad(EVALUATE, LOADER, remove("model/model.safetensors")),
    Bad(EVALUATE, "model/model.safetensors: must be a file, but is a named pipe", pipe("model/model.safetensors")),
    Bad(EVALUATE, LOADER, write("model/tokenizer.json", "{]")),
    Bad("evaluate data --model m",
        "m/pytorch_model.bin: weights must be .safetensors, and this is a pickle, which may run code; if you "
        "trust it, load the model with sentence_transformers and save it again with save_pretrained",
        write("m/config.json", CONFIG + "}"), write("m/pytorch_model.bin", b"\x80\x04.")),
    Bad("evaluate data --model m", LOADER_M, write("m/config.json", CONFIG + ', "auto_map": {"AutoModel": "evil.M"}}'),
        write("m/evil.py", "raise SystemExit(9)")),
    Bad("evaluate data --model m", "m/config.json: not JSON", write("m/config.json", "no")),
    Bad("evaluate data --model m", LOADER_M, write("m/config.json", "{}")),
    Bad("train data --model model --out run", LOADER, cut("model/model.safetensors", 50)),
    *table("", """
train data --out run --query-vectors q.npy --document-vectors d.npy --set query_prompt=a => query_prompt=a: with
    adapter=query vectors come from files; remove the setting
    """),
    *table("train data --model model --out run", """
--set gradient_checkpointing=true => gradient_checkpointing=true: StaticEmbedding cannot; leave the setting out
    """),
    Bad(["train", "data", "--model", "whole", "--out", "run", "--set", f"query_prompt={LONG}"],
        NO_ROOM, backbone("bge")),
    Bad(["evaluate", "data", "--model", "whole", "--query-prompt", LONG], NO_ROOM,
        backbone("bge")),
    Bad("evaluate data --model bge-m3", POOLING, backbone("bge-m3")),
]  # fmt: skip

TEACHERS = [
    *table("", """
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill =~ loss=distill: data holds no
    scores of a teacher; .*--teacher
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill --teacher t.tsv => t.tsv: cannot be
    read (No such file or directory)
train data --model model --steps 2 --batch-size 4 --out out --set loss=distill --set distill_weight=1.5 =>
    distill_weight: must be less than or equal to 1, got 1.5
score data --out x.tsv => model: pass a model, or a reranker
    """),
    *table("score data --out x.tsv", """
--model model --reranker reranker => model: with a reranker, the model only mines; pass negatives=N, or leave the model
    out
--model model --negatives many => --negatives: must be 'given' or a number to mine, got 'many'
--model model --negatives given => --negatives=given: data has no negatives; use negatives=random or negatives=hard
--reranker ./nowhere => ./nowhere: no such model folder
--reranker model =~ model: cannot be loaded as a reranker \\(a cross-encoder\\): .*
    """),
    *table("mine data --model model --out x.tsv", """
--relative-margin -0.1 => --relative-margin: must be greater than or equal to 0, got -0.1
--max-score 1.5 => --max-score: must be less than or equal to 1, got 1.5
--index hsnw => --index: must be one of exact, hnsw, ivf, got 'hsnw'; did you mean 'hnsw'?
    """),
    Bad(f"{DISTILL} --teacher t.xlsx", matching(r"t\.xlsx: must be a table .*"), write("t.xlsx", "")),
    Bad(f"{DISTILL} --teacher t.tsv", "t.tsv: column 'query_id' is missing (it has: query-id, corpus-id, score)",
        write("t.tsv", "query-id\tcorpus-id\tscore\n")),
    Bad(f"{DISTILL} --teacher t.tsv", "t.tsv:2: column 'score' must be a number, got 'high'",
        write("t.tsv", f"{HEADER}train0\td0\thigh\n")),
    Bad(f"{DISTILL} --teacher t.tsv",
        "t.tsv: has 1 pair, but none is in data (query 'q', document 'd'); are they scores of other data?",
        write("t.tsv", f"{HEADER}q\td\t1\n")),
    Bad(f"{DISTILL} --teacher t.jsonl",
        "t.jsonl: column 'query_id' is missing (it has: query, pos, neg, pos_scores)",
        write("t.jsonl", '{"query": "q", "pos": ["d"], "neg": [], "pos_scores": [1]}\n')),
    Bad(f"{DISTILL} --teacher t.parquet", matching(r"t\.parquet: cannot be read \(.*\)"),
        write("t.parquet", "PAR1 and no more")),
    Bad("train data --model model --out out --teacher t.tsv",
        "--teacher=t.tsv: no setting uses them; pass loss=distill, or negatives=teacher",
        write("t.tsv", f"{HEADER}train0\td0\t1\n")),
    Bad(f"{DISTILL} --set train_group_size=1 --teacher t.tsv",
        "loss=distill: needs negatives to compare the positive with; pass train_group_size=2 or more",
        write("t.tsv", f"{HEADER}train0\td0\t1\n")),
    Bad("score data --out x.tsv --reranker reranker",
        "reranker: must give one score per pair to be a reranker, but gives 2", two_scores),
    Bad("mine data --model model --out x.tsv --reranker run",
        matching(r"run/model: cannot be loaded as a reranker \(a cross-encoder\): .*"), with_run),
]  # fmt: skip

EXPORTS = [
    *table("", """
export ./absent --onnx --out out --no-measure => ./absent: no such model folder
export model --onnx --out out => model: is no run, so its data are not known; pass --data DATA, or --no-measure
export absent --onnx --out out => absent: no such run or folder; with a model of the hub pass --data DATA, or
    --no-measure
push a/b c/d => a/b: must be a folder to push, such as a run's
push data a/b =~ data: not a model folder: .*
    """),
    Bad("export run --out out", "nothing to export: pass --onnx, --int8 or --static, or several of them", with_run),
    Bad("export run --onnx --out out", f"run {STATIC}", with_run),
    Bad("export run --onnx --out out --data ./absent", matching(r"\./absent: no such file or folder.*"), with_run),
    Bad("export run --onnx --out out", matching(r"data: .*; it is the run's data: pass --data DATA, or --no-measure"),
        with_run, remove("data")),
    Bad("export run --onnx --out full", "--out full: is not empty and holds no export; pass an empty or a new folder",
        with_run, write("full/mine.txt", "x")),
    Bad("export run --onnx --out full",
        "--out full: holds an export; pass --overwrite to replace it, or another folder", with_run,
        write("full/export.json", "{}")),
    Bad("export run --onnx --out full --overwrite",
        "--out full: --overwrite would delete full/mine.txt, which OPERA did not write; move it away, or pass another "
        "folder", with_run, write("full/export.json", "{}"), write("full/mine.txt", "x")),
    Bad("export full --onnx --out full --overwrite --no-measure",
        "--out full: --overwrite would delete full, which this command reads; pass another folder",
        write("full/export.json", "{}"),
        write("full/modules.json", "[]")),
    Bad("export run --onnx --out data/corpus.jsonl", matching(r"--out data/corpus.jsonl: .*"), with_run),
    Bad("export run --onnx --out out", matching(r"run/run\.json: .*"), with_run, edit("run/run.json", 1, "[1]")),
    Bad("export run --onnx --out out --push name",
        "--push: must be OWNER/NAME, as the hub names repositories, got 'name'", with_run),
    Bad("export run --onnx --static --out out --push a/b",
        "--push: a static model is a model of its own; export and push it alone, under another name", with_run),
    Bad("export run --onnx --out out",
        "hf:someone/something: not a local folder or file that OPERA reads; pass the data yourself; it is "
        "the run's data: pass --data DATA, or --no-measure", with_run, source_in_run("hf:someone/something")),
    Bad("push run a/b", "run/model/README.md: is a link, and OPERA uploads files only; replace it", with_run,
        link("run/model/README.md", "../../data/corpus.jsonl")),
    Bad("push run name", "name: must be OWNER/NAME, as the hub names repositories, got 'name'", with_run),
    Bad("push run a/b --language English",
        "--language: must be codes such as en or pt-BR, separated by commas, got 'English'", with_run),
]  # fmt: skip

ROWS = [*MODELS, *TEACHERS, *EXPORTS]
