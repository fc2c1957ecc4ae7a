// One test query at a time: the documents retrieved before training, by the baseline and by a method.

const explorer = { data: null, shown: [], query: null };
const TIED = 0.0005;
const UNTRAINED = "untrained";

const valueOf = (query, label) => (label === UNTRAINED ? query.before : query.values[label]);
const retrievedBy = (query, label) => (label === UNTRAINED ? query.retrieved_before : query.retrieved[label]);

function changeOf(query) {
  return valueOf(query, byId("explorer-method").value) - valueOf(query, byId("explorer-against").value);
}

const outcomeOf = (change) => (change > TIED ? "won" : change < -TIED ? "lost" : "tied");
const points = (change) => {
  const size = Math.abs(100 * change).toFixed(1);
  return size === "0.0" ? size : `${change > 0 ? "+" : "−"}${size}`;
};

function filterQueries() {
  const { queries, query_texts: texts, measure, note } = explorer.data.explorer;
  const [outcome, third] = [byId("explorer-outcome").value, byId("explorer-third").value];
  const words = byId("explorer-words").value.trim().toLowerCase();
  explorer.shown = queries
    .map((query, place) => ({ query, text: texts[place], change: changeOf(query) }))
    .filter(({ query, text, change }) => !Number.isNaN(change)
      && (outcome === "all" || outcomeOf(change) === outcome)
      && (third === "all" || query.third === third)
      && (!words || text.toLowerCase().includes(words)))
    .sort((one, other) => Math.abs(other.change) - Math.abs(one.change));
  const counts = { won: 0, lost: 0, tied: 0 };
  explorer.shown.forEach(({ change }) => { counts[outcomeOf(change)] += 1; });
  byId("explorer-summary").textContent = `${explorer.shown.length} queries: ${counts.won} won, ${counts.lost} lost, ${counts.tied} tied on ${measure}, mean over the seeds${note ? "; " + note : ""}.`;
  showQueries();
}

function showQueries() {
  byId("explorer-list").replaceChildren(...explorer.shown.map((row) => {
    const button = element("button", { type: "button" },
      element("span", { className: `change ${outcomeOf(row.change)}`, textContent: points(row.change) }),
      element("span", { className: "text", textContent: row.text }));
    button.addEventListener("click", () => showQuery(row));
    row.button = button;
    return element("li", {}, button);
  }));
  const again = explorer.shown.find(({ query }) => query === explorer.query);
  if (explorer.shown.length) showQuery(again ?? explorer.shown[0]);
  else byId("explorer-query").replaceChildren(element("p", { className: "note", textContent: "No query matches." }));
}

function retrievedList(query, label) {
  const { documents, document_texts: texts } = explorer.data.explorer;
  const relevant = new Set(query.relevant ?? []);
  const items = retrievedBy(query, label).map((number, rank) => {
    const mark = relevant.has(number) ? "✓ relevant" : "";
    const item = element("li", { className: relevant.has(number) ? "relevant" : "", tabIndex: 0 },
      element("div", { className: "head" }, element("span", { textContent: `${rank + 1}.` }), element("span", { textContent: documents[number] }), element("strong", { textContent: mark })),
      element("div", { className: "body", textContent: texts[number] ?? "" }));
    return item;
  });
  const value = valueOf(query, label).toFixed(3);
  return element("div", {}, element("h4", { textContent: `${label} · ${value}` }), element("ol", {}, ...items));
}

function showQuery(row) {
  explorer.query = row.query;
  explorer.shown.forEach(({ button }) => button.setAttribute("aria-current", "false"));
  row.button.setAttribute("aria-current", "true");
  const [method, against] = [byId("explorer-method").value, byId("explorer-against").value];
  const labels = [...new Set([UNTRAINED, against, method])];
  const count = row.query.relevant === null ? "" : `, ${row.query.relevant.length} relevant document${row.query.relevant.length === 1 ? "" : "s"}`;
  const third = row.query.third === null ? "" : `, ${row.query.third}`;
  byId("explorer-query").replaceChildren(
    element("h3", { textContent: row.text }),
    element("p", { className: "note", textContent: `${row.query.id}${third}${count}; values are means over the seeds, documents are those of the first seed's model${row.query.relevant === null ? "; these runs did not record which are relevant" : ""}` }),
    element("div", { className: "retrieved" }, ...labels.map((label) => retrievedList(row.query, label))));
}

function chooseExplorerData(place) {
  explorer.data = report.data[place];
  const labels = Object.keys(explorer.data.losses);
  fill(byId("explorer-method"), labels.map((label) => [label, label]));
  fill(byId("explorer-against"), [[UNTRAINED, UNTRAINED], ...labels.map((label) => [label, label])]);
  const baseline = labels.includes(report.baseline) ? report.baseline : UNTRAINED;
  byId("explorer-against").value = baseline;
  byId("explorer-method").value = labels.find((label) => baseOf(label) === "dp" && label !== baseline) ?? labels.find((label) => label !== baseline) ?? labels[0];
  byId("explorer-third-label").hidden = explorer.data.explorer.queries.every((query) => query.third === null);
  filterQueries();
}

function startExplorer() {
  fill(byId("explorer-data"), report.data.map((data, place) => [place, data.name]));
  byId("explorer-data").addEventListener("change", (event) => chooseExplorerData(Number(event.target.value)));
  for (const name of ["method", "against", "outcome", "third"]) byId(`explorer-${name}`).addEventListener("change", filterQueries);
  byId("explorer-words").addEventListener("input", filterQueries);
  chooseExplorerData(0);
}
