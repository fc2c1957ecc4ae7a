"""Values that ``opera train`` does not take, and options that contradict each other."""

from __future__ import annotations

from bad_inputs.table import Bad, matching, with_run

TRAIN = "train data --model model --out run"

ROWS = [
    Bad(
        "train: steps are no number",
        f"{TRAIN} --steps 1e",
        "--steps: must be a whole number, got '1e'; see opera train --help",
    ),
    Bad(
        "train: steps with an escape character",
        [*TRAIN.split(), "--steps", "\x9b2J"],
        "--steps: must be a whole number, got '\\x9b2J'; see opera train --help",
    ),
    Bad(
        "train: half a step",
        f"{TRAIN} --steps 0.5",
        "--steps: must be a whole number, got '0.5'; see opera train --help",
    ),
    Bad("train: no steps", f"{TRAIN} --steps 0", "max_steps: must be greater than or equal to 1, got 0"),
    Bad(
        "train: more steps than there are seconds",
        f"{TRAIN} --steps 1000000000000000000",
        "max_steps: must be less than or equal to 1000000000, got 1000000000000000000",
    ),
    Bad(
        "train: steps of 5,000 digits",
        f"{TRAIN} --steps {'9' * 5000}",
        "--steps: must be a whole number of fewer digits, got "
        "'9999999999999999999999999999999999999999999999999…99999999999999999999999999999999999999999999"
        "9999'; see opera train --help",
    ),
    Bad(
        "train: steps and epochs",
        f"{TRAIN} --steps 3 --epochs 2",
        "epochs=2 and max_steps=3: both say how long to train; give one of them",
    ),
    Bad("train: epochs without end", f"{TRAIN} --epochs inf", "epochs: must be a finite number, got inf"),
    Bad("train: no epochs", f"{TRAIN} --epochs 0", "epochs: must be greater than 0, got 0.0"),
    Bad("train: epochs that are none", f"{TRAIN} --epochs nan", "epochs: must be a finite number, got nan"),
    Bad(
        "train: a rate of 1e300",
        f"{TRAIN} --lr 1e300",
        "learning_rate: must be at most 1: AdamW moves each weight by about the rate per step; "
        "usual are 1e-5 to 1e-2, got 1e+300",
    ),
    Bad("train: a rate below zero", f"{TRAIN} --lr -1", "learning_rate: must be greater than 0, got -1.0"),
    Bad("train: an infinite rate", f"{TRAIN} --lr inf", "learning_rate: must be a finite number, got inf"),
    Bad(
        "train: a batch of 10⁹",
        f"{TRAIN} --batch-size 1000000000",
        "per_device_train_batch_size: must be less than or equal to 100000, got 1000000000",
    ),
    Bad(
        "train: two batch sizes",
        f"{TRAIN} --batch-size 8 --set global_batch_size=64",
        "global_batch_size=64 and per_device_train_batch_size=8: both say how large a batch is; give one of them",
    ),
    Bad(
        "train: a global batch that does not divide",
        f"{TRAIN} --set global_batch_size=64 --set gradient_accumulation_steps=3",
        "global_batch_size=64: does not divide evenly over 1 process with gradient_accumulation_steps=3, 3 batches per "
        "step; give 63 or 66",
    ),
    Bad(
        "train: an empty batch",
        f"{TRAIN} --batch-size 0",
        "per_device_train_batch_size: must be greater than or equal to 1, got 0",
    ),
    Bad("train: a seed below zero", f"{TRAIN} --seed -1", "seed: must be greater than or equal to 0, got -1"),
    Bad(
        "train: a seed beyond 32 bits",
        f"{TRAIN} --seed 4294967296",
        "seed: must be less than 4294967296, got 4294967296",
    ),
    Bad(
        "train: LoRA for a static model",
        f"{TRAIN} --lora r=4",
        "lora: adds matrices to the layers of a transformer, and StaticEmbedding has none; leave it out",
    ),
    Bad(
        "train: LoRA and an adapter",
        f"{TRAIN} --lora r=4 --adapter query",
        "lora: with adapter=query the model itself does not train; give one of them",
    ),
    Bad(
        "train: a gradient cache for a static model",
        f"{TRAIN} --set gradient_cache=8",
        "gradient_cache=8: is for transformers; StaticEmbedding keeps nothing between its layers, so large batches "
        "need no cache; leave the setting out",
    ),
    Bad(
        "train: more dimensions than there are",
        f"{TRAIN} --matryoshka 4096,8",
        matching(r"matryoshka=4096: the embeddings have \d+ dimensions; give smaller numbers"),
    ),
    Bad(
        "train: a field of the trainer that is a setting",
        f"{TRAIN} --trainer learning_rate=1",
        "trainer: learning_rate: is a setting: give it as learning_rate",
    ),
    Bad(
        "train: a field that the trainer does not have",
        f"{TRAIN} --trainer adam_betta2=0.9",
        "--trainer adam_betta2: the trainer has no such field; did you mean 'adam_beta2'?",
    ),
    Bad(
        "train: a field of the trainer that its optimizer refuses",
        f"{TRAIN} --trainer adam_beta2=1.5",
        "--trainer adam_beta2: the trainer refuses it: Invalid beta parameter at index 1: 1.5",
    ),
    Bad(
        "train: a field of the trainer twice",
        f"{TRAIN} --trainer run_name=a --trainer run_name=b",
        "--trainer run_name: given twice",
    ),
    Bad("train: a setting twice", f"{TRAIN} --set lag=1 --set lag=2", "--set lag: given twice"),
    Bad(
        "train: a setting by both of its names",
        f"{TRAIN} --set lr=1 --set learning_rate=1",
        "given twice, as lr and as learning_rate: leave one of them out",
    ),
    Bad(
        "train: a setting by its option and by --set",
        f"{TRAIN} --steps 3 --set max_steps=3",
        "given twice, by its own option and by --set: max_steps",
    ),
    Bad(
        "train: an unknown method",
        f"{TRAIN} --method dq",
        "unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: no method",
        [*TRAIN.split(), "--method", ""],
        "unknown method '' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method that is a path",
        f"{TRAIN} --method ../../dp",
        "unknown method '../../dp' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method with control characters",
        [*TRAIN.split(), "--method", "dp\x1b[31m\u202e"],
        "unknown method 'dp\\x1b[31m\\u202e' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method of 10,000 letters",
        f"{TRAIN} --method {'m' * 10_000}",
        "unknown method "
        "'mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm…mmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmmm"
        "mmmmmm' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp)",
    ),
    Bad(
        "train: a method with settings",
        f"{TRAIN} --method sp:k=0.5",
        "--method sp:k=0.5: settings after colons are for opera compare; use --method sp --set k=0.5",
    ),
    Bad(
        "train: an unknown preset", f"{TRAIN} --preset release2", "preset: must be 'paper' or 'release', got 'release2'"
    ),
    Bad(
        "train: unknown negatives",
        f"{TRAIN} --negatives harder",
        "negatives: must be 'random', 'hard', 'given' or 'teacher', got 'harder'",
    ),
    Bad(
        "train: a range without hard negatives",
        f"{TRAIN} --range 1:50",
        "range=1:50 needs negatives=hard, but negatives is auto",
    ),
    Bad(
        "train: a range backwards",
        f"{TRAIN} --negatives hard --range 50:1",
        "range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '50:1'",
    ),
    Bad(
        "train: a range from zero",
        f"{TRAIN} --negatives hard --range 0:5",
        "range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '0:5'",
    ),
    Bad(
        "train: a range of one rank",
        f"{TRAIN} --negatives hard --range 5",
        "range: must be LO:HI, two ranks such as 10:100, got '5'",
    ),
    Bad(
        "train: a range in other digits",
        f"{TRAIN} --negatives hard --range ١:٥",
        "range: must be LO:HI, two ranks such as 10:100, got '١:٥'",
    ),
    Bad(
        "train: a range beyond the corpus",
        f"{TRAIN} --negatives hard --range 500:600",
        "range=500:600 starts past the end of the corpus (40 documents)",
    ),
    Bad(
        "train: given negatives where there are none",
        f"{TRAIN} --negatives given",
        "negatives=given: data holds no negatives; use negatives=random or negatives=hard",
    ),
    Bad(
        "train: an unknown adapter",
        f"{TRAIN} --adapter documents",
        "adapter: must be 'query' or 'both', got 'documents'",
    ),
    Bad(
        "train: a gain required without the guard",
        f"{TRAIN} --require-gain --set guard=false",
        "--require-gain: needs the guard's verdict, but guard is false; pass --set guard=true",
    ),
    Bad(
        "train: resume and overwrite",
        f"{TRAIN} --resume --overwrite",
        "--resume continues a run and --overwrite replaces it: pass one of the two",
        with_run,
    ),
    Bad(
        "train: query vectors alone",
        "train data --out run --query-vectors q.npy",
        "query_vectors needs document_vectors: give both files",
    ),
    *[
        Bad(
            f"train: {setting} without weights",
            f"{TRAIN} --set {setting}",
            f"{setting}: the pairs of data have no weights; leave the setting out",
        )
        for setting in ("pair_weights=loss", "pair_weights=scores")
    ],
    Bad(
        "train: a mix of one data set",
        f"{TRAIN} --mix equal",
        "mix=equal: needs several data sets; add one with --also",
    ),
    Bad(
        "train: a mix that is none",
        f"{TRAIN} --also data --mix half",
        "mix: must be proportional, equal, or NAME=SHARE,... with shares above 0, such as nfcorpus=2,scifact=1, "
        "got 'half'",
    ),
    Bad(
        "train: the same data twice",
        f"{TRAIN} --also data",
        "data: is given twice; give each data set once",
    ),
    Bad(
        "train: another data set that is not there",
        f"{TRAIN} --also nothing",
        matching(r"nothing: no such file or folder; pass .*"),
    ),
]
