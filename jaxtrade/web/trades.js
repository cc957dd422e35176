// A uPlot plugin that marks trades on bars: decision, entry, exit, stop and target. Shapes say what colours say.
"use strict";
(function (jt) {
  // side +1: a triangle that points up, below the price; -1: one that points down, above it
  function triangle(context, x, y, side, size) {
    context.moveTo(x, y + side * 2);
    context.lineTo(x - size, y + side * (2 + 1.7 * size));
    context.lineTo(x + size, y + side * (2 + 1.7 * size));
    context.closePath();
  }

  function exitMark(context, x, y, won, size) {
    if (won) {
      context.moveTo(x + size, y);
      context.arc(x, y, size, 0, 2 * Math.PI);
      return;
    }
    for (const way of [1, -1]) {
      context.moveTo(x - size, y - way * size);
      context.lineTo(x + size, y + way * size);
    }
  }

  // A name with a rim in the colour of the page, so that bars below it do not cross it out
  function name(context, text, x, y) {
    context.save();
    context.strokeStyle = jt.colour("page");
    context.lineWidth = 4 * devicePixelRatio;
    context.lineJoin = "round";
    context.strokeText(text, x, y);
    context.restore();
    context.fillText(text, x, y);
  }

  // A dashed staircase of (bar, price) up to the bar of the exit, with its name at the end
  function level(chart, steps, exit, what, colour) {
    const context = chart.ctx;
    const pixel = devicePixelRatio;
    const x = (bar) => chart.valToPos(bar, "x", true);
    const y = (price) => Math.round(chart.valToPos(price, "y", true)) + 0.5;
    context.strokeStyle = context.fillStyle = jt.colour(colour);
    context.lineWidth = 1.5 * pixel;
    context.setLineDash([5 * pixel, 4 * pixel]);
    context.beginPath();
    context.moveTo(x(steps[0][0]), y(steps[0][1]));
    steps.forEach(([bar, price], i) => {
      context.lineTo(x(bar), y(price));
      context.lineTo(x(i + 1 < steps.length ? steps[i + 1][0] : exit), y(price));
    });
    context.stroke();
    context.setLineDash([]);
    name(context, what, x(exit) + 8 * pixel, y(steps[steps.length - 1][1]) + 4 * pixel);
  }

  function drawTrade(chart, trade, chosen) {
    const context = chart.ctx;
    const pixel = devicePixelRatio;
    const x = (bar) => chart.valToPos(bar, "x", true);
    const y = (price) => chart.valToPos(price, "y", true);
    const colour = jt.colour(trade.net > 0 ? "gain" : "loss");
    context.globalAlpha = chosen ? 1 : 0.45;
    context.strokeStyle = context.fillStyle = colour;
    context.lineWidth = (chosen ? 2.5 : 1.5) * pixel;
    context.beginPath();
    context.moveTo(x(trade.entry), y(trade.paid));
    context.lineTo(x(trade.exit), y(trade.got));
    context.stroke();
    context.beginPath();
    triangle(context, x(trade.entry), y(trade.paid), trade.side, (chosen ? 7 : 4) * pixel);
    context.fill();
    context.beginPath();
    exitMark(context, x(trade.exit), y(trade.got), trade.net > 0, (chosen ? 5.5 : 3.5) * pixel);
    if (trade.net > 0) context.fill(); else context.stroke();
    context.globalAlpha = 1;
  }

  function drawDecision(chart, trade) {
    const context = chart.ctx;
    const x = Math.round(chart.valToPos(trade.decision, "x", true)) + 0.5;
    context.strokeStyle = context.fillStyle = jt.colour("muted");
    context.lineWidth = devicePixelRatio;
    context.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
    context.beginPath();
    context.moveTo(x, chart.bbox.top);
    context.lineTo(x, chart.bbox.top + chart.bbox.height);
    context.stroke();
    context.setLineDash([]);
    const left = x > chart.bbox.left + 70 * devicePixelRatio;
    context.textAlign = left ? "right" : "left";
    name(context, "decision", x + (left ? -5 : 5) * devicePixelRatio, chart.bbox.top + 13 * devicePixelRatio);
    context.textAlign = "left";
  }

  // trades: all of them. chosen: a function -> the trade that is explained, or null
  jt.tradeMarks = (trades, chosen) => ({ hooks: { draw: (chart) => {
    const { min, max } = chart.scales.x;
    const context = chart.ctx;
    const own = chosen();
    context.save();
    context.beginPath();
    context.rect(chart.bbox.left, chart.bbox.top, chart.bbox.width, chart.bbox.height);
    context.clip();
    context.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
    for (const trade of trades) {
      if (trade !== own && trade.exit >= min && trade.entry <= max) drawTrade(chart, trade, false);
    }
    if (own) {
      drawDecision(chart, own);
      if (own.stops.length) level(chart, own.stops, own.exit, "stop", "floor");
      if (own.target !== null) level(chart, [[own.entry, own.target]], own.exit, "target", "s4");
      drawTrade(chart, own, true);
    }
    context.restore();
  } } });
})(window.jaxtrade);
