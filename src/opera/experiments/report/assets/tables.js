// A click on a column's heading sorts its table; the untrained row stays on top.

function sortTable(head) {
  const table = head.closest("table");
  const place = [...head.parentElement.children].indexOf(head);
  const ascending = head.getAttribute("aria-sort") === "descending" || (head.getAttribute("aria-sort") === "none" && place === 0);
  table.querySelectorAll("thead th").forEach((other) => other.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].filter((row) => !row.classList.contains("fixed"));
  const valueOf = (row) => row.children[place].dataset.value;
  rows.sort((one, other) => {
    const [a, b] = [valueOf(one), valueOf(other)];
    if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
    const order = place === 0 ? a.localeCompare(b) : Number(a) - Number(b);
    return ascending ? order : -order;
  });
  body.append(...rows);
}

// The files are made with the page; a click saves one of them, and asks no server.
function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

function saveButtons(kinds, title, action) {
  return element("p", { className: "save" }, ...kinds.map((kind) => {
    const button = element("button", { type: "button", textContent: kind, title: `${title} as ${kind}` });
    button.addEventListener("click", () => action(kind));
    return button;
  }));
}

function startTables() {
  document.querySelectorAll("table[data-table]").forEach((table) => {
    const name = table.dataset.table;
    const files = { CSV: [".csv", "csv", "text/csv"], LaTeX: [".tex", "tex", "application/x-tex"] };
    const buttons = saveButtons(Object.keys(files), "save this table", (kind) => {
      const [suffix, key, type] = files[kind];
      save(name + suffix, report.tables[name][key], type);
    });
    table.closest(".scroll").after(buttons);
  });
  document.querySelectorAll("table.sortable thead th").forEach((head) => {
    head.querySelector("button").addEventListener("click", () => sortTable(head));
  });
}
