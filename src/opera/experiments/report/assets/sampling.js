// The recorded sampling probabilities of one data set, one method and one step.

const sampling = { data: null, method: null, at: 0, timer: null };
const LIMIT = 3; // colours run from 1/8 to 8 times fine-tuning's probability

function decode(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

// The logarithm, to the base 2, of the ratio to fine-tuning's probability; null where it is zero.
function logarithm(code) {
  if (code === 0) return null;
  const { codes, farthest } = report.scale;
  return ((code - 1) / (codes - 1)) * 2 * farthest - farthest;
}

function colourScale() {
  const middle = isDark() ? "#3a4048" : "#dcdbd4";
  return {
    zmin: -LIMIT, zmax: LIMIT, xgap: 0, ygap: 0,
    colorscale: [[0, "#2166ac"], [0.25, "#67a9cf"], [0.5, middle], [0.75, "#ef8a62"], [1, "#b2182b"]],
    colorbar: { thickness: 10, len: 0.9, tickvals: [-3, -2, -1, 0, 1, 2, 3], ticktext: ["⅛", "¼", "½", "1", "2", "4", "8"], outlinewidth: 0, title: { text: "× FT", side: "top", font: { size: 11 } } },
  };
}

// Index of the recorded step nearest to a step; runs may have recorded different steps.
function nearest(steps, step) {
  return steps.reduce((best, other, at) => (Math.abs(other - step) < Math.abs(steps[best] - step) ? at : best), 0);
}

const current = () => sampling.data.sampling[sampling.method];

function drawFigureOne(node) {
  const traces = [];
  for (const [label, picture] of Object.entries(sampling.data.sampling)) {
    if (!picture.by_similarity) continue;
    const at = nearest(picture.steps, current().steps[sampling.at]);
    const chosen = label === sampling.method;
    const ratios = picture.by_similarity.ratio[at];
    traces.push({
      x: ratios.map((_, band) => (100 * (band + 0.5)) / ratios.length), y: ratios, name: plain(label), mode: "lines",
      line: { color: colourOf(label), dash: dashOf(label), width: chosen ? 3.5 : 1.3, shape: "hvh" }, opacity: chosen ? 1 : 0.6,
      customdata: picture.by_similarity.similarity, hovertemplate: "%{y:.2f} × as often, similarity from %{customdata:.2f}<extra>" + plain(label) + "</extra>",
    });
  }
  if (!traces.length) return showMessage(node, "No run here recorded the pairs' similarities.");
  return plot(node, traces, { xaxis: { title: { text: "pairs by similarity, percentile" }, range: [0, 100] }, yaxis: { title: { text: "× as often as FT" }, rangemode: "tozero" } });
}

function drawSimilarities(node) {
  const histogram = current().histogram;
  if (!histogram) return showMessage(node, `${sampling.method} keeps no similarities.`);
  const { edges, counts, threshold, kept_from: kept } = histogram;
  const middles = counts[0].map((_, at) => (edges[at] + edges[at + 1]) / 2);
  const lines = [];
  const notes = [];
  const mark = (value, text) => {
    lines.push({ type: "line", x0: value, x1: value, yref: "paper", y0: 0, y1: 1, line: { color: style("--lost"), width: 2, dash: "dash" } });
    notes.push({ x: value, yref: "paper", y: 1, text: `${text} ${value.toFixed(3)}`, showarrow: false, xanchor: "left", yanchor: "top", xshift: 4, font: { color: style("--lost"), size: 12 } });
  };
  if (threshold[sampling.at] !== null) mark(threshold[sampling.at], "T =");
  if (kept !== null) mark(kept, "kept from");
  const first = { x: middles, y: counts[0], name: "at the start", mode: "lines", line: { color: style("--dim"), width: 1, shape: "hvh" }, hoverinfo: "skip" };
  const now = { x: middles, y: counts[sampling.at], name: "now", type: "bar", marker: { color: faint(colourOf(sampling.method), 0.75) }, hovertemplate: "%{y:,} pairs<extra></extra>" };
  return plot(node, [now, first], { bargap: 0, shapes: lines, annotations: notes, xaxis: { title: { text: "similarity of query and document" } }, yaxis: { title: { text: "pairs" }, range: [0, 1.08 * Math.max(...counts.flat())] } });
}

function drawByQuery(node) {
  const { names, width, codes, exists } = current().by_query;
  const all = decode(codes);
  const present = decode(exists);
  const start = sampling.at * names.length * width;
  const rows = names.map((_, row) => Array.from({ length: width }, (__, column) => logarithm(all[start + row * width + column])));
  const hover = names.map((name, row) => Array.from({ length: width }, (_, column) => {
    if (!present[row * width + column]) return "";
    const value = rows[row][column];
    return `${plain(name)}, document ${column + 1}: ${value === null ? "never" : (2 ** value).toFixed(2) + " ×"}`;
  }));
  const columns = Array.from({ length: width }, (_, column) => column + 1);
  const trace = { type: "heatmap", z: rows, x: columns, text: hover, hoverinfo: "text", hoverongaps: false, ...colourScale() };
  return plot(node, [trace], { xaxis: { title: { text: "document of the query, most similar first" }, showgrid: false }, yaxis: { title: { text: "training query" }, autorange: "reversed", showticklabels: false, ticks: "", showgrid: false } });
}

function drawByStart(node) {
  const picture = current();
  const { width, codes } = picture.by_start;
  const all = decode(codes);
  const rows = picture.steps.map((_, row) => Array.from({ length: width }, (__, column) => logarithm(all[row * width + column])));
  const steps = picture.steps.map((step) => step + 1);
  const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: steps[sampling.at], y1: steps[sampling.at], line: { color: style("--ink"), width: 1.5 } };
  const trace = { type: "heatmap", z: rows, y: steps, hovertemplate: "step %{y:,}, pair %{x}: 2^%{z:.1f} × FT<extra></extra>", hoverongaps: false, ...colourScale() };
  return plot(node, [trace], { shapes: [line], xaxis: { title: { text: "pairs, by probability at the start" }, showticklabels: false, showgrid: false }, yaxis: { title: { text: "step" }, autorange: "reversed", showgrid: false } });
}

const SAMPLING_CHARTS = { "figure-one": drawFigureOne, similarities: drawSimilarities, "by-query": drawByQuery, "by-start": drawByStart };

function drawSampling() {
  const picture = current();
  const step = picture.steps[sampling.at];
  byId("sampling-at").textContent = `${(step + 1).toLocaleString("en")} of ${(picture.steps.at(-1) + 1).toLocaleString("en")}`;
  byId("sampling-step").setAttribute("aria-valuetext", `step ${byId("sampling-at").textContent}`);
  const drawable = picture.drawable[sampling.at];
  const share = drawable === 1 ? "100" : Math.min(99.9, 100 * drawable).toFixed(1);
  byId("sampling-summary").textContent = `${share}% of ${picture.queries.toLocaleString("en")} queries can be drawn at this step; ${picture.pairs.toLocaleString("en")} pairs recorded at ${picture.steps.length} steps.`;
  for (const [id, draw] of Object.entries(SAMPLING_CHARTS)) draw(byId(id));
}

function chooseMethod(label) {
  sampling.method = label;
  const slider = byId("sampling-step");
  slider.max = current().steps.length - 1;
  sampling.at = Math.min(sampling.at, Number(slider.max));
  slider.value = sampling.at;
  drawSampling();
}

function chooseSamplingData(place) {
  sampling.data = report.data[place];
  const labels = Object.keys(sampling.data.sampling);
  fill(byId("sampling-method"), labels.map((label) => [label, label]));
  const label = labels.includes(sampling.method) ? sampling.method : labels.find((one) => baseOf(one) === "dp") ?? labels.at(-1);
  byId("sampling-method").value = label;
  chooseMethod(label);
}

function play() {
  if (sampling.timer) {
    clearInterval(sampling.timer);
    sampling.timer = null;
    byId("sampling-play").textContent = "play";
    return;
  }
  const slider = byId("sampling-step");
  if (sampling.at >= Number(slider.max)) sampling.at = -1;
  byId("sampling-play").textContent = "stop";
  sampling.timer = setInterval(() => {
    sampling.at += 1;
    slider.value = sampling.at;
    drawSampling();
    if (sampling.at >= Number(slider.max)) play();
  }, 160);
}

function startSampling() {
  const recorded = report.data.map((data, place) => [place, data]).filter(([, data]) => Object.keys(data.sampling).length);
  if (!recorded.length) {
    byId("no-sampling").hidden = false;
    byId("sampling-body").hidden = true;
    return;
  }
  fill(byId("sampling-data"), recorded.map(([place, data]) => [place, data.name]));
  byId("sampling-data").addEventListener("change", (event) => chooseSamplingData(Number(event.target.value)));
  byId("sampling-method").addEventListener("change", (event) => chooseMethod(event.target.value));
  byId("sampling-step").addEventListener("input", (event) => { sampling.at = Number(event.target.value); drawSampling(); });
  byId("sampling-play").addEventListener("click", play);
  chooseSamplingData(recorded[0][0]);
  for (const [id, draw] of Object.entries(SAMPLING_CHARTS)) charts.push({ node: byId(id), draw });
}
