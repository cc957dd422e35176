// Equity and drawdown over the decision bars, as two charts that zoom together.
"use strict";
(function (jt) {
  function options(times, pair, height, label, colour, fill, bars) {
    const both = (chart) => (pair.busy ? undefined : pair.zoom(chart));
    return () => ({
      height,
      padding: [null, 34, null, null], // the last label of the x axis is centred below the last bar
      scales: { x: { time: false } },
      cursor: { sync: { key: "equity" }, drag: { x: true, y: false }, y: false },
      hooks: { setScale: [(chart, name) => name === "x" && both(chart)] },
      axes: [jt.timeAxis(bars.at, bars.seconds, times), jt.axis({ size: 76, values: (_, marks) => jt.moneyMarks(marks) })],
      series: [{ label: "Time", value: (_, at) => (at === null ? jt.NONE : times.both(bars.secondsAt(at))) },
        { label, stroke: jt.colour(colour), width: 1.5, fill: fill ? `${jt.colour(colour)}2e` : undefined,
          points: { show: false }, value: (_, value) => jt.money(value) }],
    });
  }

  // The time of the mark nearest to a number of a bar
  function clockOf(columns) {
    return { at: columns.at, seconds: (i) => 60 * columns.time[i], secondsAt: (at) => {
      let [low, high] = [0, columns.at.length - 1];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (columns.at[middle] < at) low = middle + 1; else high = middle;
      }
      return 60 * columns.time[low];
    } };
  }

  jt.equity = function (element, columns, times) {
    const cents = (values, sign) => Float64Array.from(values, (value) => (sign * value) / 100);
    const made = [];
    const pair = { busy: false, zoom: (chart) => {
      pair.busy = true;
      for (const other of made) {
        const { min, max } = chart.scales.x;
        if (other() !== chart && other().scales.x.min !== null) other().setScale("x", { min, max });
      }
      pair.busy = false;
    } };
    element.hidden = false;
    const clock = clockOf(columns);
    for (const [name, label, colour, sign, height] of [["equity", "Equity", "own", 1, 300],
      ["drawdown", "Drawdown", "loss", -1, 170]]) {
      const place = element.appendChild(document.createElement("div"));
      made.push(jt.mount(place, height, options(times, pair, height, label, colour, sign < 0, clock),
        [columns.at, cents(columns[name], sign)]));
    }
  };
})(window.jaxtrade);
