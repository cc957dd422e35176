// A uPlot plugin that draws bars: a line from low to high, a tick to the left at the open and to the right at the close.
// The data of the chart are [x, open, high, low, close]. Where bars are narrow, one line for each column of pixels stays.
"use strict";
(function (jt) {
  function drawBars(chart) {
    const [x, open, high, low, close] = chart.data;
    const [first, last] = [Math.max(chart.valToIdx(chart.scales.x.min) - 1, 0), chart.valToIdx(chart.scales.x.max)];
    const wide = Math.abs(chart.valToPos(x[0] + 1, "x", true) - chart.valToPos(x[0], "x", true));
    const at = (value) => Math.round(chart.valToPos(value, "y", true)) + 0.5;
    const context = chart.ctx;
    const pixel = devicePixelRatio;
    const tick = Math.min(wide * 0.32, 6 * pixel);
    context.save();
    context.beginPath();
    context.rect(chart.bbox.left, chart.bbox.top, chart.bbox.width, chart.bbox.height);
    context.clip();
    context.beginPath();
    let column = null, top = -Infinity, bottom = Infinity;
    for (let i = first; i <= last; i++) {
      const middle = Math.round(chart.valToPos(x[i], "x", true)) + 0.5;
      if (middle !== column) [column, top, bottom] = [middle, -Infinity, Infinity];
      if (high[i] <= top && low[i] >= bottom) continue;
      [top, bottom] = [Math.max(top, high[i]), Math.min(bottom, low[i])];
      context.moveTo(middle, at(top));
      context.lineTo(middle, at(bottom) + (top === bottom ? 1 : 0));
      if (wide < 3 * pixel) continue;
      context.moveTo(middle - tick, at(open[i]));
      context.lineTo(middle, at(open[i]));
      context.moveTo(middle, at(close[i]));
      context.lineTo(middle + tick, at(close[i]));
    }
    context.strokeStyle = jt.colour("ink");
    context.lineWidth = Math.max(1, Math.min(wide * 0.12, 1.5 * pixel));
    context.stroke();
    context.restore();
  }

  jt.ohlc = () => ({ hooks: { draw: drawBars } });
})(window.jaxtrade);
