"use strict";
// Data, helpers, colours and the list of charts. Corpus text only ever becomes text nodes.

const report = JSON.parse(document.getElementById("report-data").textContent);
const byId = (id) => document.getElementById(id);
const measureName = (measure) => measure.replace("retrieved_ideal_", "retrieved-ideal ");

function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// Plotly interprets some tags in its texts; labels and names must appear as they are.
const plain = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

function fill(select, options) {
  select.replaceChildren(...options.map(([value, text]) => element("option", { value, textContent: text })));
}

const COLOURS = {
  ft: ["#6b7280", "#9aa3af"], rp: ["#a16a3c", "#c79a6f"], sp: ["#d1540a", "#f28c4e"], "sp+cbs": ["#b98500", "#e6b93f"],
  infobatch: ["#0a8f68", "#3fc49b"], dp: ["#0b62c4", "#5aa9f2"], "sp+dp": ["#b04a8c", "#df86bf"],
};
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "12px,3px", "2px,6px", "12px,3px,2px,3px,2px,3px"];
const SYMBOLS = ["circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "star", "hexagon"];

let printing = false;
const darkMode = window.matchMedia("(prefers-color-scheme: dark)");
const isDark = () => darkMode.matches && !printing;
const baseOf = (label) => label.split(":")[0];
const colourOf = (label) => (COLOURS[baseOf(label)] ?? ["#444444", "#bbbbbb"])[isDark() ? 1 : 0];

const indexInFamily = (label) => report.methods.filter((other) => baseOf(other) === baseOf(label)).indexOf(label);
const dashOf = (label) => DASHES[indexInFamily(label) % DASHES.length];
const symbolOf = (label) => SYMBOLS[indexInFamily(label) % SYMBOLS.length];

function faint(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

// A chart is a node and the function that draws it; all are redrawn when the colours change.
const charts = [];

function chart(node, draw) {
  charts.push({ node, draw });
  draw(node);
}

// Below each chart: buttons that save it, and its figures as a table, filled when it is opened.
const MOST_ROWS = 400;

function beside(node) {
  if (node.nextElementSibling?.classList.contains("save")) return node.nextElementSibling.nextElementSibling;
  const name = node.id || `${report.data[Number(node.dataset.place)].name}-${node.dataset.chart}`;
  const filename = name.replace(/[^A-Za-z0-9.]+/g, "-");
  const buttons = saveButtons(["PNG", "SVG"], "save this chart", (kind) => {
    window.Plotly.downloadImage(node, { format: kind.toLowerCase(), filename, width: 900, height: 560 });
  });
  const figures = element("details", { className: "figures" }, element("summary", { textContent: "the figures as a table" }));
  figures.addEventListener("toggle", () => fillFigures(node, figures));
  node.after(buttons, figures);
  return figures;
}

const written = (value) => (typeof value === "number" ? String(Number(value.toPrecision(5))) : value ?? "–");
const unplain = (text) => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

// One column per line; of a heatmap one per x, a row per y.
function figuresOf(node) {
  const traces = node.data.filter((trace) => !(trace.fill && trace.showlegend === false));
  const head = node.layout.xaxis.title?.text ?? "";
  if (traces[0].type === "heatmap") {
    const [{ x, y, z }] = traces;
    const rows = z.map((row, at) => [String(y ? y[at] : at + 1), ...row.map((value) => (value === null ? "–" : written(2 ** value)))]);
    return [[`× as often as FT; ${head} →`, ...(x ?? z[0].map((_, at) => at + 1)).map(written)], rows];
  }
  const places = [...new Set(traces.flatMap((trace) => trace.x))].sort((one, other) => one - other);
  const cell = (trace, place) => {
    const at = trace.x.indexOf(place);
    if (at < 0) return "–";
    const spread = trace.error_y?.array?.[at] ?? trace.meta?.[at];
    return written(trace.y[at]) + (spread ? ` ± ${written(spread)}` : ""); // one seed has none
  };
  return [[head, ...traces.map((trace) => unplain(trace.name))], places.map((place) => [written(place), ...traces.map((trace) => cell(trace, place))])];
}

function fillFigures(node, figures) {
  figures.querySelectorAll(".scroll, .note").forEach((old) => old.remove());
  if (!figures.open || node.classList.contains("empty")) return;
  const [head, rows] = figuresOf(node);
  const cells = (tag, values) => values.map((value, at) => {
    const heading = tag === "th" || at === 0;
    const cell = element(heading ? "th" : "td", { textContent: value });
    if (heading) cell.scope = tag === "th" ? "col" : "row";
    return cell;
  });
  const body = element("tbody", {}, ...rows.slice(0, MOST_ROWS).map((row) => element("tr", {}, ...cells("td", row))));
  const table = element("table", { className: "narrow" }, element("thead", {}, element("tr", {}, ...cells("th", head))), body);
  figures.append(element("div", { className: "scroll" }, table));
  if (rows.length > MOST_ROWS) figures.append(element("p", { className: "note", textContent: `the first ${MOST_ROWS} of ${rows.length} rows` }));
}

function hideBeside(node, hidden) {
  const figures = beside(node);
  figures.hidden = figures.previousElementSibling.hidden = hidden;
}

function showMessage(node, text) {
  window.Plotly.purge(node);
  hideBeside(node, true);
  node.classList.add("empty");
  node.textContent = text;
}

const PRINTED_WIDTH = 340;
const LEGEND_ROW = 19;

// About how many rows the legend takes. The chart grows by them, so that many or long labels leave it room.
function legendRows(traces, width) {
  const names = traces.filter((trace) => trace.name && trace.showlegend !== false).map(({ name }) => name.length);
  if (names.length < 2) return 0;
  const across = Math.max(1, Math.floor((width - 66) / (45 + 6.6 * Math.max(...names))));
  return Math.ceil(names.length / across);
}

function plot(node, traces, layout) {
  if (node.classList.contains("empty")) {
    node.classList.remove("empty");
    node.textContent = "";
  }
  const axis = { gridcolor: style("--line"), linecolor: style("--line"), zerolinecolor: style("--line"), automargin: true };
  const merged = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 52, r: 14, t: 10, b: 46 }, dragmode: false,
    font: { family: "system-ui, -apple-system, Segoe UI, Roboto, sans-serif", size: 12.5, color: style("--ink") },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
    hoverlabel: { font: { size: 12 } },
    ...layout,
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
  // The printed page is laid out after the charts are drawn, so their width must be fixed here.
  if (printing) Object.assign(merged, { width: PRINTED_WIDTH, height: node.classList.contains("tall") ? 340 : 290 });
  const height = printing ? merged.height : (node.classList.contains("tall") ? 400 : 330);
  const rows = legendRows(traces, printing ? PRINTED_WIDTH : node.clientWidth);
  const more = Math.max(0, rows - 4) * LEGEND_ROW;
  node.style.height = more || printing ? `${height + more}px` : "";
  if (more) merged.legend = { ...merged.legend, maxheight: (rows + 1) * LEGEND_ROW };
  if (printing) merged.height = height + more;
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage"]] };
  const figures = beside(node);
  hideBeside(node, false);
  const drawn = window.Plotly.react(node, traces, merged, config);
  if (figures.open) fillFigures(node, figures);
  return drawn;
}

function drawAll() {
  document.querySelectorAll(".dot").forEach((dot) => { dot.style.background = colourOf(dot.dataset.method); });
  document.querySelectorAll(".curve").forEach((curve) => { curve.style.color = colourOf(curve.dataset.method); });
  charts.forEach(({ node, draw }) => draw(node));
}
