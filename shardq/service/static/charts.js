// Charts of the history of a queue, or of all queues, and lines of lists, read from the API every 15 seconds.
"use strict";

const DURATIONS = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
const RANGES = { "#1h": 3600, "#6h": 21600, "#24h": 86400 };

const CHARTS = {
  depth: {
    shown: (value) => value.toLocaleString(),
    lines: [["ready", "--accent", (point) => point.ready], ["in flight", "--warn", (point) => point.in_flight], ["delayed", "--muted", (point) => point.delayed]],
  },
  rates: {
    shown: (value) => `${round(value)}/s`,
    lines: [["in", "--accent", (point) => point.incoming], ["out", "--good", (point) => point.outgoing], ["failed", "--bad", (point) => point.failed]],
  },
  wait: {
    shown: duration,
    lines: [["half", "--accent", (point) => point.wait?.p50], ["95 %", "--warn", (point) => point.wait?.p95]],
  },
  processing: {
    shown: duration,
    lines: [["half", "--accent", (point) => point.processing?.p50], ["95 %", "--warn", (point) => point.processing?.p95]],
  },
};

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const drawn = new Map();
let asked = 0;

function round(value) { return value >= 100 ? Math.round(value).toLocaleString() : String(Number(value.toPrecision(3))); }

function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${round(seconds * 1000)} ms`;
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (seconds >= length) return `${round(seconds / length)} ${unit}`;
  return `${round(seconds)} s`;
}

function draw(place, history) {
  const kind = CHARTS[place.dataset.chart];
  const points = history.points;
  const data = [points.map((point) => Date.parse(point.at) / 1000), ...kind.lines.map(([, , value]) => points.map((point) => value(point) ?? null))];
  place.closest("figure").hidden = place.dataset.chart !== "depth" && data.slice(1).every((values) => values.every((value) => value === null));
  if (place.closest("figure").hidden) return;
  const known = drawn.get(place);
  if (known) { known.setData(data); return; }
  const axis = { stroke: () => color("--muted"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { stroke: () => color("--line"), width: 1 } };
  const height = 150;
  const chart = new uPlot({
    width: Math.max(200, place.clientWidth), height,
    padding: [8, 24, 0, 0],
    axes: [{ ...axis, size: 32, values: (_plot, times) => times.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" })) }, { ...axis, size: 72, ...(kind.shown === duration ? { incrs: DURATIONS } : {}), values: (_plot, values) => values.map((value) => kind.shown(value)) }],
    scales: { y: { range: (_plot, _least, most) => [0, most > 0 ? most * 1.1 : 1] } },
    series: [
      { value: (_plot, at) => at === null ? "" : new Date(at * 1000).toLocaleTimeString([], { hourCycle: "h23" }) },
      ...kind.lines.map(([label, stroke]) => ({ label, stroke: () => color(stroke), width: 1.5, points: { show: false }, value: (_plot, value) => value === null ? "–" : kind.shown(value) })),
    ],
  }, data, place);
  drawn.set(place, chart);
  new ResizeObserver(() => chart.setSize({ width: Math.max(200, place.clientWidth), height })).observe(place);
}

async function readHistory(force) {
  const section = find("#history");
  if (!section || typeof uPlot === "undefined" || (!force && (paused || document.hidden))) return;
  const range = location.hash in RANGES ? location.hash : "#1h";
  const number = ++asked;
  for (const link of section.querySelectorAll(".switch a")) {
    if (link.getAttribute("href") === range) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }
  let history = null;
  try {
    const response = await fetch(`${section.dataset.source}?since=${RANGES[range]}&points=120`, { headers: { accept: "application/json" } });
    if (response.status === 403 || response.status === 404) { section.hidden = true; return; }
    if (response.ok) history = await response.json();
  } catch { /* the status says that the service is not connected */ }
  if (history === null || number !== asked) return;
  section.hidden = false;
  const isEmpty = history.points.every((point) => point.ready === null);
  const said = section.querySelector("[data-note]");
  const side = history.incoming_estimated ? "in" : history.outgoing_estimated ? "out" : null;
  const text = isEmpty ? section.dataset.empty : side ? `“${side}” is estimated from the number of messages: not all clients report.` : "";
  if (said.textContent !== text) said.textContent = text;
  section.querySelector(".charts").hidden = isEmpty;
  if (!isEmpty) section.querySelectorAll("[data-chart]").forEach((place) => draw(place, history));
}

// The lines of a list of queues: all messages of each in the last hour.
async function readLines() {
  const lines = [...document.querySelectorAll("svg.spark[data-queue]")];
  if (!lines.length || document.hidden) return;
  const names = lines.map((line) => line.dataset.queue);
  let found = [];
  try {
    const response = await fetch(`${root}/api/v1/histories?queues=${encodeURIComponent(names.join(","))}`, { headers: { accept: "application/json" } });
    if (response.ok) found = (await response.json()).histories;
  } catch { /* as above */ }
  for (const { queue, points } of found) {
    const depths = points.map((point) => point.ready === null ? null : point.ready + point.delayed + point.in_flight);
    const most = Math.max(1, ...depths);
    const places = depths.map((depth, at) => depth === null ? "" : `${(at * 96 / Math.max(1, depths.length - 1)).toFixed(1)},${(19 - depth * 18 / most).toFixed(1)}`);
    const line = lines.find((each) => each.dataset.queue === queue);
    line?.firstElementChild.setAttribute("points", places.filter(Boolean).join(" "));
    line?.setAttribute("aria-label", `Messages in the last hour, ${most === 1 ? "1" : most.toLocaleString()} at most`);
  }
}

addEventListener("hashchange", () => readHistory(true));
document.addEventListener("visibilitychange", () => { readHistory(false); readLines(); });
find("#theme").addEventListener("click", () => drawn.forEach((chart) => chart.redraw()));
setInterval(() => { if (!paused) { readHistory(false); readLines(); } }, 15_000);
readHistory(true);
readLines();
