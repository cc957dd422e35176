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

  // Text of the marks of a money axis: whole dollars, or two decimals for all where one is not whole.
  jt.moneyMarks = function (marks) {
    const digits = marks.every(Number.isInteger) ? 0 : 2;
    return marks.map((value) => jt.money(value, digits));
  };

  const MINUTE = 60, DAY = 86400;
  const STEPS = [...[1, 2, 5, 10, 15, 30, 60, 120, 240].map((count) => count * MINUTE),
    ...[1, 2, 7, 14, 28, 91, 182, 364, 1820].map((count) => count * DAY)];

  // [x, seconds] of at most `most` round times between `from` and `to` on an x axis that has no time of its own: the
  // first place of each step, and from days on the first place of the day. local: seconds at a place, in local time.
  jt.roundTimes = function (x, local, from, to, most) {
    for (const step of STEPS) {
      const found = [];
      for (let i = 0; i < x.length && x[i] <= to && found.length <= most; i++) {
        if (x[i] < from || (!i && step > DAY)) continue; // the first day begins no week
        const now = local(i), late = now % step;
        const before = i ? local(i - 1) : now - step;
        if (Math.floor(now / step) === Math.floor(before / step)) continue;
        if (step >= DAY) found.push([x[i], now]);
        else if (late <= step / 10) found.push([x[i], now - late]);
      }
      if (found.length <= most) return found;
    }
    return [];
  };

  // The x axis of a chart over bars. seconds: at the i-th place of x, since 1970. times: of `jt.times`.
  jt.timeAxis = function (x, seconds, times) {
    let marks = new Map();
    const shift = x.length ? times.shift(seconds(x.length >> 1)) : 0;
    return jt.axis({
      splits: (chart, _, from, to) => {
        const most = Math.max(2, Math.floor(chart.bbox.width / devicePixelRatio / 90));
        marks = new Map(jt.roundTimes(x, (i) => seconds(i) + shift, from, to, most));
        return [...marks.keys()];
      },
      values: (chart, places) => {
        const all = places.map((place) => marks.get(place) - shift);
        return all.length ? times.marks(all, all[0], all[all.length - 1]) : [];
      },
    });
  };

  // seconds since 1970 -> text in the zone of the exchange
  jt.times = function (zone) {
    const parts = { timeZone: zone, hourCycle: "h23" };
    const day = new Intl.DateTimeFormat("en-CA", { ...parts, year: "numeric", month: "2-digit", day: "2-digit" });
    const clock = new Intl.DateTimeFormat("en-GB", { ...parts, hour: "2-digit", minute: "2-digit" });
    return {
      // seconds that the local clock is ahead of UTC
      shift: (seconds) => {
        const [hours, minutes] = clock.format(seconds * 1000).split(":").map(Number);
        const days = (Date.parse(day.format(seconds * 1000)) - Math.floor(seconds / 86400) * 86400000) / 86400000;
        return days * 86400 + hours * 3600 + minutes * 60 - Math.floor((seconds % 86400) / 60) * 60;
      },
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
