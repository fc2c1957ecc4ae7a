"""Values that no setting takes, recipes that are none, and paths and prompts that cannot be, at every door."""

from __future__ import annotations

from bad_inputs.table import Bad, link, matching, table, with_grid, with_run, write

RECIPE = "train data --model model --config r.yaml --out run"

SETTINGS = """\
max_steps=0: must be greater than or equal to 1, got 0
max_steps=1.5: must be a whole number, got 1.5
max_steps=ten: must be a whole number, got 'ten'
max_steps=99999999999: must be less than or equal to 1000000000, got 99999999999
epochs=0: must be greater than 0, got 0
epochs=.nan: must be a finite number, got nan
learning_rate=0: must be greater than 0, got 0
gradient_cache=0: must be greater than or equal to 1, got 0
matryoshka=256,x: must be numbers of dimensions, such as 256,128,64, got '256,x'
lora=true: must be r alone, or r=16,alpha=32,dropout=0.05,target=query;value,merge=false, got True
lora=r=0: r: must be greater than or equal to 1, got 0
lora=rank=4: unknown setting 'rank' (such as lora=r=16,alpha=32,dropout=0.05,target=query;value,merge=false), got \
'rank=4'
trainer=num_train_epochs=3 => trainer: num_train_epochs: OPERA sets this itself; see opera train --help-settings, \
got 'num_train_epochs=3'
trainer=3: must be fields and values, such as adam_beta2=0.98, got 3
save_steps=0 => trainer: save_steps: must be greater than or equal to 1, got 0
eval_steps=0.5 => trainer: eval_steps: must be a whole number, got 0.5
weight_decay=.nan => trainer: weight_decay: must be a finite number, got nan
weight_decay=many => trainer: weight_decay: must be a number, got 'many'
learning_rate=fast: must be a number, got 'fast'
warmup_ratio=1: must be less than 1, got 1
temperature=0: must be greater than or equal to 0.0001, got 0
temperature=1000: must be less than or equal to 100, got 1000
loss=infonse: must be 'infonce' or 'distill', got 'infonse'
seed=-1: must be greater than or equal to 0, got -1
seed=4294967296: must be less than 4294967296, got 4294967296
per_device_train_batch_size=0: must be greater than or equal to 1, got 0
per_device_train_batch_size=1000000000: must be less than or equal to 100000, got 1000000000
global_batch_size=0: must be greater than or equal to 1, got 0
train_group_size=0: must be greater than or equal to 1, got 0
max_query_length=0: must be greater than or equal to 1, got 0
max_passage_length=0: must be greater than or equal to 1, got 0
precision=fp8: must be 'auto', 'fp32', 'bf16' or 'fp16', got 'fp8'
dropout=1: must be less than 1, got 1
corpus_text=title: must be 'title_text' or 'text', got 'title'
range=5: must be LO:HI, two ranks such as 10:100, got 5
range=0:5: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '0:5'
range=9:1: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'
prune_before_mining=perhaps: must be true or false, got 'perhaps'
relevant_grade=0: must be greater than or equal to 1, got 0
load_best_model_at_end=true => load_best_model_at_end=True needs eval_steps: steps between two evaluations
expected_documents=like-train: must be 'known', 'new', 'both' or 'like-test', got 'like-train'
guard=perhaps: must be true or false, got 'perhaps'
k=0.5 => setting 'k' applies only to rp, sp, sp+cbs, sp+dp; this run's method is denoise
num_train_epochs=3 => unknown setting 'num_train_epochs' (opera train --help-settings lists all)
out=elsewhere => 'out' is not a setting: pass it as the argument or option out
"""
"""Each line ``SETTING=VALUE: RULE``, where the message is ``SETTING: RULE``; or ``SETTING=VALUE => MESSAGE``."""


def setting(line: str) -> Bad:
    """Make the row of a line; it is refused before data or model are looked at."""
    given, arrow, message = line.partition(" => ")
    if not arrow:
        given, _, message = line.partition(": ")
        message = f"{given.partition('=')[0]}: {message}"
    return Bad(["train", "absent", "--model", "absent", "--out", "run", "--set", given], message)


def recipe(content: str | bytes, message: str) -> Bad:
    """A row whose recipe is ``content``."""
    return Bad(RECIPE, f"--config r.yaml: {message}", write("r.yaml", content))


RECIPES = [
    *table(RECIPE, """
- seed => must map setting names to values, got ['seed']
=> must map setting names to values, got None
7: 1 => names of settings must be text, got 7
? [a]⏎: 1 => names of settings must be text, got ('a',)
seed: [1 => not YAML (line 1: expected ',' or ']', but got '<stream end>')
seed:⏎\t- 1 => not YAML (line 2: found character '\\t' that cannot start any token)
seed: 1⏎seed: 2 => not YAML (line 2: found duplicate key "seed" with value "2" (original value: "1"))
seed: 1⏎---⏎seed: 2 => not YAML (line 2: but found another document)
seed: '\x00' => not YAML (unacceptable character #x0000: special characters are not allowed in "<unicode string>",
    position 7)
temprature: 1 => unknown setting 'temprature'; did you mean 'temperature'? (opera train --help-settings lists all)
    """, lambda text: write("r.yaml", text), "--config r.yaml: "),
    recipe("seed: !!python/object/apply:os.system [id]",
        "not YAML (line 1: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object/apply:os.system')"),
    recipe("seed: 1".encode("utf-16"), "line 1 is not UTF-8; convert the file to UTF-8"),
    recipe(b"seed: 1\n# caf\xe9", "line 2 is not UTF-8; convert the file to UTF-8"),
    Bad("train data --model model --config fiqua --out run",
        "--config fiqua: no such file, and no recipe has that name; did you mean 'fiqa'?"),
    Bad("compare data --model model --config fiqa --config r.yaml --out grid",
        "--config r.yaml: max_steps: must be a whole number, got 'many'", write("r.yaml", "max_steps: many")),
    recipe("document_prompt: 5", "document_prompt: must be text, got 5"),
    recipe("query_prompt: query: ", "not YAML (line 1: mapping values are not allowed here)"),
    Bad("train data --model model --out run --resume --steps 4 --batch-size 4 --set refit=false --set query_prompt=a",
        matching("--resume run: was started differently; use the same settings, or --overwrite to start again:\n"
                 "model_fingerprint: the run has '[0-9a-f]{64}', this call '[0-9a-f]{64}'\n"
                 "query_prompt: the run has None, this call 'a'"), with_run),
]  # fmt: skip

PROMPTS = [
    Bad(["evaluate", "data", "--model", "model", f"--query-prompt={prompt}"], f"query_prompt: {message}")
    for prompt, message in (
        ("caf\udce9", "must be text in UTF-8, got 'caf\\udce9'"),
        ("x" * 10_001, f"must have at most 10000 characters, got '{'x' * 49}…{'x' * 48}'"),
    )
]

PATH_DOORS = {
    "DATA": "evaluate PATH --model model",
    "--model": "evaluate data --model PATH",
    "--out": "train data --model model --out PATH",
    "--config": "train data --model model --out run --config PATH",
    "--query-vectors": "train data --out run --document-vectors d.npy --query-vectors PATH",
    "GRID|RUN": "report PATH",
}
"""A command line for each option or argument that takes a path; ``PATH`` stands for it."""

BAD_PATHS = {
    "": "NAME: must not be empty",
    "~no-such-user/x": "NAME ~no-such-user/x: could not determine home directory.",
    "circle\x1b[2J/x": "NAME circle\\x1b[2J/x: too many levels of symbolic links",
}

PATHS = [
    Bad([path if word == "PATH" else word for word in command.split()], message.replace("NAME", door),
        with_grid, link("circle\x1b[2J", "circle\x1b[2J"))
    for door, command in PATH_DOORS.items()
    for path, message in BAD_PATHS.items()
]  # fmt: skip

ROWS = [*map(setting, SETTINGS.splitlines()), *RECIPES, *PROMPTS, *PATHS]
