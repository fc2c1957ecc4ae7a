"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
function element(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
/* A text of which three lines are shown; a click shows all of it. */
function shortText(text) {
  const button = element("button", "text", text);
  button.setAttribute("aria-expanded", "false");
  button.onclick = () => { if (!String(getSelection())) button.setAttribute("aria-expanded", button.getAttribute("aria-expanded") === "false"); };
  return button;
}
/* A list of ranked documents; with an earlier ranking, also the rank there. */
function ranking(label, documents, earlier) {
  const column = element("div"), list = element("ol"), ids = (earlier || []).map(ranked => ranked.doc_id);
  column.append(element("h2", "", label));
  documents.forEach((ranked, row) => {
    const line = element("li", ranked.labelled ? "labelled" : ""), rank = ids.indexOf(ranked.doc_id);
    const change = !earlier || rank === row ? "" : rank < 0 ? " · new" : ` · was ${rank + 1}`;
    line.append(element("div", "label", `${row + 1}. ${ranked.labelled ? "✓ " : ""}${ranked.doc_id}${change}`), shortText(ranked.document));
    list.append(line);
  });
  if (!documents.length) list.append(element("li", "", "No document shares a word with the query."));
  column.append(list);
  return column;
}
