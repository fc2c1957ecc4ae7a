"""Words, options and values that commands do not take."""

from __future__ import annotations

from bad_inputs.table import Bad, table, with_grid, with_run, write

TRAIN, COMPARE = "train data --model model --out run", "compare data --model model --out grid"

COMMANDS = [
    *table(
        "",
        """
nonsense => no such command 'nonsense'; see opera --help
'\x1b[31mtrain\x07' => no such command '\\x1b[31mtrain\\x07'; did you mean 'train'?; see opera --help
--json train => no such option: --json (Possible options: --version); see opera --help
train data --model model --out => option '--out' requires an argument; see opera --help
train --model model --out run => DATA: is missing; pass a data set, or --pairs FILE
train data --model model => missing option '--out'; see opera train --help
train data --out run => --model: give a model, or its vectors with --query-vectors and --document-vectors
evaluate data => --model: is missing; only the folder of a run, in place of the data, needs none
search data garlic => --model: is missing; only the folder of a run, in place of the data, needs none
score data --model model => missing option '--out'; see opera score --help
compare --model model --out grid => DATA: is missing; pass a data set, or --pairs FILE
report => missing argument 'GRID|RUN'; see opera report --help
search data --model model => missing argument 'QUERY'; see opera search --help
search data garlic --model model --index flat => --index: must be one of exact, hnsw, ivf, got 'flat'
search data x --model model --precision 0.8 => precision=0.8: model records no cut-offs; pass a finished run or --cutoff
search data x --model model --precision 80 => precision: must be a number from 0 to 1, got 80.0
search data x --model model --cutoff nan => cutoff: must be a number from -1e+09 to 1e+09, got nan
search data x --model model --cutoff 1 --precision 0.8 => --cutoff --precision: give one of the two
search run data garlic --model model => got unexpected extra argument(s) (garlic); see opera search --help
    """,
    ),
    *table(
        "train data --model model --out run",
        """
--zfolds 3 => no such option: --zfolds; see opera train --help
--methid dp => no such option: --methid (Possible options: --method, --mix, --set); see opera train --help
    """,
    ),
]

TRAINING = [
    *table("train data --model model --out run", """
--steps 0 => --steps: must be greater than or equal to 1, got 0
--steps 3 --epochs 2 => --epochs=2 and max_steps=3: both say how long to train; give one of them
--batch-size 8 --set global_batch_size=64 => global_batch_size=64 and per_device_train_batch_size=8: both say how
    large a batch is; give one of them
--set global_batch_size=64 --set gradient_accumulation_steps=3 => global_batch_size=64: does not divide evenly over
    1 process with gradient_accumulation_steps=3, 3 batches per step; give 63 or 66
--lora r=4 => --lora: adds matrices to the layers of a transformer, and StaticEmbedding has none; leave it out
--lora r=4 --adapter query => --lora: with adapter=query the model itself does not train; give one of them
--set gradient_cache=8 => gradient_cache=8: applies only to transformers; StaticEmbedding stores no activations,
    so large batches need no cache; remove the setting
--matryoshka 4096,8 =~ --matryoshka=4096: the embeddings have \\d+ dimensions; pass smaller numbers
--trainer seed=1 => trainer: seed: OPERA sets this itself; see opera train --help-settings, got {'seed': 1}
--trainer adam_betta2=0.9 => trainer: adam_betta2: no such field, got 0.9; did you mean 'adam_beta2'?
--trainer adam_beta2=1.5 => trainer: adam_beta2: must be less than 1, got 1.5
--set lag=1 --set lag=2 => --set lag: given twice
--set lr=1 --set learning_rate=1 => given twice, as lr and as learning_rate: leave one of them out
--steps 3 --set max_steps=3 => given twice, by its own option and by --set: max_steps
--method dq => unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, denoise)
--method 'dp\x1b[31m\u202e' => unknown method 'dp\\x1b[31m\\u202e' (known: ft, rp, sp, sp+cbs, infobatch, dp,
    sp+dp, denoise)
--method sp:k=0.5 => --method sp:k=0.5: settings after colons are for opera compare; use --method sp --set k=0.5
--negatives harder => --negatives: must be 'random', 'hard', 'given' or 'teacher', got 'harder'
--range 1:50 => --range=1:50 needs negatives=hard, but negatives is auto
--negatives hard --range 50:1 => --range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included),
    got '50:1'
--negatives hard --range 500:600 => --range=500:600 starts after the end of the corpus (40 documents)
--negatives given => --negatives=given: data has no negatives; use negatives=random or negatives=hard
--adapter documents => --adapter: must be 'query' or 'both', got 'documents'
--require-gain --set guard=false => --require-gain: needs the guard's verdict, but guard is false; pass --set
    guard=true
--mix equal => --mix=equal: needs several data sets; add one with --also
--also data --mix half => --mix: must be proportional, equal, or NAME=SHARE,... with shares above 0, such as
    nfcorpus=2,scifact=1, got 'half'
--also data => data: is given twice; pass each data set once
--also nothing =~ nothing: no such file or folder; pass .*
    """),
    *table("", """
train data --out run --query-vectors q.npy => --query-vectors needs document_vectors: give both files
    """),
    Bad(f"{TRAIN} --resume --overwrite", "--resume continues a run and --overwrite replaces it: pass one of the two",
        with_run),
    *(
        Bad(f"{TRAIN} --set {setting}", f"{setting}: the pairs of data have no weights; remove the setting")
        for setting in ("pair_weights=loss", "pair_weights=scores")
    ),
]  # fmt: skip

MEASURING = [
    *table("", """
search data '' --model model => query: must not be empty
search data 'caf\udce9' --model model => query: text holds half a character ('\\udce9'); remove it
    """),
    *table("search data words --model model", """
--top 0 => invalid value for '--top': must be greater than or equal to 1; see opera search --help
    """),
    *table("evaluate data --model model", """
--split dev => data: has no split 'dev'; pass --split test or --split train
--split '\x1b]0;t\x07' => data: has no split '\\x1b]0;t\\x07'; pass --split test or --split train
--relevant-grade 0 => invalid value for '--relevant-grade': must be greater than or equal to 1; see opera
    evaluate --help
--relevant-grade 9 => data: split 'test' has no judgement of 9 or more (relevant_grade=9; a recipe may set it):
    nothing to measure
    """),
    *table("evaluate data --model model --measures", """
'' => measures: name at least one, such as nDCG@10
nDCG@10,,AP => measures: name at least one, such as nDCG@10
ndgc@10 => unknown measure 'ndgc@10'; did you mean 'nDCG@10'? (known: retrieved_ideal_nDCG, and those of
    https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)
nDCG@0 => unknown measure 'nDCG@0': the cutoff must be 1 or more
'AP\x9b\u2066' => unknown measure 'AP\\x9b\\u2066'; did you mean 'AP@10'? (known: retrieved_ideal_nDCG, and those
    of https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)
    """),
    *table("score data --model model --out x.tsv", """
--cbs-pool 5 => --cbs-pool: needs --cbs
--relevant-grade 9 => data: split 'train' has no pair with a grade of 9 or more (relevant_grade=9; a recipe may set
    it): nothing to train on
    """),
    *table("mine data --model model --out x.tsv", """
--range 9:1 => --range: must be LO:HI with 1 <= LO <= HI (ranks count from 1, both ends included), got '9:1'
--range 100:200 => --range=100:200 starts after the end of the corpus (40 documents)
--keep few => invalid value for '--keep': must be a valid integer, unable to parse string as an integer; see
    opera mine --help
    """),
    *table("inspect data --model model", """
--show -1 => invalid value for '--show': must be greater than or equal to 0; see opera inspect --help
--relevant-grade 5 => data: split 'train' has no pair with a grade of 5 or more (relevant_grade=5; a recipe may set
    it): nothing to train on
    """),
]  # fmt: skip

COMPARING = [
    *table("", """
compare data ./data --model model --out grid => DATA: data is given twice
    """),
    *table("compare data --model model --out grid", """
--methods ft,sp:negatives=hard:range=500:600 => range=500:600 starts after the end of the corpus (40 documents)
--seeds one => --seeds: must be whole numbers separated by commas, such as 0,1,2, got 'one'
--seeds 0,0 => --seeds: 0 is given twice
--steps few => --steps: must be whole numbers separated by commas, such as 100,1000, got 'few'
--methods ' , ' => --methods: give at least one
--methods ft,dq => dq: unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, denoise)
--methods ft,FT => --methods: ft is given twice
--methods ft,dp:seed=3 => dp:seed=3: seed differs between cells: give --methods, --steps and --seeds instead
--methods 'sp:k=\x1b[31m0.5' => sp:k=\\x1b[31m0.5: names a folder, so it must hold no space, slash or control
    character; use --set for those
--methods sp:k => sp:k: unknown method 'sp:k'; did you mean 'sp'? (known: ft, rp, sp, sp+cbs, infobatch,
    dp, sp+dp, denoise)
--methods ft:k=0.5 => ft:k=0.5: setting 'k' applies only to rp, sp, sp+cbs, sp+dp; this run's method is ft
--baseline dq => --baseline dq: must be one of the methods: ft, denoise
--methods ft,dp --baseline sp => --baseline sp: must be one of the methods: ft, dp
--jobs 0 => --jobs: must be 1 to 1000, got 0
--set metric_for_best_model=best => unknown measure 'best'; did you mean 'SetR@10'? (known: retrieved_ideal_nDCG,
    and those of https://ir-measur.es/en/latest/measures.html; write NAME@CUTOFF or NAME(key=value)@CUTOFF)
    """),
    *table("quickstart", """
--out q --method dq => unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, denoise)
    """),
    Bad(COMPARE, "data: has no split 'dev', and 1 train query with a relevant document cannot be split; the guard "
        "needs one, so pass guard=false", write("data/qrels/train.tsv", "query-id\tcorpus-id\tscore\ntrain0\td0\t1\n")),
    Bad(f"{COMPARE} --methods ft:precision={'0' * 300}",
        "ft:precision=0000000000000000000000000000000000000…0000000000000000000000000000000000000000000000000: "
        "names a folder, so it must have at most 200 bytes; use --set for some settings"),
    Bad("report grid --baseline dp", "--baseline dp: no run has this label; there are ft, rp:k=0.5", with_grid),
]  # fmt: skip

ROWS = [*COMMANDS, *TRAINING, *MEASURING, *COMPARING]
