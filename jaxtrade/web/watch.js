"use strict";
// The live page: asks the server what is new and shows it. Every text from a run is set as text, never as markup.

const POLL = 1000; // milliseconds between two questions
const LATER = 5000; // after the server did not answer
const page = {run: null, curves: new Map(), charts: new Map(), version: null, generation: null, validation: null,
  result: null, painted: false};
const at = (id) => document.getElementById(id);

async function ask(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`, {credentials: "same-origin"});
  if (!answer.ok) throw new Error(`${answer.status}`);
  return answer.json();
}

function showRuns(runs, count) {
  const list = at("runs");
  at("runs-note").hidden = runs.length === count;
  at("runs-note").textContent = `${runs.length} of ${count} runs are listed: the youngest, and the chosen one`;
  const before = document.activeElement ? document.activeElement.dataset.run : undefined;
  list.replaceChildren(...runs.map((run) => {
    const button = element("button", undefined, "run");
    button.type = "button";
    button.dataset.run = run.name;
    if (run.name === page.run) button.setAttribute("aria-current", "true");
    const state = element("span", run.state, `state state-${run.state}`);
    button.append(element("span", run.name, "name"), state, element("span", run.line, "line"));
    button.addEventListener("click", () => choose(run.name));
    const item = element("li");
    item.append(button);
    return item;
  }));
  for (const button of list.querySelectorAll("button")) if (button.dataset.run === before) button.focus();
  if (!runs.some((run) => run.name === page.run)) choose(runs.length ? runs[0].name : null);
}

function choose(name) {
  if (name === page.run) return;
  page.run = name;
  forget();
  location.hash = name === null ? "" : encodeURIComponent(name);
  for (const button of document.querySelectorAll("button.run")) {
    if (button.dataset.run === name) button.setAttribute("aria-current", "true");
    else button.removeAttribute("aria-current");
  }
  tick();
}

function forget() {
  for (const chart of page.charts.values()) chart.remove();
  page.curves.clear();
  page.charts.clear();
  page.version = page.generation = page.validation = page.result = null;
  at("validation").hidden = true;
  hideResult();
}

function showFacts(run) {
  at("name").textContent = run.name;
  at("about").textContent = run.about;
  const left = run.eta === null ? [] : [["time left", age(run.eta)]];
  const facts = [["state", run.state], ["update", run.progress], ...left,
    ["steps per second", shortNumber(run.speed)], ["last written", `${age(run.age)} ago`], ...run.more];
  at("facts").replaceChildren(...facts.flatMap(([name, value]) => {
    const pair = element("div");
    pair.append(element("dt", name), element("dd", String(value)));
    return [pair];
  }));
  at("done").value = run.share;
  at("done").hidden = run.state === "done";
  at("warnings").hidden = run.warnings.length === 0;
  at("warning-list").replaceChildren(...run.warnings.map((line) => element("li", line)));
  at("log").textContent = run.log.join("\n");
}

function wanted(names) {
  const shown = [], taken = new Set();
  for (const chart of CHARTS) {
    const own = chart.names ? chart.names.filter((name) => names.includes(name))
      : names.filter((name) => name.startsWith(chart.prefix));
    own.forEach((name) => taken.add(name));
    if (own.length) {
      const labels = own.map((name) => (chart.prefix ? spoken(name.slice(chart.prefix.length)) : chart.title));
      shown.push({title: chart.title, names: own, labels, parent: "charts"});
    }
  }
  if (at("more").open) {
    for (const name of names) {
      if (!taken.has(name)) shown.push({title: titleOf(name), names: [name], labels: [titleOf(name)], parent: "more-charts"});
    }
  }
  return shown;
}

function showCurves(answer) {
  if (page.generation !== null && answer.generation !== page.generation) {
    const run = page.run;
    forget();
    page.run = run;
  }
  page.generation = answer.generation;
  for (const [name, part] of Object.entries(answer.curves)) {
    if (!page.curves.has(name)) page.curves.set(name, new Curve());
    page.curves.get(name).merge(part);
  }
  let complete = true; // a figure that appeared since the page asked is asked for again
  const constant = [];
  for (const chart of wanted(answer.names)) {
    const curves = chart.names.map((name) => page.curves.get(name)).filter((curve) => curve && curve.update.length);
    complete = complete && curves.length === chart.names.length;
    if (curves.length !== chart.names.length) continue;
    const varies = curves.map((curve) => !curve.constant), labels = chart.labels.filter((_, i) => varies[i]);
    const still = curves.flatMap((curve, i) => (varies[i] ? [] : [`${chart.labels[i]} ${shortNumber(curve.mean[0])}`]));
    if (still.length) constant.push(`${chart.labels.length > 1 ? `${chart.title}: ` : ""}${still.join(", ")}`);
    drawChart(chart, labels, curves.filter((_, i) => varies[i]));
  }
  at("constant").hidden = constant.length === 0;
  at("constant").textContent = `Constant so far, so not drawn: ${constant.join("; ")}`;
  at("band-note").hidden = ![...page.curves.values()].some((curve) => curve.banded);
  page.version = complete ? answer.version : null;
  if (!page.painted && page.charts.size) {
    page.painted = true;
    performance.mark("painted");
  }
}

// A chart of the lines that vary; it is made anew where other lines do.
function drawChart(chart, labels, curves) {
  const before = page.charts.get(chart.title);
  if (before && before.labels.join() !== labels.join()) {
    before.remove();
    page.charts.delete(chart.title);
  }
  if (!labels.length) return;
  if (!page.charts.has(chart.title)) page.charts.set(chart.title, new Chart(at(chart.parent), chart.title, labels));
  page.charts.get(chart.title).draw(curves);
}

function known(names) {
  return wanted(names).flatMap((chart) => chart.names).map((name) => {
    const curve = page.curves.get(name);
    return `${name}:${curve ? curve.width : 0}:${curve ? curve.update.length : 0}`;
  }).join(",");
}

async function showRun(name) {
  const run = await ask("/api/run", {run: name});
  if (name !== page.run) return;
  showFacts(run);
  if (run.version !== page.version) {
    const answer = await ask("/api/curves", {run: name, curves: known(run.names)});
    if (name === page.run) showCurves(answer);
  }
  if (run.validation !== null && run.validation !== page.validation) {
    const session = await ask("/api/validation", {run: name});
    if (name !== page.run) return;
    page.validation = run.validation;
    showSession(session);
  }
  if (run.result === null) hideResult();
  if (run.result !== null && run.result !== page.result) {
    const found = await ask("/api/result", {run: name});
    if (name !== page.run) return;
    page.result = run.result;
    showResult(found, name);
  }
}

async function tick() {
  clearTimeout(page.timer);
  let wait = POLL;
  try {
    const runs = await ask("/api/runs", page.run === null ? {} : {run: page.run});
    showRuns(runs.runs, runs.count);
    if (page.run !== null) await showRun(page.run);
    at("link").textContent = "live";
    document.body.classList.remove("lost");
  } catch (error) {
    wait = LATER;
    at("link").textContent = error.message === "403" ? "no access: open the address that jaxtrade watch printed"
      : "the server does not answer: it was stopped, or the connection is cut";
    document.body.classList.add("lost");
  }
  page.timer = setTimeout(tick, document.hidden ? 5 * wait : wait);
}

document.addEventListener("DOMContentLoaded", () => {
  page.run = location.hash ? decodeURIComponent(location.hash.slice(1)) : null;
  at("more").addEventListener("toggle", () => { page.version = null; tick(); });
  addEventListener("resize", () => {
    page.charts.forEach((chart) => chart.resize());
    resizeSession();
    resizeResult();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  window.jaxtrade.onTheme(() => { forget(); tick(); });
  tick();
});
