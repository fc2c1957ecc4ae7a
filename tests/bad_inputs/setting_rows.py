"""Values that no setting takes, recipes that are none, and paths and prompts that cannot be, at every door."""

from bad_inputs.table import Bad, link, matching, table, with_run, write

RECIPE = "train data --model model --config r.yaml --out run"

SETTINGS = """\
max_steps=ten: must be a whole number, got 'ten'
epochs=.nan: must be a finite number, got nan
matryoshka=256,x: must be numbers of dimensions, such as 256,128,64, got '256,x'
lora=true: must be a rank such as 16, or r=16,alpha=32,dropout=0.05,target=query;value,merge=false, got True
lora=rank=4: unknown setting 'rank' (such as lora=r=16,alpha=32,dropout=0.05,target=query;value,merge=false), got \
'rank=4'
trainer=num_train_epochs=3 => trainer: OPERA sets num_train_epochs itself (opera train --help-settings)
eval_steps=0.5 => trainer: eval_steps: must be a whole number, got 0.5
temperature=0: must be greater than or equal to 0.0001, got 0
seed=-1: must be greater than or equal to 0, got -1
per_device_train_batch_size=1000000000: must be less than or equal to 100000, got 1000000000
loss=hinge: must be infonce, distill, or a name that a module in OPERA_EXTENSIONS registers, got 'hinge'
precision=fp8: must be 'auto', 'fp32', 'bf16' or 'fp16', got 'fp8'
range=5: must be LO:HI, two ranks such as 10:100, got 5
range=9:1: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'
load_best_model_at_end=true => load_best_model_at_end=True needs eval_steps, the steps between two evaluations
guard=perhaps: must be true or false, got 'perhaps'
k=0.5 => setting 'k' applies only to rp, sp, sp+cbs, sp+dp; this run's method is denoise
num_train_epochs=3 => unknown setting 'num_train_epochs'; did you mean 'epochs'? (opera train --help-settings lists all)
out=elsewhere => 'out' is not a setting; pass --out, or out=... in Python
"""
"""Each line ``SETTING=VALUE: RULE``, where the message is ``SETTING: RULE``; or ``SETTING=VALUE => MESSAGE``."""


def setting(line: str) -> Bad:
    """Make the row of a line; it is refused before data or model are looked at."""
    assignment, arrow, message = line.partition(" => ")
    if not arrow:
        assignment, _, message = line.partition(": ")
        message = f"{assignment.partition('=')[0]}: {message}"
    return Bad(["train", "absent", "--model", "absent", "--out", "run", "--set", assignment], message)


def recipe(content: str | bytes, message: str) -> Bad:
    """A row whose recipe is ``content``."""
    return Bad(RECIPE, f"--config r.yaml: {message}", write("r.yaml", content))


RECIPES = [
    *table(RECIPE, """
- seed => must map setting names to values, got ['seed']
7: 1 => must map setting names to values, got {7: 1}
seed: 1⏎seed: 2 => not YAML (line 2: found duplicate key "seed" with value "2" (original value: "1"))
temprature: 1 => unknown setting 'temprature'; did you mean 'temperature'? (opera train --help-settings lists all)
    """, lambda text: write("r.yaml", text), "--config r.yaml: "),
    recipe("seed: !!python/object/apply:os.system [id]",
        "not YAML (line 1: could not determine a constructor for the tag "
        "'tag:yaml.org,2002:python/object/apply:os.system')"),
    Bad("train data --model model --config fiqua --out run",
        "--config fiqua: no such file, and no recipe has that name; did you mean 'fiqa'?"),
    Bad("train data --model model --out run --resume --steps 4 --batch-size 4 --set refit=false --set query_prompt=a",
        matching("--resume run: was started differently; use the same settings, or --overwrite to start again:\n"
                 "query_prompt: the run has None, this call 'a'\n"
                 "model_fingerprint: the run has '[0-9a-f]{64}', this call '[0-9a-f]{64}'"), with_run),
]  # fmt: skip

PATHS = [
    Bad(["evaluate", "data", "--model", "model", "--query-prompt=caf\udce9"],
        "--query-prompt: must be text in UTF-8, got 'caf\\udce9'"),
    Bad(["evaluate", "data", "--model", ""], "--model: must not be empty"),
    Bad("report ~no-such-user/x", "GRID|RUN ~no-such-user/x: could not determine home directory."),
    Bad(["train", "data", "--model", "model", "--out", "circle\x1b[2J/x"],
        "--out circle\\x1b[2J/x: too many levels of symbolic links", link("circle\x1b[2J", "circle\x1b[2J")),
]  # fmt: skip

ROWS = [*map(setting, SETTINGS.splitlines()), *RECIPES, *PATHS]
