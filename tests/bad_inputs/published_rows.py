"""Bad names of published data sets, and folders that are not laid out as on the hub."""

from __future__ import annotations

from bad_inputs.table import Bad, matching, write

EVALUATE = ["--model", "model"]
KNOWN = "(known: nfcorpus, tripclick-head, tripclick-torso, fiqa, antique, triviaqa, hotpotqa, fever)"
HUB = "must be OWNER/NAME, OWNER/NAME/CONFIG or a folder, then perhaps :SPLIT"


def named(name: str, source: str, message: str) -> Bad:
    """A row whose data is a name."""
    return Bad(f"published: {name}", ["evaluate", source, *EVALUATE], message)


def hub(name: str, message: str, **files: str) -> Bad:
    """A row whose data is a folder laid out like one of the hub."""
    make = [write(f"pairs/{file}.jsonl", content) for file, content in files.items()]
    return Bad(f"hub: {name}", ["train", "hf:pairs", *EVALUATE, "--out", "run"], f"hf:pairs, train{message}", *make)


def get(name: str, words: list[str], message: str) -> Bad:
    """A row of ``opera data``."""
    return Bad(f"data: {name}", ["data", *words], message)


ROWS = [
    named("an unknown set", "paper:fiqua", f"paper:fiqua: no such data set; did you mean 'fiqa'? {KNOWN}"),
    named("no set", "paper:", f"paper:: no such data set {KNOWN}"),
    named("a set in capitals", "paper:FiQA", f"paper:FiQA: no such data set; did you mean 'fiqa'? {KNOWN}"),
    named("an escape in a set", "paper:\x1b[2J", f"paper:\\x1b[2J: no such data set {KNOWN}"),
    named("no id", "irds:", "irds:: must be an id of ir_datasets, such as irds:beir/nfcorpus"),
    named("a path as id", "irds:../data", "irds:../data: must be an id of ir_datasets, such as irds:beir/nfcorpus"),
    named(
        "an unknown id",
        "irds:beir/fiqua",
        "irds:beir/fiqua: ir_datasets has no such data set; did you mean 'beir/fiqa'?",
    ),
    named(
        "an id without judgements", "irds:tripclick/logs", "irds:tripclick/logs: ir_datasets has no judgements of it"
    ),
    named("no name on the hub", "hf:", f"hf:: {HUB}"),
    named("the root as a folder", "hf:/", "hf:/: must be the folder of one data set"),
    Bad(
        "hub: a folder with hidden files alone",
        ["evaluate", "hf:.pairs", *EVALUATE],
        "hf:.pairs: has no files but hidden ones",
        write(".pairs/.train.jsonl", "{}"),
    ),
    named("no owner", "hf:nfcorpus", f"hf:nfcorpus: {HUB}"),
    named("a space in a name", "hf:a b/c", f"hf:a b/c: {HUB}"),
    named("a bidi mark in a name", "hf:a/\u202eb", f"hf:a/\\u202eb: {HUB}"),
    hub(
        "other columns",
        ": no column has a name known for the query and the document; its columns are 'left', 'right'; say which to "
        "take, as in --columns query=left,document=right",
        train='{"left": "a", "right": "b"}\n',
    ),
    hub(
        "an object as positive",
        "[0]: column 'pos' must hold texts or whole numbers, but holds struct<text: string>",
        train='{"query": "a", "pos": {"text": "b"}}\n',
    ),
    hub(
        "no text in a positive",
        ": has no pairs with a text on both sides",
        train='{"query": "a", "pos": [" "]}\n',
    ),
    Bad(
        "hub: an unknown split",
        ["train", "hf:pairs:dev", *EVALUATE, "--out", "run"],
        "hf:pairs:dev: has no split 'dev' (it has: train)",
        write("pairs/train.jsonl", '{"query": "a", "pos": ["b"]}\n'),
    ),
    Bad(
        "hub: no data in a folder",
        ["train", "hf:data/qrels", *EVALUATE, "--out", "run"],
        matching(r"hf:data/qrels, train: holds ids of queries \('query-id'\) and not their texts; .*"),
    ),
    get("another action", ["fetch"], "'fetch': must be get; opera data alone lists the sets"),
    get("a misspelt action", ["gett"], "'gett': must be get; did you mean 'get'?; opera data alone lists the sets"),
    get("no name", ["get"], "get: needs the name of a data set, such as nfcorpus (opera data lists them)"),
    get(
        "an unknown name", ["get", "nfcorpus2"], f"paper:nfcorpus2: no such data set; did you mean 'nfcorpus'? {KNOWN}"
    ),
    get("two sets for one folder", ["get", "fiqa", "fever", "--out", "x"], "--out x: takes one data set, got 2"),
    get("a folder that is not empty", ["get", "fiqa", "--out", "data"], "--out data: is not empty; pass a new folder"),
    get(
        "a file as folder",
        ["get", "fiqa", "--out", "data/corpus.jsonl"],
        "--out data/corpus.jsonl: is a file; pass a folder",
    ),
    get("a folder without a set", ["--out", "x"], "--out: needs a data set to write: opera data get NAME --out FOLDER"),
]
