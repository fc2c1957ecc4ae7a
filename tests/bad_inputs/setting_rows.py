"""Values that no setting takes, by ``--set``; every one is refused before data or model are looked at."""

from __future__ import annotations

from bad_inputs.table import Bad

WRONG = """\
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
weight_decay=.nan => trainer: weight_decay: must be a finite number, got nan
weight_decay=many => --trainer weight_decay: must be float, got 'many'
trainer=adam_betta2=0.9 => --trainer adam_betta2: the trainer has no such field; did you mean 'adam_beta2'?
snapshots=3 => unknown setting 'snapshots' (opera train --help-settings lists all)
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
noise=some: must be 'none', 'grade', 'random' or 'hard', got 'some'
noise_grade=1 => noise_grade=1 needs noise=grade, but noise is none
noise_grade=99999999999: must be less than or equal to 1000000000, got 99999999999
noise_share=0.3 => noise_share=0.3 needs noise=random or hard, but noise is none
noise_share=0: must be greater than 0, got 0
noise_share=0.99: must be less than or equal to 0.95, got 0.99
noise_share=.nan: must be a finite number, got nan
load_best_model_at_end=true => load_best_model_at_end=True needs eval_steps: steps between two evaluations
future=like-train: must be 'same-documents', 'new-documents', 'both' or 'like-test', got 'like-train'
guard=2: must be true or false, got 2
guard=perhaps: must be true or false, got 'perhaps'
k=0.5 => setting 'k' applies only to the methods rp, sp, sp+cbs and sp+dp; this run's method is ft
num_train_epochs=3 => unknown setting 'num_train_epochs' (opera train --help-settings lists all)
fp16=true => unknown setting 'fp16' (opera train --help-settings lists all)
out=elsewhere => 'out' is not a setting: pass it as the argument or option out
"""
"""Each line ``SETTING=VALUE: RULE``, where the message is ``SETTING: RULE``; or ``SETTING=VALUE => MESSAGE``."""


def row(line: str) -> Bad:
    """Make the row of a line."""
    given, arrow, message = line.partition(" => ")
    if not arrow:
        given, _, message = line.partition(": ")
        message = f"{given.partition('=')[0]}: {message}"
    return Bad(f"setting: {given}", ["train", "absent", "--model", "absent", "--out", "run", "--set", given], message)


ROWS = [row(line) for line in WRONG.splitlines()]
