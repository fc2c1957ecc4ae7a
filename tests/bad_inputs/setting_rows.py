"""Values that no setting takes, recipes that are none, and paths and prompts that cannot be, at every door."""

from __future__ import annotations

from bad_inputs.table import Bad, link, matching, table, with_grid, with_run, write

RECIPE = "train data --model model --config r.yaml --out run"

SETTINGS = """\
max_steps=0: must be greater than or equal to 1, got 0
max_steps=-3: must be greater than or equal to 1, got -3
max_steps=1.5: must be a whole number, got 1.5
max_steps=true: must be a whole number, got True
max_steps=ten: must be a whole number, got 'ten'
max_steps='1_0': must be a whole number, got '1_0'
max_steps=' 1': must be a whole number, got ' 1'
max_steps='١': must be a whole number, got '١'
max_steps=99999999999: must be less than or equal to 1000000000, got 99999999999
max_steps=[1]: must be a whole number, got [1]
max_steps={a}: must be a whole number, got {'a': None}
epochs=0: must be greater than 0, got 0
epochs=-1: must be greater than 0, got -1
epochs=.inf: must be a finite number, got inf
epochs=.nan: must be a finite number, got nan
epochs=1e9: must be less than or equal to 1000000, got 1000000000.0
epochs='1_0': must be a number, got '1_0'
epochs=false: must be a number, got False
learning_rate=0: must be greater than 0, got 0
learning_rate=-1e-5: must be greater than 0, got -1e-05
learning_rate=.inf: must be a finite number, got inf
learning_rate=.nan: must be a finite number, got nan
learning_rate=1e300: must be at most 1: AdamW moves each weight by about the rate per step; usual are 1e-5 to 1e-2, \
got 1e+300
learning_rate=3: must be at most 1: AdamW moves each weight by about the rate per step; usual are 1e-5 to 1e-2, got 3
gradient_cache=0: must be greater than or equal to 1, got 0
gradient_cache=half: must be a whole number, got 'half'
matryoshka=0: must be numbers of dimensions, such as 256,128,64, got 0
matryoshka=256,x: must be numbers of dimensions, such as 256,128,64, got '256,x'
matryoshka=[]: must be numbers of dimensions, such as 256,128,64, got []
lora=true: must be r alone, or r=16,alpha=32,dropout=0.05,target=query;value,merge=false, got True
lora=r=0: r: must be greater than or equal to 1, got 0
lora=rank=4: unknown setting 'rank' (such as lora=r=16,alpha=32,dropout=0.05,target=query;value,merge=false), got \
'rank=4'
trainer=num_train_epochs=3 => trainer: num_train_epochs: OPERA sets this itself; see opera train --help-settings, \
got 'num_train_epochs=3'
trainer=3: must be fields and values, such as adam_beta2=0.98, got 3
save_steps=0 => trainer: save_steps: must be a whole number above 0, got 0
eval_steps=0.5 => trainer: eval_steps: must be a whole number above 0, got 0.5
weight_decay=.nan => trainer: weight_decay: must be a finite number, a text, or a list or mapping of these, got nan
weight_decay=nan => trainer: weight_decay: must be a number, got 'nan'
weight_decay=many => trainer: weight_decay: must be a number, got 'many'
max_grad_norm=inf => trainer: max_grad_norm: must be a number, got 'inf'
adam_beta1=-0.1 => trainer: adam_beta1: must be greater than or equal to 0, got -0.1
logging_strategy=often => trainer: logging_strategy: must be 'no', 'steps' or 'epoch', got 'often'
trainer=adam_betta2=0.9 => trainer: adam_betta2: no such field, got 0.9; did you mean 'adam_beta2'?
snapshots=3 => unknown setting 'snapshots' (opera train --help-settings --all lists all)
learning_rate=fast: must be a number, got 'fast'
learning_rate=true: must be a number, got True
learning_rate='': must be a number, got ''
warmup_ratio=-0.1: must be greater than or equal to 0, got -0.1
warmup_ratio=1: must be less than 1, got 1
warmup_ratio=.nan: must be a finite number, got nan
temperature=0: must be greater than or equal to 0.0001, got 0
temperature=1e-300: must be greater than or equal to 0.0001, got 1e-300
temperature=.inf: must be a finite number, got inf
temperature=.nan: must be a finite number, got nan
temperature=-0.05: must be greater than or equal to 0.0001, got -0.05
temperature=1000: must be less than or equal to 100, got 1000
loss=infonse: must be 'infonce' or 'distill', got 'infonse'
loss=1: must be text, got 1
loss='': must be 'infonce' or 'distill', got ''
seed=-1: must be greater than or equal to 0, got -1
seed=4294967296: must be less than 4294967296, got 4294967296
seed=0.5: must be a whole number, got 0.5
seed=true: must be a whole number, got True
per_device_train_batch_size=0: must be greater than or equal to 1, got 0
per_device_train_batch_size=1000000000: must be less than or equal to 100000, got 1000000000
per_device_train_batch_size=1.5: must be a whole number, got 1.5
global_batch_size=0: must be greater than or equal to 1, got 0
global_batch_size=99999999999: must be less than or equal to 1000000000, got 99999999999
global_batch_size=6.4: must be a whole number, got 6.4
train_group_size=0: must be greater than or equal to 1, got 0
train_group_size=100000: must be less than or equal to 1000, got 100000
max_query_length=0: must be greater than or equal to 1, got 0
max_query_length=99999999999: must be less than or equal to 1000000000, got 99999999999
max_passage_length=0: must be greater than or equal to 1, got 0
max_passage_length=-1: must be greater than or equal to 1, got -1
precision=fp8: must be 'auto', 'fp32', 'bf16' or 'fp16', got 'fp8'
precision=16: must be 'auto', 'fp32', 'bf16' or 'fp16', got 16
dropout=-0.1: must be greater than or equal to 0, got -0.1
dropout=1: must be less than 1, got 1
dropout=.nan: must be a finite number, got nan
corpus_text=title: must be 'title_text' or 'text', got 'title'
range=5: must be LO:HI, two ranks such as 10:100, got 5
range=0:5: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '0:5'
range=9:1: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'
range=1:99999999999: must be LO:HI, two ranks such as 10:100, got '1:99999999999'
range=[1, 2, 3]: must be LO:HI, two ranks such as 10:100, got [1, 2, 3]
range=[true, 2]: must be LO:HI, two ranks such as 10:100, got [True, 2]
range=a:b: must be LO:HI, two ranks such as 10:100, got 'a:b'
prune_before_mining=2: must be true or false, got 2
prune_before_mining=perhaps: must be true or false, got 'perhaps'
relevant_grade=0: must be greater than or equal to 1, got 0
relevant_grade=99999999999: must be less than or equal to 1000000000, got 99999999999
relevant_grade='1 ': must be a whole number, got '1 '
noise=random => 'noise' is no longer a setting: opera-paper noise adds wrong pairs to a data set
noise_share=0.3 => 'noise_share' is no longer a setting: opera-paper noise adds wrong pairs to a data set
load_best_model_at_end=true => load_best_model_at_end=True needs eval_steps: steps between two evaluations
future=like-train: must be 'same-documents', 'new-documents', 'both' or 'like-test', got 'like-train'
guard=2: must be true or false, got 2
guard=perhaps: must be true or false, got 'perhaps'
k=0.5 => setting 'k' applies only to the methods rp, sp, sp+cbs and sp+dp; this run's method is denoise
num_train_epochs=3 => unknown setting 'num_train_epochs' (opera train --help-settings --all lists all)
fp16=true => unknown setting 'fp16' (opera train --help-settings --all lists all)
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
temprature: 1 => unknown setting 'temprature'; did you mean 'temperature'? (opera train --help-settings --all lists all)
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

PROMPT_DOORS = (
    "train data --model model --out run --set query_prompt=",
    "evaluate data --model model --query-prompt=",
    "search data words --model model --query-prompt=",
    "score data --model model --out x.tsv --query-prompt=",
    "mine data --model model --range 1:5 --out x.tsv --query-prompt=",
    "inspect data --model model --query-prompt=",
)
PROMPTS = [
    Bad(f"{door}{prompt}".split(), f"query_prompt: {message}")
    for door in PROMPT_DOORS
    for prompt, message in (
        ("caf\udce9", "must be text in UTF-8, without NUL, got 'caf\\udce9'"),
        ("x" * 10_001, f"must have at most 10,000 characters, got '{'x' * 49}…{'x' * 48}'"),
    )
]

PATH_DOORS = {
    "DATA": "evaluate PATH --model model",
    "--model": "evaluate data --model PATH",
    "--out": "train data --model model --out PATH",
    "--config": "train data --model model --out run --config PATH",
    "--query-vectors": "train data --out run --document-vectors d.npy --query-vectors PATH",
    "--run-file": "evaluate data --model model --run-file PATH",
    "GRID|RUN": "report PATH",
}
"""A command line for each option or argument that takes a path; ``PATH`` stands for it."""

LONG, CUT = "n" * 300, f"{'n' * 50}…{'n' * 49}"
BAD_PATHS = {
    "": "NAME: must not be empty",
    " ": "NAME: must not be empty",
    "a\0b": "NAME: must not hold a NUL character, got 'a\\x00b'",
    "caf\udce9": "NAME: must be text in UTF-8, got 'caf\\udce9'; rename the file",
    "~no-such-user/x": "NAME ~no-such-user/x: there is no such user",
    LONG: f"NAME {CUT}: the name is too long for this file system",
    "circle/x": "NAME circle/x: its links lead in a circle",
    "circle\x1b[2J/x": "NAME circle\\x1b[2J/x: its links lead in a circle",
}
CIRCLES = link("circle", "circle"), link("circle\x1b[2J", "circle")

PATHS = [
    Bad([path if word == "PATH" else word for word in command.split()], message.replace("NAME", door),
        with_grid, *CIRCLES)
    for door, command in PATH_DOORS.items()
    for path, message in BAD_PATHS.items()
] + [
    Bad(["train", "data", "--out", "run", "--set", f"{one}={path or repr(path)}", "--set", f"{other}=x.npy"],
        BAD_PATHS[path].replace("NAME", one))
    for one, other in (("query_vectors", "document_vectors"), ("document_vectors", "query_vectors"))
    for path in ("", LONG, "~no-such-user/x")
]  # fmt: skip

ROWS = [*map(setting, SETTINGS.splitlines()), *RECIPES, *PROMPTS, *PATHS]
