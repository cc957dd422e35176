"use strict";
// The result of a finished run: its verdict, the equity of its policy, and the links to its reports.

const result = {equity: null};

function showResult(data, run) {
  at("result").hidden = false; // before drawing: what is hidden has no width
  at("verdict").textContent = data.verdict;
  showReports(data.symbols.length ? data.symbols : [""], run);
  showAgents(data.agents);
  drawEquity(data);
}

function hideResult() {
  at("result").hidden = true;
  if (result.equity) result.equity.destroy();
  result.equity = null;
}

function showReports(symbols, run) {
  at("report").replaceChildren(...symbols.flatMap((symbol, i) => {
    const link = element("a", symbol ? `Report of ${symbol}` : "The whole report");
    link.href = `/report?${new URLSearchParams(symbol ? {run, symbol} : {run})}`;
    link.target = "_blank";
    return i ? [" \u00b7 ", link] : [link];
  }));
}

function showAgents(agents) {
  const names = ["", "net profit", "with account rules", "max drawdown", "trades"];
  const head = element("thead"), body = element("tbody"), first = element("tr");
  first.append(...names.map((name, i) => {
    const cell = element("th", name, i ? "n" : undefined);
    cell.scope = "col";
    return cell;
  }));
  head.append(first);
  agents.forEach((agent, i) => {
    const row = element("tr", undefined, i ? undefined : "own"), name = element("th", agent.name);
    name.scope = "row";
    const cells = [money(agent.net_profit), money(agent.account), money(agent.max_drawdown), agent.trades.toLocaleString("en-US")];
    row.append(name, ...cells.map((text, place) => {
      const cell = element("td", text, `n${place < 2 && text.startsWith("-") ? " loss" : ""}`);
      cell.dataset.name = names[place + 1];
      return cell;
    }));
    body.append(row);
  });
  at("result-agents").replaceChildren(head, body);
}

function drawEquity(data) {
  const box = at("result-equity");
  if (result.equity) result.equity.destroy();
  result.equity = null;
  box.replaceChildren();
  if (data.equity === null) return;
  box.append(element("p", `Equity of your policy${data.policy ? ` (${data.policy.replace("_", " ")})` : ""}, account rules off`, "note"));
  const {time, equity} = data.equity, x = time.map((_, i) => i);
  result.equity = new uPlot({width: Math.max(box.clientWidth, 200), height: 240, legend: {show: false},
    padding: [null, 24, null, null], cursor: {y: false, points: {show: false}}, scales: {x: {time: false}},
    series: [{}, {stroke: colour("own"), width: 1.5, points: {show: false}}],
    axes: [window.jaxtrade.timeAxis(x, (i) => time[i], window.jaxtrade.times("UTC")),
      window.jaxtrade.axis({size: 76, values: (_, marks) => window.jaxtrade.moneyMarks(marks)})]}, [x, equity], box);
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `Equity from ${money(equity[0])} to ${money(equity[equity.length - 1])}`);
}

function resizeResult() {
  if (result.equity) result.equity.setSize({width: Math.max(at("result-equity").clientWidth, 200), height: 240});
}
