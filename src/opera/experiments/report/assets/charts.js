// Quality by steps and by time, and the loss: one set of charts per data set.

function measureOf(place) {
  return document.querySelector(`select.measure[data-place="${place}"]`).value;
}

function drawConvergence(node, data, place) {
  const measure = measureOf(place);
  const traces = [];
  for (const [label, points] of Object.entries(data.curves)) {
    const colour = colourOf(label);
    const steps = points.map((point) => point.steps);
    const mean = points.map((point) => point.mean[measure]);
    const std = points.map((point) => point.std[measure]);
    if (points.length > 1) {
      traces.push({
        x: [...steps, ...[...steps].reverse()],
        y: [...mean.map((m, at) => m + std[at]), ...mean.map((m, at) => m - std[at]).reverse()],
        mode: "lines", fill: "toself", fillcolor: faint(colour, 0.13), line: { width: 0 }, hoverinfo: "skip", showlegend: false, legendgroup: label,
      });
    }
    traces.push({
      x: steps, y: mean, name: plain(label), legendgroup: label, mode: points.length > 1 ? "lines+markers" : "markers",
      line: { color: colour, dash: dashOf(label), width: 2 }, marker: { color: colour, size: 7, symbol: symbolOf(label) },
      meta: std, customdata: std, hovertemplate: "%{y:.4f} ± %{customdata:.4f}, %{x:,} steps<extra>" + plain(label) + "</extra>",
    });
  }
  const untrained = data.untrained[measure];
  const all = Object.values(data.curves).flat().map((point) => point.steps);
  const several = new Set(all).size > 1;
  plot(node, traces, {
    xaxis: { title: { text: "steps" }, type: several && Math.max(...all) / Math.min(...all) >= 6 ? "log" : "linear", tickvals: [...new Set(all)], ticktext: [...new Set(all)].map((n) => n.toLocaleString("en")) },
    yaxis: { title: { text: plain(measureName(measure)) } },
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: untrained, y1: untrained, line: { color: style("--dim"), dash: "dot", width: 1 } }],
    annotations: [{ xref: "paper", x: 1, y: untrained, text: "untrained", showarrow: false, yanchor: "bottom", xanchor: "right", font: { size: 11, color: style("--dim") } }],
  });
}

function drawTime(node, data, place) {
  const measure = measureOf(place);
  const traces = Object.entries(data.curves).map(([label, points]) => ({
    x: points.map((point) => point.seconds), y: points.map((point) => point.mean[measure]), name: plain(label),
    mode: points.length > 1 ? "lines+markers" : "markers",
    line: { color: colourOf(label), dash: dashOf(label), width: 1.3 }, marker: { color: colourOf(label), size: 7, symbol: symbolOf(label) },
    error_y: { type: "data", array: points.map((point) => point.std[measure]), color: faint(colourOf(label), 0.5), thickness: 1, width: 2 },
    customdata: points.map((point) => point.steps),
    hovertemplate: "%{y:.4f} after %{x:.0f} s, %{customdata:,} steps<extra>" + plain(label) + "</extra>",
  }));
  plot(node, traces, { xaxis: { title: { text: "seconds of training" }, rangemode: "tozero" }, yaxis: { title: { text: plain(measureName(measure)) } } });
}

function drawLines(node, lines, axis) {
  const traces = Object.entries(lines).map(([label, { steps, values }]) => ({
    x: steps, y: values, name: plain(label), mode: "lines", line: { color: colourOf(label), dash: dashOf(label), width: 1.6 },
    hovertemplate: "%{y:.4f}, step %{x:,.0f}<extra>" + plain(label) + "</extra>",
  }));
  plot(node, traces, { xaxis: { title: { text: "step" } }, yaxis: { title: { text: axis } } });
}

function drawLoss(node, data) {
  const lines = Object.fromEntries(Object.entries(data.losses).map(([label, { steps, loss }]) => [label, { steps, values: loss }]));
  drawLines(node, lines, "loss");
}

function drawEvaluations(node, data) {
  drawLines(node, data.evaluations, plain(measureName(Object.values(data.evaluations)[0].measure)));
}

function startCharts() {
  const drawers = { convergence: drawConvergence, time: drawTime, loss: drawLoss, evaluations: drawEvaluations };
  document.querySelectorAll(".chart[data-chart]").forEach((node) => {
    const place = Number(node.dataset.place);
    chart(node, () => drawers[node.dataset.chart](node, report.data[place], place));
  });
  document.querySelectorAll("select.measure").forEach((select) => {
    select.addEventListener("change", () => {
      charts.filter(({ node }) => node.dataset.place === select.dataset.place).forEach(({ node, draw }) => draw(node));
    });
  });
}
