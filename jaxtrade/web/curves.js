"use strict";
// Curves that grow: what the server sent so far, and the charts that show them.

const COLOURS = ["own", "s3", "s4", "s5", "s2", "loss", "floor", "ink"]; // names of the theme
const HEIGHT = 170;
const colour = window.jaxtrade.colour;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// One curve as the server knows it: entries of `width` updates each. `merge` takes those that are new.
class Curve {
  constructor() {
    this.width = 0;
    this.update = [];
    this.mean = [];
    this.low = [];
    this.high = [];
  }

  merge(part) {
    for (const name of ["update", "mean", "low", "high"]) {
      this[name].length = Math.min(this[name].length, part.start);
      this[name].push(...part[name]);
    }
    this.width = part.width;
  }

  // Whether all entries, of which there are several, have one value
  get constant() {
    const first = this.mean[0];
    return this.mean.length > 1 && this.low.every((low, i) => low === first && this.high[i] === first);
  }

  get banded() {
    return this.width <= 1 && this.mean.some((mean, i) => this.low[i] !== mean || this.high[i] !== mean);
  }
}

function shortNumber(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "n/a";
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-5 || size >= 1e9)) return value.toExponential(2);
  if (size < 1) return value.toLocaleString("en-US", {maximumSignificantDigits: 3});
  return value.toLocaleString("en-US", {maximumFractionDigits: size < 1000 ? 2 : 0});
}

// The curves of one chart on one grid of updates: uPlot wants a common x, and curves may have other widths.
function joined(curves) {
  if (curves.length === 1) {
    const only = curves[0];
    return [only.update, only.low, only.high, only.mean];
  }
  return uPlot.join(curves.map((curve) => [curve.update, curve.low, curve.high, curve.mean]));
}

class Chart {
  constructor(parent, title, labels) {
    this.labels = labels;
    this.figure = element("figure", undefined, "chart");
    this.caption = element("figcaption");
    this.caption.append(element("span", title, "title"));
    this.latest = element("span", "", "latest");
    this.caption.append(this.latest);
    this.box = element("div", undefined, "plot");
    this.box.setAttribute("role", "img");
    this.figure.append(this.caption, this.box);
    if (labels.length > 1) this.figure.append(this.legend());
    parent.append(this.figure);
    this.title = title;
    this.plot = null;
  }

  legend() {
    const list = element("ul", undefined, "legend");
    this.labels.forEach((label, i) => {
      const item = element("li");
      item.append(element("span", "", `swatch swatch-${(i % COLOURS.length) + 1}`), element("span", label));
      list.append(item);
    });
    return list;
  }

  options() {
    const series = [{}], bands = [];
    this.labels.forEach((label, i) => {
      const line = colour(COLOURS[i % COLOURS.length]);
      series.push({stroke: "transparent", points: {show: false}}, {stroke: "transparent", points: {show: false}},
        {label, stroke: line, width: 1.5, points: {show: false}});
      bands.push({series: [3 * i + 2, 3 * i + 1], fill: `${line}33`});
    });
    const axis = window.jaxtrade.axis({});
    return {width: Math.max(this.box.clientWidth, 200), height: HEIGHT, series, bands, legend: {show: false},
      cursor: {y: false, points: {show: false}}, scales: {x: {time: false}},
      axes: [{...axis, size: 30}, {...axis, size: 62, values: (_, ticks) => ticks.map(shortNumber)}]};
  }

  draw(curves) {
    const last = curves.map((curve) => curve.mean[curve.mean.length - 1]);
    this.latest.textContent = this.labels.length === 1 ? shortNumber(last[0]) : "";
    this.box.setAttribute("aria-label", `${this.title}: ` +
      this.labels.map((label, i) => `${label} ${shortNumber(last[i])}`).join(", "));
    const data = joined(curves);
    if (this.plot === null) this.plot = new uPlot(this.options(), data, this.box);
    else this.plot.setData(data);
  }

  resize() {
    if (this.plot !== null) this.plot.setSize({width: Math.max(this.box.clientWidth, 200), height: HEIGHT});
  }

  remove() {
    if (this.plot !== null) this.plot.destroy();
    this.figure.remove();
  }
}
