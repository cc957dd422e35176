// Starts the live parts of a report, and says when they are ready: `data-ready` of the page, in milliseconds.
"use strict";
(async function (jt) {
  const live = JSON.parse(document.getElementById("live").textContent);
  const times = jt.times(live.clock.zone);
  const [bars, equity] = await Promise.all([jt.unpack(live.bars), jt.unpack(live.equity)]);
  jt.equity(document.getElementById("equity-live"), equity, times);
  document.getElementById("equity-static").hidden = true;
  if (live.trades.length && live.bars.rows) {
    const time = bars.time.map((value) => live.bars.start + value * live.bars.unit);
    jt.explorer({ ...bars, time, first: live.bars.first }, live.clock, live.trades, times);
  }
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
})(window.jaxtrade);
