-- How tables become a data set. Python runs these statements by the name in their heading.
-- CONTRIBUTING.md shows how to run them in DuckDB's shell.

-- == prepare ==
-- Macros, and the tables that every source fills.

-- White space is that of Python. The first test is fast for ASCII.
CREATE MACRO blank(t) AS t NOT BETWEEN '!' AND '~' AND NOT regexp_matches(
    t,
    '[^\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]'
);

-- A title is text of its document.
CREATE MACRO no_document(title, t) AS blank(t) AND (title IS NULL OR blank(title));

CREATE MACRO with_single_spaces(t) AS trim(regexp_replace(
    t,
    '[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+',
    ' ',
    'g'
));

-- Whether single spaces could change the text: it has space at an end, two spaces, a tab, a line
-- break or a character beyond ASCII.
CREATE MACRO may_have_extra_space(t) AS
    contains(t, '  ') OR contains(t, chr(9)) OR contains(t, chr(10)) OR contains(t, chr(11))
    OR contains(t, chr(12)) OR contains(t, chr(13)) OR strlen(t) != length(t)
    OR t[1] = ' ' OR t[-1] = ' ';

-- Texts that differ only in white space have equal keys.
CREATE MACRO text_key(t) AS
    hash(CASE WHEN may_have_extra_space(t) THEN with_single_spaces(t) ELSE t END);

CREATE MACRO document_key(title, t) AS
    CASE WHEN coalesce(trim(title), '') = '' THEN text_key(t) ELSE text_key(title || ' ' || t) END;

CREATE MACRO id_key(id) AS hash('id', id);

CREATE MACRO number(t) AS TRY_CAST(t AS DOUBLE);

-- Excel and pandas write TRUE and FALSE.
CREATE MACRO grade_of(t) AS coalesce(map {'true': '1', 'false': '0'}[lower(t)], t);

-- A title belongs to the positives of its row.
CREATE MACRO title_of(title, negative) AS CASE WHEN negative THEN '' ELSE title END;

-- The documents in a list of texts. An empty list is a missing document, unless it may be empty.
CREATE MACRO documents_of(texts, negative, column_number, may_be_empty) AS list_transform(
    CASE WHEN len(coalesce(texts, [])) > 0 THEN texts WHEN may_be_empty THEN [] ELSE [''] END,
    lambda t: {'document': coalesce(t, ''), 'negative': negative, 'column_number': column_number}
);

-- A text is null if only its id is known. A number is null if the file has no column for it.
-- Missing values are empty texts. The column number orders the documents of a file: negatives come
-- after all positives. split_name is the source's name of the split, if it has one.
CREATE TABLE pairs (
    file INTEGER, table_row BIGINT, column_number USMALLINT, split VARCHAR,
    split_name VARCHAR, known_split BOOLEAN, negative BOOLEAN, query_id VARCHAR, query VARCHAR, document_id VARCHAR,
    title VARCHAR, document VARCHAR, grade VARCHAR, weight VARCHAR, score VARCHAR,
    query_key UBIGINT, document_key UBIGINT
);

CREATE TABLE texts (
    kind VARCHAR, file INTEGER, table_row BIGINT, id VARCHAR, title VARCHAR, text VARCHAR
);

-- A list of pairs of the data, such as decisions or a teacher's scores.
CREATE TABLE id_list (
    file INTEGER, table_row BIGINT, query_id VARCHAR, doc_id VARCHAR, query VARCHAR, document VARCHAR,
    decision VARCHAR, split VARCHAR, first_rank VARCHAR, score VARCHAR
);

-- The names by which a pair calls its texts. A pair of files that belong to a table of texts
-- (variables query_by and document_by) has an id ('id') or the text ('text'). Other pairs ('pair')
-- have the text, or an id that an earlier pair has with its text. pair_order orders pairs by
-- first appearance: by file (at most 2^18), column (at most 2^10) and row (at most 2^34).
CREATE MACRO name_of(called_by, t, id, key) AS CASE
    WHEN called_by = 'id' THEN CASE WHEN t IS NOT NULL THEN id_key(t) END
    WHEN called_by = 'text' OR id IS NULL THEN key
    ELSE id_key(id)
END;

CREATE VIEW named_pairs AS
SELECT
    *,
    (file::BIGINT << 44) | (column_number::BIGINT << 34) | rowid AS pair_order,
    name_of(getvariable('query_by'), query, query_id, query_key) AS query_name,
    name_of(getvariable('document_by'), document, document_id, document_key) AS document_name
FROM pairs;

CREATE MACRO called_by(side) AS
    CASE side WHEN 'query' THEN getvariable('query_by') ELSE getvariable('document_by') END;

CREATE MACRO is_relevant(negative, grade, weight) AS
    NOT negative AND coalesce(grade, 1) > 0 AND coalesce(weight, 1) > 0;

-- A row per pair and side.
CREATE VIEW sides AS
SELECT
    'query' AS side, getvariable('query_by') AS called_by, file, table_row, pair_order,
    query_id AS id, '' AS title, query AS text, query_key AS key, query_name AS name
FROM named_pairs
UNION ALL
SELECT
    'document', getvariable('document_by'), file, table_row, pair_order, document_id,
    coalesce(title, ''), document, document_key, document_name
FROM named_pairs;

-- == size of listed texts ==
SELECT count(*), coalesce(max(strlen(text)), 0) FROM texts WHERE kind = $kind;

-- == listed texts ==
SELECT id, title, text FROM texts WHERE kind = $kind;

-- == list texts ==
-- listed: the tables of documents and queries, numbered.
CREATE TABLE listed AS
SELECT
    CASE kind WHEN 'queries' THEN 'query' ELSE 'document' END AS side,
    id,
    text,
    row_number() OVER (PARTITION BY kind ORDER BY rowid) - 1 AS text_row,
    blank(text) AND blank(title) AS empty
FROM texts;

-- == repeated ids ==
-- The rows of a table of texts whose id occurs in an earlier row, and the first such row.
SELECT texts.file, texts.table_row, id, first_location
FROM texts JOIN (
    SELECT kind, id, min(rowid) AS first_row, arg_min([file, table_row], rowid) AS first_location
    FROM texts WHERE kind = $kind GROUP BY kind, id HAVING count(*) > 1
) USING (kind, id)
WHERE texts.rowid != first_row
ORDER BY texts.rowid;

-- == a pair with the id of a listed text ==
FROM sides JOIN listed ON sides.side = listed.side AND sides.text = listed.id
WHERE sides.side = $side LIMIT 1;

-- == a pair with a listed text ==
FROM sides JOIN listed ON sides.side = listed.side AND key = text_key(listed.text)
WHERE sides.side = $side LIMIT 1;

-- == list answered rows ==
-- Published data only: an answered row has a document with a text.
CREATE OR REPLACE TABLE answered AS
SELECT DISTINCT file, table_row FROM pairs WHERE NOT negative AND NOT no_document(title, document);

-- == count empty texts ==
SELECT
    (SELECT count(*) FROM pairs WHERE no_document(title, document)),
    (SELECT count(DISTINCT (file, table_row)) FROM pairs SEMI JOIN answered USING (file, table_row)
     WHERE blank(query));

-- == delete empty texts ==
DELETE FROM pairs
WHERE no_document(title, document) OR blank(query)
    OR (file, table_row) NOT IN (SELECT (file, table_row) FROM answered);

-- == number ==
-- known: the texts by name. Listed texts come before all texts that occur only in pairs, which come
-- in the order of their first pairs. text_row is the row in the table of texts. Equal texts, and
-- equal ids, are one text.
CREATE OR REPLACE TABLE known AS
SELECT side, id_key(id) AS name, NULL::UBIGINT AS key, -1::BIGINT AS first_order, text_row, empty
FROM listed WHERE called_by(side) = 'id'
UNION ALL
SELECT side, text_key(text), NULL, -1, min(text_row), false
FROM listed WHERE called_by(side) = 'text' GROUP BY side, text_key(text)
UNION ALL
SELECT
    side, name, key, first_order,
    dense_rank() OVER (PARTITION BY side ORDER BY first_order) - 1, false
FROM (
    SELECT side, name, arg_min(key, pair_order) AS key, min(pair_order) AS first_order
    FROM (
        SELECT side, key AS name, key, pair_order FROM sides
        WHERE called_by = 'pair' AND text IS NOT NULL
        UNION ALL
        SELECT side, name, key, pair_order FROM sides
        WHERE called_by = 'pair' AND text IS NOT NULL AND id IS NOT NULL
    )
    GROUP BY side, name
);

-- numbered: the pairs with the rows of their texts; grades, weights and scores are numbers.
CREATE OR REPLACE TABLE numbered AS
SELECT
    file, table_row, pair_order, split, negative,
    queries.text_row::INTEGER AS query_row,
    documents.text_row::INTEGER AS doc_row,
    number(grade)::FLOAT AS grade,
    number(weight)::FLOAT AS weight,
    number(score)::FLOAT AS score,
    coalesce(queries.empty OR documents.empty, false) AS empty
FROM named_pairs
LEFT JOIN known AS queries
    ON queries.side = 'query' AND queries.name = query_name AND queries.first_order <= pair_order
LEFT JOIN known AS documents
    ON documents.side = 'document' AND documents.name = document_name
    AND documents.first_order <= pair_order;

-- == pairs of unknown texts ==
SELECT file, table_row, CASE called_by WHEN 'pair' THEN id ELSE text END AS name
FROM sides JOIN (
    SELECT pair_order, query_row, doc_row FROM numbered
    WHERE query_row IS NULL OR doc_row IS NULL
) USING (pair_order)
WHERE side = $side AND name IS NOT NULL
    AND CASE side WHEN 'query' THEN query_row ELSE doc_row END IS NULL
ORDER BY pair_order;

-- == ids of two texts ==
SELECT file, table_row, id
FROM sides JOIN known USING (side, name)
WHERE side = $side AND called_by = 'pair' AND id IS NOT NULL AND text IS NOT NULL
    AND known.key != sides.key AND first_order <= pair_order;

-- == relevant pairs of empty texts ==
SELECT file, table_row, NULL FROM numbered WHERE empty AND is_relevant(negative, grade, weight);

-- == delete unknown pairs ==
DELETE FROM numbered WHERE query_row IS NULL OR doc_row IS NULL;

-- == texts of pairs ==
-- Texts without an id get the letter of their side and their row. Dashes make such an id differ
-- from the ids in the data.
SELECT
    coalesce(id, left(side, 1) || text_row || repeat('-', coalesce(dashes, 0))) AS id,
    title, text, text_row
FROM sides
JOIN (SELECT DISTINCT first_order, text_row FROM known WHERE side = $side)
    ON pair_order = first_order
LEFT JOIN (
    SELECT
        regexp_extract(id, '^.([0-9]+)(-*)$', 1) AS digits,
        max(length(regexp_extract(id, '^.([0-9]+)(-*)$', 2))) + 1 AS dashes
    FROM sides WHERE side = $side AND left(id, 1) = left(side, 1) GROUP BY digits
) ON digits = text_row::VARCHAR
WHERE side = $side;

-- == longest text of pairs ==
SELECT coalesce(max(strlen(text)), 0) FROM sides WHERE side = $side;

-- == two names of a split ==
SELECT split, list_sort(list(DISTINCT split_name)) AS names FROM pairs
WHERE split != 'train' AND split_name IS NOT NULL
GROUP BY split HAVING len(names) > 1;

-- == splits ==
SELECT split FROM pairs GROUP BY split ORDER BY min(rowid);

-- == teacher ==
SELECT query_row, doc_row, score FROM numbered WHERE score IS NOT NULL ORDER BY pair_order;

-- == count pairs of empty texts ==
SELECT split, count(*), arg_min(query_row, pair_order), arg_min(doc_row, pair_order)
FROM numbered WHERE empty AND is_relevant(negative, grade, weight)
GROUP BY split ORDER BY min(pair_order);

-- == delete pairs of empty texts ==
DELETE FROM numbered WHERE empty AND is_relevant(negative, grade, weight);

-- == count numbers ==
SELECT count(*), count(grade), count(weight), coalesce(bool_or(grade != floor(grade)), false)
FROM numbered WHERE NOT negative AND split = $split;

-- == merged pairs ==
-- The highest grade counts, and the weights of the relevant rows are added. A row with the weight 0
-- is not relevant. If grades have fractions, a relevant row has the grade 1, and its grade is its
-- weight.
SELECT
    query_row, doc_row,
    max(CASE WHEN $fractions THEN relevant::INTEGER WHEN relevant THEN grade ELSE least(grade, 0) END)
        ::INTEGER AS grade,
    coalesce(sum(row_weight) FILTER (relevant), sum(row_weight))::FLOAT AS weight
FROM (
    SELECT
        query_row, doc_row, coalesce(grade, 1) AS grade,
        is_relevant(negative, grade, weight) AS relevant,
        (CASE WHEN $weighted THEN coalesce(weight, 1) ELSE greatest(coalesce(grade, 1), 0) END)::DOUBLE
            AS row_weight
    FROM numbered WHERE NOT negative AND split = $split
)
GROUP BY query_row, doc_row ORDER BY query_row, doc_row;

-- == negatives ==
SELECT query_row, doc_row, min(pair_order) AS pair_order
FROM numbered WHERE negative AND split = 'train'
GROUP BY query_row, doc_row ORDER BY query_row, pair_order;

-- == name listed pairs ==
-- named_list: the keys of the texts of id_list in a file of pairs. The file calls a text by its id
-- if the texts are in a file of their own.
CREATE TABLE named_list AS
SELECT list_row, unnest(query_keys) AS query_key, document_key FROM (
    SELECT
        table_row AS list_row,
        [text_key(query)] || CASE WHEN $query_ids THEN [text_key(query_id)] ELSE [] END
            AS query_keys,
        unnest([text_key(document)] || CASE WHEN $document_ids THEN [text_key(doc_id)] ELSE [] END)
            AS document_key
    FROM id_list
);

-- == rows of listed pairs ==
-- The table rows of relevant pairs that are listed: how many documents they have, and how many of
-- these are listed.
SELECT file, table_row, count(*), count(named_list.query_key)
FROM pairs LEFT JOIN (SELECT DISTINCT query_key, document_key FROM named_list) AS named_list
    USING (query_key, document_key)
WHERE is_relevant(negative, number(grade), number(weight))
GROUP BY file, table_row
HAVING count(named_list.query_key) > 0
ORDER BY file, table_row;

-- == listed pairs without a row ==
SELECT query_id, doc_id FROM id_list
WHERE table_row NOT IN (SELECT list_row FROM named_list SEMI JOIN pairs USING (query_key, document_key));

-- == first rows of listed pairs ==
SELECT list_row, arg_min(file, [file, table_row]), arg_min(table_row, [file, table_row])
FROM named_list JOIN pairs USING (query_key, document_key)
GROUP BY list_row;
