"""Models that are none, or are spoilt, or would run code."""

from __future__ import annotations

from bad_inputs.table import Bad, append, cut, link, make_folder, matching, pipe, remove, with_run, write

EVALUATE = "evaluate data --model model"
CONFIG = '{"architectures": ["BertModel"], "model_type": "bert"'


WORDS = "cannot be loaded as a sentence-transformers model: [^\n]+"
LOADER, LOADER_M, HUB = (matching(f"{place}: {WORDS}") for place in ("model", "m", "org/[a-z -]+"))
"""The place is ours; the reason, one line, is the library's."""


ROWS = [
    Bad(
        "model: a file that chooses how it is loaded",
        EVALUATE,
        "model/sentence_bert_config.json: model_kwargs: 'device_map': a model may not set this argument; "
        "take it out of the file",
        write("model/sentence_bert_config.json", '{"model_kwargs": {"device_map": "auto", "offload_folder": "x"}}'),
    ),
    Bad(
        "model: a kernel from the hub",
        EVALUATE,
        "model/config.json: attn_implementation: a model may ask for eager or sdpa, got 'owner/kernel'; other "
        "implementations can be code from the hub. Take it out of the file; the setting attn_implementation is yours",
        write("model/config.json", '{"model_type": "bert", "attn_implementation": "owner/kernel"}'),
    ),
    Bad(
        "numba's settings in the current folder",
        EVALUATE,
        ".numba_config.yaml: numba would take settings from this file of the current folder, and these can make it run "
        "code; remove it and set its values as variables NUMBA_..., or run the command elsewhere",
        write(".numba_config.yaml", "cache_dir: x"),
    ),
    Bad("model: not there", "evaluate data --model ./absent", "./absent: no such model folder"),
    Bad(
        "model: not there, with control characters",
        ["evaluate", "data", "--model", "./\x1b[31mabsent\x07"],
        "./\\x1b[31mabsent\\x07: no such model folder",
    ),
    Bad(
        "model: a file",
        "evaluate data --model data/corpus.jsonl",
        "data/corpus.jsonl: must be the folder of a model, but is a file",
    ),
    Bad("model: a pipe", "evaluate data --model m", "m: must be the folder of a model, but is a named pipe", pipe("m")),
    Bad(
        "model: a device",
        "evaluate data --model /dev/zero",
        "/dev/zero: must be the folder of a model, but is a device",
    ),
    Bad("model: a link to nothing", "evaluate data --model ./m", "./m: no such model folder", link("m", "absent")),
    Bad(
        "model: an empty folder",
        "evaluate data --model m",
        "m: not a model folder: it holds neither modules.json (sentence-transformers) nor config.json (transformers)",
        make_folder("m"),
    ),
    Bad(
        "model: the data",
        "evaluate data --model data",
        "data: not a model folder: it holds neither modules.json (sentence-transformers) nor "
        "config.json (transformers)",
    ),
    Bad("model: a hub id with a space", ["evaluate", "data", "--model", "org/a model"], HUB),
    Bad("model: a hub id that is not cached", "evaluate data --model org/absent-model", HUB),
    Bad(
        "model: an address",
        "evaluate data --model https://example.org/model",
        "https://example.org/model: no such model folder",
    ),
    Bad(
        "model: a run that is not finished",
        "evaluate data --model run",
        "run: this run is not finished and holds no model yet; run its command again with --resume",
        with_run,
        remove("run/model"),
    ),
    Bad("model: modules.json is no JSON", EVALUATE, "model/modules.json: not JSON", write("model/modules.json", "{")),
    Bad("model: modules.json is empty", EVALUATE, "model/modules.json: not JSON", write("model/modules.json", "")),
    Bad(
        "model: modules.json is a folder",
        EVALUATE,
        "model: not a model folder: it holds neither modules.json (sentence-transformers) nor "
        "config.json (transformers)",
        make_folder("model/modules.json"),
    ),
    Bad(
        "model: modules.json is a pipe",
        EVALUATE,
        "model: not a model folder: it holds neither modules.json (sentence-transformers) nor "
        "config.json (transformers)",
        pipe("model/modules.json"),
    ),
    Bad(
        "model: modules.json is a list of numbers",
        EVALUATE,
        "model/modules.json: must be a list of objects, one per module",
        write("model/modules.json", "[1, 2]"),
    ),
    Bad(
        "model: modules.json nested 2,000 deep",
        EVALUATE,
        "model/modules.json: not JSON",
        write("model/modules.json", "[" * 2000 + "]" * 2000),
    ),
    Bad(
        "model: a module of someone's",
        EVALUATE,
        "model/modules.json: the type of a module must be a module of sentence_transformers, got "
        "'os.path'; OPERA runs no code that a model's folder names",
        write("model/modules.json", '[{"idx": 0, "name": "0", "path": "", "type": "os.path"}]'),
    ),
    Bad(
        "model: a module that is a path",
        EVALUATE,
        LOADER,
        write(
            "model/modules.json",
            '[{"idx": 0, "name": "0", "path": "../../x", "type": "sentence_transformers.models.Normalize"}]',
        ),
    ),
    Bad("model: weights cut off", EVALUATE, LOADER, cut("model/model.safetensors", 100)),
    Bad("model: weights that are empty", EVALUATE, LOADER, write("model/model.safetensors", b"")),
    Bad("model: weights of noise", EVALUATE, LOADER, write("model/model.safetensors", b"\x93" * 4096)),
    Bad("model: weights that are gone", EVALUATE, LOADER, remove("model/model.safetensors")),
    Bad("model: weights that are a folder", EVALUATE, LOADER, make_folder("model/model.safetensors")),
    Bad("model: weights that are a link to nothing", EVALUATE, LOADER, link("model/model.safetensors", "absent")),
    Bad(
        "model: weights that are a pipe",
        EVALUATE,
        "model/model.safetensors: must be a file, but is a named pipe",
        pipe("model/model.safetensors"),
    ),
    Bad(
        "model: a tokenizer that is a pipe",
        EVALUATE,
        "model/tokenizer.json: must be a file, but is a named pipe",
        pipe("model/tokenizer.json"),
    ),
    Bad(
        "model: weights with a header beyond all",
        EVALUATE,
        LOADER,
        write("model/model.safetensors", b"\xff" * 8 + b"{}"),
    ),
    Bad("model: a tokenizer that is no JSON", EVALUATE, LOADER, write("model/tokenizer.json", "{]")),
    Bad("model: a tokenizer that is gone", EVALUATE, LOADER, remove("model/tokenizer.json")),
    Bad(
        "model: pickled weights alone",
        "evaluate data --model m",
        "m/pytorch_model.bin: weights must be .safetensors, and this is a pickle, which may run code; "
        "if you trust it, load the model with sentence_transformers and save it again with "
        "save_pretrained",
        write("m/config.json", CONFIG + "}"),
        write("m/pytorch_model.bin", b"\x80\x04."),
    ),
    Bad(
        "model: code of its own, without weights",
        "evaluate data --model m",
        LOADER_M,
        write("m/config.json", CONFIG + ', "auto_map": {"AutoModel": "evil.M"}}'),
        write("m/evil.py", "raise SystemExit(9)"),
    ),
    Bad(
        "model: a configuration that is no JSON",
        "evaluate data --model m",
        "m/config.json: not JSON",
        write("m/config.json", "no"),
    ),
    Bad("model: a configuration that is a list", "evaluate data --model m", LOADER_M, write("m/config.json", "[]")),
    Bad("model: a configuration without a kind", "evaluate data --model m", LOADER_M, write("m/config.json", "{}")),
    Bad("model: spoilt, for train", "train data --model model --out run", LOADER, cut("model/model.safetensors", 50)),
    Bad("model: spoilt, for score", "score data --model model --out x.tsv", LOADER, cut("model/model.safetensors", 50)),
    Bad(
        "model: spoilt, for mine",
        "mine data --model model --range 1:5 --out x.tsv",
        LOADER,
        cut("model/model.safetensors", 50),
    ),
    Bad("model: spoilt, for search", "search data words --model model", LOADER, cut("model/model.safetensors", 50)),
    Bad("model: spoilt, for inspect", "inspect data --model model", LOADER, cut("model/model.safetensors", 50)),
    Bad("model: not there, for compare", "compare data --model ./absent --out grid", "./absent: no such model folder"),
    Bad(
        "model: a bit of its weights turned, with a file appended",
        EVALUATE,
        LOADER,
        append("model/model.safetensors", b"x" * 64),
    ),
]
