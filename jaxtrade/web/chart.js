// What all charts on a canvas share: text of times and money, axes in the colours of the theme, and their size.
"use strict";
(function (jt) {
  const MINUS = "\u2212";

  jt.NONE = "\u2013"; // where the cursor is at no bar

  jt.money = function (value, digits = 2) {
    if (value === null || value === undefined) return jt.NONE;
    const text = Math.abs(value).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    return `${Number(value.toFixed(digits)) < 0 ? MINUS : ""}$${text}`;
  };

  // seconds since 1970 -> text in the zone of the exchange
  jt.times = function (zone) {
    const parts = { timeZone: zone, hourCycle: "h23" };
    const day = new Intl.DateTimeFormat("en-CA", { ...parts, year: "numeric", month: "2-digit", day: "2-digit" });
    const clock = new Intl.DateTimeFormat("en-GB", { ...parts, hour: "2-digit", minute: "2-digit" });
    return {
      day: (seconds) => day.format(seconds * 1000),
      clock: (seconds) => clock.format(seconds * 1000),
      both: (seconds) => `${day.format(seconds * 1000)} ${clock.format(seconds * 1000)}`,
      // labels of an axis that shows `from` to `to`: the day, or the time of day where that is less than two days
      marks: (all, from, to) => all.map((seconds) => (to - from < 2 * 86400 ? clock : day).format(seconds * 1000)),
    };
  };

  jt.axis = function (more) {
    const line = { stroke: jt.colour("faint"), width: 1 };
    return { stroke: jt.colour("muted"), font: "12px system-ui, sans-serif", grid: line,
      ticks: { stroke: jt.colour("rule"), width: 1, size: 5 }, ...more };
  };

  // A chart that follows the width of its element and the theme. options: a function, so that it reads the colours
  // anew. Returns a function that gives the chart of now.
  jt.mount = function (element, height, options, data) {
    let chart = null;

    function draw() {
      const range = chart && { min: chart.scales.x.min, max: chart.scales.x.max };
      if (chart) chart.destroy();
      chart = new uPlot({ width: Math.max(element.clientWidth, 280), height, ...options() }, data, element);
      if (range && range.min !== null) chart.setScale("x", range);
    }

    draw();
    jt.onTheme(draw);
    new ResizeObserver(() => {
      const width = Math.max(element.clientWidth, 280);
      if (width !== chart.width) chart.setSize({ width, height });
    }).observe(element);
    return () => chart;
  };
})(window.jaxtrade);
