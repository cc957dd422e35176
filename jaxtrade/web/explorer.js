// The trade explorer: filters over the table of trades, the bars around the chosen one, and its facts in words.
"use strict";
(function (jt) {
  const ROOM = 25; // bars before the decision and after the exit
  const STEP = 1.6; // of the keys + and -

  function priceChart(element, bars, clock, trades, chosen, times) {
    const price = (ticks) => Float64Array.from(ticks, (value) => Number((value * clock.tick).toFixed(clock.decimals)));
    const x = Float64Array.from(bars.time, (_, i) => bars.first + i);
    const seconds = (at) => bars.time[Math.min(Math.max(Math.round(at) - bars.first, 0), x.length - 1)];
    const data = [x, ...["open", "high", "low", "close"].map((name) => price(bars[name]))];
    const shown = (value) => (value === null || value === undefined ? jt.NONE : value.toFixed(clock.decimals));

    // The visible bars, and the levels of the chosen trade where they are not too far away
    function range(chart, least, most) {
      if (least === null) return [0, 1];
      let [low, high] = [least, most];
      const own = chosen();
      const levels = own ? [own.paid, own.got, own.target, ...own.stops.map((each) => each[1])] : [];
      for (const each of levels) {
        if (each !== null && Math.abs(each - own.paid) < 3 * (most - least)) [low, high] = [Math.min(low, each), Math.max(high, each)];
      }
      const margin = (high - low) * 0.06 || clock.tick;
      return [low - margin, high + margin];
    }

    const invisible = (label) => ({ label, paths: () => null, points: { show: false }, value: (_, value) => shown(value) });
    return jt.mount(element, 420, () => ({
      padding: [null, 34, null, null], // the last label of the x axis is centred below the last bar
      scales: { x: { time: false }, y: { range } },
      cursor: { drag: { x: true, y: false } },
      axes: [jt.timeAxis(x, (i) => bars.time[i], times),
      jt.axis({ size: 76, values: (_, marks) => marks.map((value) => value.toFixed(clock.decimals)) })],
      series: [{ label: "Bar", value: (_, at) => (at === null ? jt.NONE : times.both(seconds(at))) },
        ...["Open", "High", "Low", "Close"].map(invisible)],
      plugins: [jt.ohlc(), jt.tradeMarks(trades, chosen)],
    }), data);
  }

  function tellFacts(list, trade) {
    list.replaceChildren(...trade.facts.map(([name, fact]) => {
      const pair = document.createElement("div");
      pair.appendChild(document.createElement("dt")).textContent = name;
      pair.appendChild(document.createElement("dd")).textContent = fact;
      return pair;
    }));
    const net = document.createElement("div");
    net.appendChild(document.createElement("dt")).textContent = "Net profit";
    const money = net.appendChild(document.createElement("dd"));
    money.textContent = `${trade.net > 0 ? "+" : ""}${jt.money(trade.net)}`;
    money.className = trade.net < 0 ? "loss" : "gain";
    list.prepend(net);
  }

  function keeps(choice, trade) {
    const won = trade.net > 0 ? "won" : "lost";
    return (!choice.side || choice.side === (trade.side > 0 ? "long" : "short")) && (!choice.result || choice.result === won)
      && (!choice.reason || choice.reason === trade.reason) && (!choice.session || choice.session === trade.session);
  }

  jt.explorer = function (bars, clock, trades, times) {
    const part = (name) => document.getElementById(name);
    const table = part("trades");
    const rows = [...table.tBodies[0].rows];
    let listed = trades.map((_, i) => i);
    let now = null;
    part("trade-view").hidden = false;
    table.classList.add("chosen");
    const chart = priceChart(part("price"), bars, clock, trades, () => (now === null ? null : trades[now]), times);

    function show(from, to) {
      const [least, most] = [bars.first, bars.first + bars.time.length - 1];
      chart().setScale("x", { min: Math.max(Math.min(from, most - 1), least), max: Math.min(Math.max(to, least + 1), most) });
    }

    function choose(number) {
      if (now !== null) rows[now].removeAttribute("aria-current");
      now = number;
      const place = listed.indexOf(number);
      part("which").textContent = number === null ? "No trade is listed"
        : `Trade ${rows[number].cells[0].textContent}, ${place + 1} of ${listed.length} listed${trades[number].held ? ""
          : "; the page does not hold its bars"}`;
      part("trade-facts").hidden = number === null;
      if (number === null) return;
      rows[number].setAttribute("aria-current", "true");
      const frame = table.parentElement;
      const top = rows[number].offsetTop - table.tHead.offsetHeight;
      if (top < frame.scrollTop || top > frame.scrollTop + frame.clientHeight - 80) frame.scrollTop = top - 40;
      tellFacts(part("trade-facts"), trades[number]);
      if (trades[number].held) show(trades[number].decision - ROOM, trades[number].exit + ROOM);
    }

    function go(step) {
      if (!listed.length) return;
      const place = listed.indexOf(now);
      choose(listed[Math.min(Math.max(place + step, 0), listed.length - 1)]);
    }

    function zoom(times) {
      const { min, max } = chart().scales.x;
      const [middle, half] = [(min + max) / 2, ((max - min) / 2) * times];
      show(middle - half, middle + half);
    }

    function pan(share) {
      const { min, max } = chart().scales.x;
      show(min + share * (max - min), max + share * (max - min));
    }

    function filter() {
      const choice = Object.fromEntries(new FormData(part("filters")));
      listed = trades.flatMap((trade, i) => (keeps(choice, trade) ? [i] : []));
      const kept = new Set(listed);
      rows.forEach((row, i) => { row.hidden = !kept.has(i); });
      choose(kept.has(now) ? now : listed.length ? listed[0] : null);
    }

    const actions = { j: () => go(1), k: () => go(-1), "+": () => zoom(1 / STEP), "-": () => zoom(STEP) };
    for (const [name, key] of [["next", "j"], ["previous", "k"], ["closer", "+"], ["wider", "-"]]) {
      part(`go-${name}`).addEventListener("click", actions[key]);
    }
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select, input, textarea")) return;
      if (actions[event.key]) actions[event.key]();
    });
    part("price").addEventListener("keydown", (event) => {
      if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
        event.preventDefault();
        pan(event.key === "ArrowLeft" ? -0.25 : 0.25);
      }
    });
    part("filters").addEventListener("change", filter);
    part("filters").addEventListener("submit", (event) => event.preventDefault());
    table.tBodies[0].addEventListener("click", (event) => choose(rows.indexOf(event.target.closest("tr"))));
    const held = trades.findIndex((trade) => trade.held);
    choose(held < 0 ? 0 : held);
  };
})(window.jaxtrade);
