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

function startTables() {
  document.querySelectorAll("table.sortable thead th").forEach((head) => {
    head.querySelector("button").addEventListener("click", () => sortTable(head));
  });
}
