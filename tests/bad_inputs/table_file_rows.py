"""Tables of one's own: which options go together, which columns are there, and what stands in them."""

from __future__ import annotations

import re

from bad_inputs.table import Bad, matching, write

ON = "evaluate --model model --split train"
DOCS = write("docs.csv", "id,text\n007,bond\n8,eight\n")
QUERIES = write("queries.csv", "id,text\n1,who\n2,what\n")
BY_ID = f"{ON} --pairs pairs.csv --documents docs.csv --queries queries.csv"


def texts(
    name: str, content: str | bytes, message: str | re.Pattern[str], *, file: str = "p.csv", more: str = ""
) -> Bad:
    """A row of one file of pairs of texts."""
    return Bad(f"table: {name}", f"evaluate {file} --model model --split train {more}", message, write(file, content))


def ids(name: str, content: str, message: str) -> Bad:
    """A row of a file of pairs of ids."""
    return Bad(f"table: {name}", BY_ID, message, DOCS, QUERIES, write("pairs.csv", content))


UNKNOWN = "no column has a name known for the"
QUOTES = 'a field with one stands in quotation marks, and each within it is doubled: "5"" pipe"'
ROLES = "(known: query, document, query_id, document_id, title, grade, weight, split, negative, id, text)"

ROWS = [
    Bad(
        "table: beside a data set",
        "evaluate data --pairs p.csv --documents d.csv --model model",
        "--pairs --documents: not beside a data set (data); give one of the two",
    ),
    Bad("table: no pairs", f"{ON} --documents docs.csv", "--documents: needs --pairs FILE, the table of pairs", DOCS),
    Bad("table: no such file", f"{ON} --pairs away.csv", "away.csv: cannot be read (No such file or directory)"),
    Bad(
        "table: a split of another name",
        f"{ON} --pairs eval=p.csv",
        "--pairs: a split must be train, dev or test, got 'eval'",
    ),
    Bad(
        "table: a file of JSON that is no table",
        f"{ON} --pairs p.json",
        "p.json: must be a table (.csv, .tsv, .jsonl, .ndjson, .parquet, .arrow, .feather, .gz of these); "
        "write JSON as .jsonl, one object per line",
        write("p.json", "[]"),
    ),
    Bad(
        "table: search without a query",
        "search --pairs p.csv --model model",
        "missing argument 'QUERY'; see opera search --help",
    ),
    Bad(
        "table: columns of a BEIR folder",
        "evaluate data --model model --columns query=q",
        "--columns: is for tables, and data is none that has columns to choose",
    ),
    texts(
        "columns that are none",
        "query,document\na,b\n",
        "--columns: must be ROLE=COLUMN, separated by commas, as in query=q,document=doc_id; got 'query'",
        more="--columns query",
    ),
    texts(
        "an unknown role",
        "query,document\na,b\n",
        f"--columns: unknown role 'querry'; did you mean 'query'? {ROLES}",
        more="--columns querry=a",
    ),
    texts("a role twice", "a,b\n", "--columns: the role query is given twice", more="--columns query=a,query=b"),
    texts(
        "a column that is not there",
        "question,answer\na,b\n",
        "--columns query=qestion: no file has such a column that could be the query; did you mean 'question'? "
        "(p.csv: 'question', 'answer')",
        more="--columns query=qestion",
    ),
    texts(
        "unknown columns",
        "left,right\na,b\n",
        f"p.csv: {UNKNOWN} query and the document; its columns are 'left', 'right'; say which to take, as in "
        "--columns query=left,document=right; if the first line is no header: --columns query=1,document=2",
    ),
    texts(
        "one unknown column",
        '{"question": "a", "reply": "b"}\n',
        f"p.jsonl: {UNKNOWN} document; its columns are 'question', 'reply'; say which to take, as in "
        "--columns document=reply",
        file="p.jsonl",
    ),
    texts(
        "two columns for one role",
        "query,question,answer\na,b,c\n",
        "p.csv: 'query' and 'question' could each be the query; say which: --columns query=query",
    ),
    texts("two columns of one name", "query,query\na,b\n", "p.csv: two columns are called 'query'; rename one"),
    texts("an empty file", "", "p.csv: is empty; it must have at least one row"),
    texts("a header alone", "query,document\n", "p.csv: has no pairs"),
    texts(
        "a line that is too short",
        'query,document\n"a\nb",c\nd\n',
        "p.csv:4: must have 2 columns ('query', 'document'), got 1: 'd'",
    ),
    texts(
        "a quotation mark that is not closed",
        'query,document\na,b\nc,"d\ne,f\n',
        f"p.csv:3: quotation marks do not fit (unexpected end of data); {QUOTES}",
    ),
    texts(
        "text after a quotation mark",
        'query,document\na,"b"c\n',
        f"p.csv:2: quotation marks do not fit (',' expected after '\"'); {QUOTES}",
    ),
    texts(
        "not UTF-8",
        b"query,document\na,b\nc,\xff\n",
        "p.csv:3: not UTF-8; convert the file to UTF-8",
    ),
    texts(
        "UTF-16",
        "query,document\n".encode("utf-16"),
        "p.csv:1: not UTF-8; convert the file to UTF-8",
    ),
    texts(
        "an empty text",
        "question,answer\na,b\nc, \n",
        "p.csv:3: column 'answer' must not be empty; fill it or remove the row",
    ),
    texts(
        "a split of another name in a column",
        "query,document,split\na,b,train\nc,d,holdout\n",
        "p.csv:3: column 'split' must be train, dev or test, got 'holdout'",
    ),
    texts(
        "a grade that is no number",
        "query,document,score\na,b,1\nc,d,high\n",
        "p.csv:3: column 'score' must be a number, got 'high'",
    ),
    texts(
        "a weight below 0",
        "query,document,weight\na,b,1\nc,d,-2\n",
        "p.csv:3: weight must be 0 or more, got -2",
    ),
    texts(
        "a grade that is a count",
        "query,document,score\na,b,1\nc,d,4000\n",
        "p.csv:3: grade must lie between -1000 and 1000, got 4000; counts, as of clicks, are weights: "
        "--columns weight=COLUMN",
    ),
    texts(
        "lists in a column that was named",
        '{"query": "a", "document": ["b", "c"], "s": [1, 2]}\n',
        "p.jsonl:1: column 's' must hold numbers, but holds list<item: string>",
        file="p.jsonl",
        more="--columns grade=s",
    ),
    texts(
        "clicks that 32 bits do not hold",
        "query,document,clicks\na,b,1\nc,d,1e39\n",
        "p.csv:3: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size, got 1e+39; multiply all by one number",
    ),
    texts(
        "clicks whose sum 32 bits do not hold",
        "query,document,clicks\na,b,3e38\na,b,3e38\n",
        "p.csv:2: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size, got 3e+38; multiply all by one number",
    ),
    texts(
        "clicks that 32 bits hold as 0",
        "query,document,clicks\na,b,1\nc,d,1e-50\n",
        "p.csv:3: column 'clicks' must be 0, or from 1e-37 to 1e+28 in size, got 1e-50; multiply all by one number",
    ),
    texts(
        "a grade of 1e39 beside fractions",
        '{"query": "a", "document": "b", "grade": 0.5}\n{"query": "c", "document": "d", "grade": 1e39}\n',
        "p.jsonl:2: column 'grade' must be 0, or from 1e-37 to 1e+28 in size, got 1e+39; multiply all by one number",
        file="p.jsonl",
    ),
    texts(
        "a header once more",
        "query,document\na,b\nquery,document\nc,d\n",
        "p.csv:3: is a header again ('query,document'), as where files were joined; remove it, or pass the files "
        "one by one",
    ),
    texts(
        "true for a text",
        '{"query": true, "document": "b"}\n',
        "p.jsonl:1: column 'query' must hold texts or whole numbers, but holds bool",
        file="p.jsonl",
    ),
    texts(
        "true in a list of texts",
        '{"query": "a", "document": ["b", true]}\n',
        "p.jsonl:1: column 'document' must be a text, a number or a list of these, got True",
        file="p.jsonl",
    ),
    texts(
        "no document in a list",
        '{"query": "a", "document": ["b"]}\n{"query": "c", "document": []}\n',
        "p.jsonl:2: column 'document' must not be empty; fill it or remove the row",
        file="p.jsonl",
    ),
    Bad(
        "table: true for an id",
        BY_ID.replace("pairs.csv", "pairs.jsonl"),
        "pairs.jsonl:1: column 'doc_id' must hold texts or whole numbers, but holds bool",
        write("docs.csv", "id,text\n1,bond\n"),
        QUERIES,
        write("pairs.jsonl", '{"query_id": 1, "doc_id": true}\n'),
    ),
    texts("JSON that is null", "null\n", "p.jsonl:1: must be a JSON object, got None", file="p.jsonl"),
    texts(
        "an object for a text",
        '{"question": "a", "answer": "b"}\n{"question": "a", "answer": {"text": "b"}}\n',
        "p.ndjson:2: column 'answer' must be a text, a number or a list of these, got {'text': 'b'}",
        file="p.ndjson",
    ),
    texts(
        "Parquet that is none",
        b"PAR1 and more",
        matching(r"p\.parquet: cannot be read \(Parquet magic bytes not found in footer\..*\)"),
        file="p.parquet",
    ),
    texts(
        "a broken .gz",
        b"\x1f\x8b\x08\x00spoilt",
        matching(r"p\.csv\.gz: cannot be read \(.*\)"),
        file="p.csv.gz",
    ),
    texts(
        "ids without texts",
        "query,doc_id\na,1\n",
        "p.csv: holds ids of documents ('doc_id') and not their texts; give these with --documents FILE",
    ),
    texts(
        "an id with a tab",
        "query,doc_id,document\na,d1,x\nb,d\t2,y\n",
        "p.csv:3: column 'doc_id' must not hold a tab, a line break or another control character, got 'd\\t2'",
    ),
    texts(
        "an empty id",
        "qid,query,document\n,a,x\n",
        "p.csv:2: column 'qid' must not be empty",
    ),
    ids(
        "an unknown id",
        "query_id,doc_id\n1,007\n2,7\n",
        "pairs.csv:3: document '7' is no id in the table of documents; add it there, or remove such pairs",
    ),
    ids(
        "some unknown ids",
        "query_id,doc_id\n1,007\n2,7\n2,007\n1,9\n",
        "pairs.csv:3: document '7' is no id in the table of documents (2 of 4 are none); add it "
        "there, or remove such pairs",
    ),
    ids(
        "ids that pandas made floats",
        "query_id,doc_id\n1,007\n2.0,8\n",
        "pairs.csv:3: query '2.0' is no id in the table of queries; '2' is one: pandas adds .0 if values are "
        "missing; convert with astype('Int64')",
    ),
    Bad(
        "table: a split that tables lack",
        "evaluate --pairs valid=p.csv --model model --split train",
        "p.csv: has no split 'train' (it has: dev)",
        write("p.csv", "query,document\na,b\n"),
    ),
    texts(
        "columns separated by something else",
        "query;one, two;document\na;b;c\n",
        f"p.csv: {UNKNOWN} query and the document; its columns are 'query;one', ' two;document'; say which to take, as "
        "in --columns query=query;one,document= two;document; if the first line is no header: --columns "
        "query=1,document=2",
    ),
    Bad(
        "table: an id that occurs twice",
        BY_ID,
        "docs.csv:4: duplicate id '7', first seen at docs.csv:2; ids must be unique",
        write("docs.csv", "id,text\n7,a\n8,b\n7,c\n"),
        QUERIES,
        write("pairs.csv", "query_id,doc_id\n1,8\n"),
    ),
    Bad(
        "table: a relevant document without a text",
        BY_ID,
        "pairs.csv:2: a relevant pair whose query or document has no text; give it one or remove the pair",
        write("docs.csv", "id,text\n7,\n8,b\n"),
        QUERIES,
        write("pairs.csv", "query_id,doc_id\n1,7\n"),
    ),
    Bad(
        "table: a ranking for judgements",
        f"{ON} --pairs run.txt --documents docs.csv --queries queries.csv",
        "run.txt: is a ranking (TREC's run: QUERY Q0 DOCUMENT RANK SCORE NAME), not judgements; pass a qrels file, "
        "QUERY 0 DOCUMENT GRADE",
        DOCS,
        QUERIES,
        write("run.txt", "1 Q0 007 1 3.25 bm25\n"),
    ),
    Bad(
        "table: a line of qrels that is too short",
        f"{ON} --pairs qrels.txt --documents docs.csv --queries queries.csv",
        "qrels.txt:2: must have 4 columns ('query_id', 'iteration', 'document_id', 'grade'), got 3: '2 0 8'",
        DOCS,
        QUERIES,
        write("qrels.txt", "1 0 007 1\n2 0 8\n"),
    ),
    Bad(
        "table: a collection of three columns without a header",
        f"{ON} --pairs qrels.txt --documents docs.tsv --queries queries.csv",
        f"docs.tsv: {UNKNOWN} id and the text; its columns are 'D1', 'http://x', 'Body'; say which to take, as in "
        "--columns documents.id=D1,documents.text=http://x; if the first line is no header: "
        "--columns documents.id=1,documents.text=2",
        write("docs.tsv", "D1\thttp://x\tBody\n"),
        QUERIES,
        write("qrels.txt", "1 0 D1 1\n"),
    ),
]
