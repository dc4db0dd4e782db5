// SPDX-License-Identifier: MIT
"use strict";

// --- before and after ------------------------------------------------------------------------------
// Lays the filtered image over the original and lets a slider move the border between them. Without
// JavaScript both are shown, one below the other.
for (const frame of document.querySelectorAll(".frame")) {
  const slider = document.createElement("input"), grip = document.createElement("span");
  slider.type = "range";
  slider.min = 0;
  slider.max = 1000;
  slider.value = 500;
  slider.setAttribute("aria-label", "Original shown of " + frame.querySelector("img").alt.replace(/, before$/, ""));
  const show = () => {
    frame.style.setProperty("--cut", slider.value / 10 + "%");
    slider.setAttribute("aria-valuetext", Math.round(slider.value / 10) + " % of the original");
  };
  slider.addEventListener("input", show);
  grip.className = "grip";
  grip.setAttribute("aria-hidden", "true");
  frame.append(grip, slider);
  frame.classList.add("slides");
  show();
}

// --- timelines -------------------------------------------------------------------------------------
// Draws each row on a canvas: slice by slice where the page has them, else the areas of the page's own
// SVG. Timelines of one page share their scale, and zoom together.
const STAGES = ["read", "decode", "copy_in", "kernel", "copy_out", "encode", "write"];
const charts = [];

function describeTime(us) {
  if (us < 1000) return (us < 10 && us % 1 ? us.toFixed(1) : us.toFixed(0)) + " µs";
  const number = us < 1e6 ? us / 1e3 : us / 1e6;
  return Number(number.toPrecision(3)) + (us < 1e6 ? " ms" : " s");
}

// [{start, end, stage, name}], in µs.
function unpack(packed) {
  const list = [];
  let start = 0;
  for (let i = 0; i < packed.slices.length; i += 4) {
    start += packed.slices[i];
    list.push({ start, end: start + packed.slices[i + 1], stage: STAGES[packed.slices[i + 2]],
      name: packed.names[packed.slices[i + 3]] });
  }
  return list;
}

class Chart {
  constructor(panel) {
    this.box = panel.querySelector(".timeline");
    this.span = Number(this.box.dataset.span);
    this.bins = Number(this.box.dataset.bins);
    this.axis = this.box.querySelector(".axis");
    const packed = JSON.parse(panel.querySelector("script.slices").textContent);
    this.rows = [...this.box.querySelectorAll("svg.row")].map((svg, i) => {
      const canvas = document.createElement("canvas");
      canvas.className = "row";
      canvas.setAttribute("aria-hidden", "true");
      svg.after(canvas);
      return { canvas, name: svg.previousElementSibling.textContent, slices: packed[i] && unpack(packed[i]),
        areas: [...svg.querySelectorAll("path")].map(path => [path.getAttribute("class"), new Path2D(path.getAttribute("d"))]) };
    });
    this.box.classList.add("drawn");
    this.box.classList.toggle("dense", this.rows.length > 12);
    this.brush = document.createElement("div");
    this.brush.className = "brush";
    this.brush.hidden = true;
    this.box.append(this.brush);
    this.addTools(panel);
    this.addPointer();
  }

  addTools(panel) {
    const tools = document.createElement("div");
    tools.className = "tools";
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    const title = panel.querySelector("h3");
    this.box.setAttribute("aria-label", (title ? title.textContent + ": " : "") + "timeline of " + this.rows.length + " rows. Plus and minus zoom, left and right "
      + "arrows move, Home shows everything. The same figures are in the table below.");
    const actions = [["+", "Zoom in", () => zoom(0.5)], ["−", "Zoom out", () => zoom(2)],
      ["←", "Earlier", () => move(-0.4)], ["→", "Later", () => move(0.4)], ["All", "Show all of the time", () => show(0, this.span)]];
    for (const [text, label, action] of actions) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = text;
      button.setAttribute("aria-label", label);
      button.title = label;
      button.addEventListener("click", action);
      tools.append(button);
    }
    this.output = document.createElement("output");
    this.output.textContent = "Drag over the timeline to zoom in; point at it for details.";
    tools.append(this.output);
    this.box.before(tools);
    const keys = { "+": actions[0][2], "=": actions[0][2], "-": actions[1][2], ArrowLeft: actions[2][2],
      ArrowRight: actions[3][2], Home: actions[4][2], Escape: actions[4][2] };
    this.box.addEventListener("keydown", event => {
      if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  // Time under a position of the pointer.
  timeAt(clientX) {
    const box = this.rows[0].canvas.getBoundingClientRect();
    return view.from + Math.min(1, Math.max(0, (clientX - box.left) / box.width)) * (view.to - view.from);
  }

  addPointer() {
    let start = null;
    this.box.addEventListener("pointerdown", event => {
      if (event.button === 0 && event.target.tagName === "CANVAS" && event.pointerType !== "touch") {
        start = event.clientX;
        this.box.setPointerCapture(event.pointerId);
      }
    });
    this.box.addEventListener("pointermove", event => {
      if (start === null) {
        this.point(event);
        return;
      }
      const box = this.box.getBoundingClientRect();
      this.brush.hidden = false;
      this.brush.style.left = Math.min(start, event.clientX) - box.left + "px";
      this.brush.style.width = Math.abs(event.clientX - start) + "px";
    });
    this.box.addEventListener("pointerup", event => {
      if (start === null) return;
      const [from, to] = [this.timeAt(Math.min(start, event.clientX)), this.timeAt(Math.max(start, event.clientX))];
      if (Math.abs(event.clientX - start) > 4) show(from, to);
      start = null;
      this.brush.hidden = true;
      this.point(event);
    });
    this.box.addEventListener("pointerleave", () => { tip.hidden = true; });
    this.box.addEventListener("dblclick", () => show(0, this.span));
    this.box.addEventListener("wheel", event => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 200), this.timeAt(event.clientX));
    }, { passive: false });
  }

  // Says what is under the pointer.
  point(event) {
    const row = this.rows.find(({ canvas }) => {
      const box = canvas.getBoundingClientRect();
      return event.clientY >= box.top && event.clientY <= box.bottom && event.clientX >= box.left && event.clientX <= box.right;
    });
    tip.hidden = !row;
    if (!row) return;
    const box = row.canvas.getBoundingClientRect(), pixel = (view.to - view.from) / box.width;
    const at = this.timeAt(event.clientX);
    // The shortest slice within a pixel of the pointer.
    const found = row.slices && row.slices.filter(slice => slice.start <= at + pixel && slice.end >= at - pixel)
      .sort((a, b) => a.end - a.start - (b.end - b.start))[0];
    tip.textContent = row.name + ": " + (found ? found.stage.replace("_", " ") + ", " + describeTime(found.end - found.start)
      + ", from " + describeTime(found.start) + (found.name ? " · " + found.name : "")
      : row.slices ? "no stage at " + describeTime(at) : describeTime(at));
    this.output.textContent = tip.textContent;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
    tip.style.top = event.clientY + (event.clientY > innerHeight - 90 ? -46 : 18) + "px";
  }

  draw() {
    const colours = getComputedStyle(document.documentElement);
    for (const row of this.rows) {
      const box = row.canvas.getBoundingClientRect(), ratio = devicePixelRatio || 1;
      row.canvas.width = Math.round(box.width * ratio);
      row.canvas.height = Math.round(box.height * ratio);
      const context = row.canvas.getContext("2d"), scale = row.canvas.width / (view.to - view.from);
      if (row.slices) {
        for (const slice of row.slices) {
          if (slice.end < view.from || slice.start > view.to) continue;
          const left = (slice.start - view.from) * scale, width = Math.max((slice.end - slice.start) * scale, 0.6);
          context.fillStyle = colours.getPropertyValue("--" + slice.stage);
          // A gap of a pixel shows where one slice ends and the next begins.
          context.fillRect(left, 0, width > 6 * ratio ? width - ratio : width, row.canvas.height);
        }
      } else {
        context.setTransform(scale * this.span / this.bins, 0, 0, row.canvas.height / 100, -view.from * scale, 0);
        for (const [stage, path] of row.areas) {
          context.fillStyle = colours.getPropertyValue("--" + stage);
          context.fill(path);
        }
      }
    }
    this.drawAxis();
  }

  drawAxis() {
    // At least three steps, so that the axis of a narrow screen has a second mark.
    const about = (view.to - view.from) / Math.max(3, this.axis.clientWidth / 110), power = 10 ** Math.floor(Math.log10(about));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= about);
    this.axis.replaceChildren();
    for (let at = Math.ceil(view.from / step) * step; at <= view.to - (view.to - view.from) / 16; at += step) {
      const mark = document.createElement("span");
      mark.style.left = (at - view.from) / (view.to - view.from) * 100 + "%";
      mark.textContent = at ? describeTime(at) : "0";
      this.axis.append(mark);
    }
  }
}

const view = { from: 0, to: 1 }, tip = document.createElement("div");

function show(from, to) {
  const span = charts[0].span, width = Math.min(span, Math.max(to - from, Math.min(20, span)));
  view.from = Math.min(Math.max(0, from), span - width);
  view.to = view.from + width;
  tip.hidden = true;
  for (const chart of charts) chart.draw();
}

function zoom(factor, around = (view.from + view.to) / 2) {
  show(around - (around - view.from) * factor, around + (view.to - around) * factor);
}

function move(share) {
  const width = view.to - view.from;
  show(view.from + share * width, view.from + share * width + width);
}

for (const panel of document.querySelectorAll(".timeline-panel")) charts.push(new Chart(panel));
if (charts.length) {
  if (charts.every(chart => chart.rows.every(row => row.slices)))
    document.querySelector(".no-script").remove(); // about areas, of which there are none
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  show(0, charts[0].span);
  addEventListener("resize", () => show(view.from, view.to));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(view.from, view.to));
}

// --- the record ------------------------------------------------------------------------------------
{
  const link = document.createElement("a"), record = document.getElementById("record").textContent;
  link.textContent = "Save its figures as JSON";
  link.download = "conv.json";
  link.href = "#";
  link.addEventListener("click", () => {
    link.href = "data:application/json;charset=utf-8," + encodeURIComponent(record);
  });
  document.getElementById("record-link").append("; ", link);
}
