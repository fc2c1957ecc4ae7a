// Start everything. Redraw when the colours change, and in light colours for printing.

startTables();
startCharts();
startSampling();
startExplorer();
drawAll();

darkMode.addEventListener("change", drawAll);
window.addEventListener("beforeprint", () => {
  printing = true;
  document.querySelectorAll("details:not(.figures)").forEach((part) => { part.open = true; });
  drawAll();
});
window.addEventListener("afterprint", () => {
  printing = false;
  drawAll();
});
document.documentElement.dataset.ready = "true";
