"use strict";
// The last validation session: price with trades, and the account's equity with its floor.

const session = {price: null, account: null};

// Trades as lines from entry to exit, over the bars that `jaxtrade.ohlc` draws.
function drawTrades(trades) {
  return (plot) => {
    const at = (i) => plot.valToPos(i, "x", true), to = (price) => plot.valToPos(price, "y", true);
    plot.ctx.save();
    for (const trade of trades) drawTrade(plot.ctx, trade, at, to);
    plot.ctx.restore();
  };
}

function drawTrade(ctx, trade, at, to) {
  const up = trade.side === "long" ? -1 : 1, size = 6 * devicePixelRatio;
  const x = at(trade.entry), y = to(trade.entry_price);
  ctx.strokeStyle = ctx.fillStyle = colour(trade.net >= 0 ? "gain" : "loss");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.moveTo(x, y);
  ctx.lineTo(at(trade.exit), to(trade.exit_price));
  ctx.stroke();
  ctx.beginPath(); // an arrow at the entry: up for long, down for short
  ctx.moveTo(x, y + up * size);
  ctx.lineTo(x - size * 0.8, y - up * size * 0.6);
  ctx.lineTo(x + size * 0.8, y - up * size * 0.6);
  ctx.fill();
  ctx.fillRect(at(trade.exit) - size / 2, to(trade.exit_price) - size / 2, size, size);
}

function sessionWidth() {
  return Math.max(at("session-charts").clientWidth, 200);
}

function resizeSession() {
  for (const plot of [session.price, session.account]) {
    if (plot) plot.setSize({width: sessionWidth(), height: plot.height});
  }
}

function sessionOptions(data, height, series, plugins, marks) {
  let last = 0, days = 0;
  const local = data.time.map((text) => { // seconds of the session's clock, which may pass midnight
    const [hours, minutes] = text.split(":").map(Number), now = 3600 * hours + 60 * minutes;
    if (now < last) days += 1;
    last = now;
    return now + 86400 * days;
  });
  const x = data.close.map((_, i) => i), times = window.jaxtrade.times("UTC");
  return {width: sessionWidth(), height, series, plugins, legend: {show: false},
    cursor: {y: false, sync: {key: "session"}}, scales: {x: {time: false}},
    axes: [window.jaxtrade.timeAxis(x, (i) => local[Math.min(i, local.length - 1)], times),
      window.jaxtrade.axis({size: 76, values: (_, values) => marks(values)})]};
}

function showSession(data) {
  const box = at("session-charts");
  for (const plot of [session.price, session.account]) if (plot) plot.destroy();
  box.replaceChildren();
  at("validation").hidden = false; // before drawing: what is hidden has no width
  const x = data.close.map((_, i) => i);
  const hidden = {stroke: "transparent", points: {show: false}};
  session.price = new uPlot(sessionOptions(data, 300, [{}, hidden, hidden, hidden, hidden],
    [window.jaxtrade.ohlc(), {hooks: {draw: drawTrades(data.trades)}}],
    (values) => values.map((value) => value.toFixed(data.decimals))),
  [x, data.open, data.high, data.low, data.close], box);
  session.account = new uPlot(sessionOptions(data, 150,
    [{}, {stroke: colour("own"), width: 1.5, points: {show: false}},
      {stroke: colour("floor"), width: 1.5, dash: [6, 4], points: {show: false}}], [], window.jaxtrade.moneyMarks),
  [x, data.equity, data.floor], box);
  const net = data.trades.reduce((sum, trade) => sum + trade.net, 0);
  const words = `${data.symbol}, ${data.date}: ${data.trades.length} trades, net ${money(net)}. ` +
    `Policy of update ${data.update}; its score, the mean reward per validation session, is ${shortNumber(data.score)}` +
    ` (best ${shortNumber(data.best)}). `;
  at("session-note").textContent = `${words}Above: price, with an arrow at each entry and a square at each exit. ` +
    "Below: the account's equity, and dashed its drawdown floor, both in dollars of profit.";
  box.setAttribute("role", "img");
  box.setAttribute("aria-label", `${words}The table below lists the trades.`);
  tradeTable(data);
}

function money(value) {
  return `${value < 0 ? "-" : ""}$${Math.abs(value).toLocaleString("en-US", {minimumFractionDigits: 2,
    maximumFractionDigits: 2})}`;
}

function tradeTable(data) {
  const table = at("session-trades"), head = element("thead"), body = element("tbody"), first = element("tr");
  const names = ["side", "contracts", "entry", "price", "exit", "price", "reason", "net"];
  for (const name of names) {
    const cell = element("th", name);
    cell.scope = "col";
    first.append(cell);
  }
  head.append(first);
  for (const trade of data.trades) {
    const row = element("tr");
    const cells = [trade.side, trade.contracts, data.time[trade.entry], trade.entry_price.toFixed(data.decimals),
      data.time[trade.exit] || "end", trade.exit_price.toFixed(data.decimals), trade.reason, money(trade.net)];
    row.append(...cells.map((text, i) => {
      const cell = element("td", String(text));
      cell.dataset.name = names[i];
      return cell;
    }));
    row.lastChild.className = trade.net < 0 ? "loss" : "gain";
    body.append(row);
  }
  table.replaceChildren(head, body);
}
