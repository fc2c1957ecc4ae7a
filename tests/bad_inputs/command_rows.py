"""Words, options and values that commands do not take."""

from bad_inputs.table import Bad, table, with_grid, with_run

TRAIN, COMPARE = "train data --model model --out run", "compare data --model model --out grid"

COMMANDS = [
    *table("", """
nonsense => no such command 'nonsense'; see opera --help
'\x1b[31mtrain\x07' => no such command '\\x1b[31mtrain\\x07'; did you mean 'train'?; see opera --help
train data --model model --out => option '--out' requires an argument; see opera --help
train --model model --out run => DATA: is missing; pass a data set, or --pairs FILE
evaluate data => --model is missing; add --model MODEL, or pass a run folder in place of the data
search data --model model => missing argument 'QUERY'; see opera search --help
search data x --model model --min-precision 0.8 => min_precision=0.8: model has no cut-offs; pass a finished run or
    --cutoff
search data x --model model --cutoff 1 --min-precision 0.8 => --cutoff --min-precision: pass only one of the two
    options
search run data garlic --model model => got unexpected extra argument(s) (garlic); see opera search --help
train data --methid dp => no such option: --methid (Possible options: --depth, --method, --set); see opera train --help
    """),
]  # fmt: skip

TRAINING = [
    *table("train data --model model --out run", """
--steps 3 --epochs 2 => --epochs=2 and max_steps=3: both say how long to train; give one of them
--set global_batch_size=64 --set gradient_accumulation_steps=3 => global_batch_size=64: does not divide evenly over
    1 process with gradient_accumulation_steps=3, 3 batches per step; give 63 or 66
--lora r=4 --adapter query => --lora: with adapter=query the model itself does not train; give one of them
--passages 200 --adapter query => --passages=200: an adapter reads one vector per document; remove one of the two
    settings
--passages 200 --negatives hard => --passages=200: method denoise compares labels with random documents, but
    negatives is hard; pass --method ft, or --negatives random
--passages -5 => --passages: must be greater than or equal to 0, got -5
--set gradient_cache=8 => gradient_cache=8: applies only to transformers; StaticEmbedding stores no activations,
    so large batches need no cache; remove the setting
--matryoshka 4096,8 =~ --matryoshka=4096: the embeddings have \\d+ dimensions; pass smaller numbers
--trainer seed=1 => --trainer: OPERA sets seed itself (opera train --help-settings)
--trainer adam_betta2=0.9 => --trainer: adam_betta2: no such field, got 0.9; did you mean 'adam_beta2'?
--steps 3 --set max_steps=3 => given twice, by option and by --set: max_steps
--method dq => unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, denoise,
    or a name that a module in OPERA_EXTENSIONS registers)
--range 1:50 => --range=1:50 needs negatives=hard, but negatives is auto
--set keep=9 => keep=9 needs negatives=hard, but negatives is auto
--negatives hard --range 1:9 --set reranker=./none => ./none: no such model folder
--negatives given => --negatives=given: data has no negatives; use negatives=random or negatives=hard
--require-gain --set guard=false => --require-gain: needs the guard's verdict, but guard is false; pass --set
    guard=true
--also data --mix half => --mix: must be proportional, equal, or NAME=SHARE,... with shares above 0, such as
    nfcorpus=2,scifact=1, got 'half'
--also data => data: is given twice; pass each data set once
    """),
    Bad("train data --out run --query-vectors q.npy", "--query-vectors needs document_vectors: give both files"),
    Bad(f"{TRAIN} --resume --overwrite", "--resume continues a run and --overwrite replaces it: pass one of the two",
        with_run),
    Bad(f"{TRAIN} --set pair_weights=loss",
        "pair_weights=loss: 'data' has no column with weights; remove the setting"),
]  # fmt: skip

RERANKER = [
    *table("train data --model model --out run", """
--first-stage bm25 => --first-stage: needs --kind reranker
--depth 5 => --depth: needs --kind reranker
--max-length 50 => --max-length: needs --kind reranker
    """),
    *table("train data --kind reranker --model model --out run", """
--resume => --resume: does not apply to a reranker
--plan => --plan: does not apply to a reranker
--also data => --also: does not apply to a reranker
--adapter query => --adapter: does not apply to a reranker
--set guard=false => --guard: does not apply to a reranker
--no-bm25 => --bm25: does not apply to a reranker
--negatives random => --negatives=random: a reranker needs hard or given negatives
--set max_score=0.5 => --max-score: needs a model as --first-stage
--method dq => unknown method 'dq' (known: ft, rp, sp, sp+cbs, infobatch, dp, sp+dp, denoise,
    or a name that a module in OPERA_EXTENSIONS registers)
--range 100:200 => --range=100:200 starts after the end of the corpus (40 documents)
--depth 0 => invalid value for '--depth': must be greater than or equal to 1; see opera train --help
--first-stage ./none => ./none: no such model folder
--steps 2 =~ model: cannot be loaded as a reranker.*
    """),
    *table("train data --kind reranker --out run", """
--steps 2 => --model: give a cross-encoder, or an encoder, which gets a new head
--model ./none => ./none: no such model folder
    """),
    Bad("train data --kind reranker --model model --out run", "--out run: is not empty and holds no reranker; pass an "
        "empty or a new folder", with_run),
    Bad("train data --kind reranker --model model --out run --overwrite", "--out run: is not empty and holds no "
        "reranker; pass an empty or a new folder", with_run),
]  # fmt: skip

MEASURING = [
    *table("", """
search data '' --model model => query: must not be empty
search data words --model model --top 0 => invalid value for '--top': must be greater than or equal to 1; see opera
    search --help
mine data --model model --out x.tsv --range 100:200 => --range=100:200 starts after the end of the corpus (40 documents)
inspect data --model model --relevant-grade 5 => data: split 'train' has no pair with a grade of 5 or more
    (relevant_grade=5): nothing to train on
score data --model model --out x.tsv --cbs-pool 5 => --cbs-pool: needs --cbs
score data --reranker model --out x.tsv --max-query-length 9 => model: pass a model, or leave max_query_length and
    max_passage_length out; max_length is the reranker's
score data --reranker model --out x.tsv --passages 200 => --passages: needs a model, because a reranker reads whole
    documents
mine data --model model --out x.tsv --keep 0 => --keep: must be greater than or equal to 1, got 0
mine data --model model --out x.tsv --max-query-length 9 => --max-query-length: StaticEmbedding reads whole texts;
    remove the setting, also from recipes
search data x --model model --precision fp8 => --precision: must be 'auto', 'fp32', 'bf16' or 'fp16', got 'fp8'
evaluate data --model model --first-stage bm25 => --first-stage: needs --reranker
evaluate data --model model --depth 5 => --depth: needs --reranker
evaluate data --model model --max-length 50 => --max-length: needs --reranker
evaluate data --reranker r --model model => --model --reranker: pass the model as --first-stage
evaluate data --reranker r --hybrid => --hybrid --reranker: remove one of the two options
evaluate data --reranker r --no-bm25 => --bm25 --reranker: leave --bm25 out; BM25 is the first stage unless
    --first-stage names a model
evaluate data --reranker r --depth 0 => invalid value for '--depth': must be greater than or equal to 1; see opera
    evaluate --help
evaluate data --reranker r --max-query-length 9 --passages 50 => --max-query-length and --passages: needs a model as
    --first-stage; a reranker reads whole texts, up to --max-length
evaluate data --reranker model =~ model: cannot be loaded as a reranker.*|model: is not a reranker.*
evaluate data --reranker ./none => ./none: no such model folder
evaluate data --model 'SentenceTransformer object' => SentenceTransformer object: stands for a loaded model in the
    record of a run; save that model with save_pretrained, and pass its folder
    """),
    *table("evaluate data --model model", """
--split dev => data: has no split 'dev'; pass --split test or --split train
--relevant-grade 9 => data: split 'test' has no judgement of 9 or more (relevant_grade=9):
    nothing to measure
    """),
    *table("evaluate data --model model --measures", """
'' => measures: name at least one, such as nDCG@10
ndgc@10 => unknown measure 'ndgc@10'; did you mean 'nDCG@10'? (known: those of
    https://ir-measur.es/en/latest/measures.html, retrieved_ideal_nDCG, or a name that a module in OPERA_EXTENSIONS
    registers; write NAME@CUTOFF or NAME(key=value)@CUTOFF)
NumRet => measure 'NumRet': counts; choose a measure between 0 and 1
nDCG@0 => unknown measure 'nDCG@0': the cutoff must be 1 or more
    """),
]  # fmt: skip

COMPARING = [
    *table("compare data --model model --out grid", """
./data => DATA: data is given twice
--mix equal => --mix=equal: needs several data sets; add one with --also
--also data => data: is given twice; pass each data set once
--also none =~ none: no such file or folder.*
--seeds 0,0 => --seeds: 0 is given twice
--model ./model => --model: model is given twice
--model none/of/these => none/of/these: no such model folder
--model other --query-vectors q.npy --document-vectors d.npy => --model: names the vectors of --query-vectors; pass
    it once
--methods ft,FT => --methods: ft is given twice
--methods 'sp:k=\x1b[31m0.5' => sp:k=\\x1b[31m0.5: becomes the name of a folder, so it must not hold spaces,
    slashes or control characters; use --set for such settings
--methods ft:k=0.5 => ft:k=0.5: setting 'k' applies only to rp, sp, sp+cbs, sp+dp; this run's method is ft
--methods ft,dp --baseline sp => --baseline sp: must be one of the methods: ft, dp
    """),

    Bad("report grid --baseline dp", "--baseline dp: no run has this label; the labels are ft, rp:k=0.5", with_grid),
    Bad("report run data --json", "data: not a run folder: it has no run.json of OPERA", with_run),
    Bad("report run ./run", "GRID|RUN: run is given twice", with_run),
    Bad("report run data --baseline ft", "--baseline: several runs are compared with the first; leave it out",
        with_run),
]  # fmt: skip

ROWS = [*COMMANDS, *TRAINING, *RERANKER, *MEASURING, *COMPARING]
