// SPDX-License-Identifier: MIT
// Shows the page's data: one JSON object, written by src/page/page.c. All text of it becomes text
// nodes and attributes, never markup.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent), record = data.record;
const STAGES = ["read", "decode", "copy_in", "kernel", "copy_out", "encode", "write"];
const DEVICE_STAGES = ["copy_in", "kernel", "copy_out"];
const FEWEST_TIMED = 50; // images of which a histogram shows anything

// --- elements and numbers --------------------------------------------------------------------------
function h(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  element.append(...children.flat(Infinity).filter(child => child !== null && child !== undefined && child !== false));
  return element;
}

const label = stage => stage.replace("_", " ");
const plural = (count, what) => count + " " + what + (count === 1 ? "" : "s");

// Groups of three digits from 10,000 on, with narrow spaces that do not break.
function shown(number, decimals) {
  const [whole, part] = number.toFixed(decimals).split(".");
  return (whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") : whole) + (part ? "." + part : "");
}

// A figure of the record by its key, "rows.0.busy.kernel".
function figure(key, decimals, scale = 1) {
  const value = key.split(".").reduce((part, name) => part[name], record);
  const text = typeof value === "string" ? label(value) : shown(value * scale, decimals);
  return h("span", { "data-key": key, "data-scale": scale === 1 ? null : scale }, text);
}

const rate = (key, value) => figure(key, value < 100 ? 1 : 0);
const percent = (key, decimals = 1) => [figure(key, decimals, 100), "\u00a0%"];
const share = part => (100 * part).toFixed(3) + "%";

// "250 ms"
function describeTime(us) {
  if (us < 1000) return Number(us.toPrecision(3)) + " µs";
  const number = us < 1e6 ? us / 1e3 : us / 1e6;
  return Number(number.toPrecision(3)) + (us < 1e6 ? " ms" : " s");
}

// A table of rows of cells; a cell is a node, a text, or null. `numbers`: the columns that are right-aligned.
function table(heads, rows, numbers, attributes) {
  const align = i => (numbers.includes(i) ? "number" : null);
  return h("table", attributes,
    h("thead", {}, h("tr", {}, heads.map((head, i) => h("th", { scope: "col", class: align(i) }, head)))),
    h("tbody", {}, rows.map(cells => h("tr", {}, cells.map((cell, i) =>
      h(i ? "td" : "th", { scope: i ? null : "row", class: align(i) }, cell))))));
}

const scroll = (name, content) => h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": name }, content);
const section = (id, title, ...content) =>
  h("section", { "aria-labelledby": id }, h("h2", { id }, title), content);
const lede = (...text) => h("p", { class: "lede" }, text);
const details = (summary, ...content) => h("details", {}, h("summary", {}, summary), content);

// --- a run -----------------------------------------------------------------------------------------
function headline() {
  const one = (value, text, kind = "") => h("div", { class: "figure " + kind }, h("b", {}, value), h("span", {}, text));
  return h("section", { class: "headline", "aria-label": "The run in figures" },
    one(figure("done", 0), "images done", "lead"),
    one([figure("seconds", record.seconds < 100 ? 2 : 0), " s"], "from start to end"),
    one(figure("failed", 0), "failed", record.failed ? "bad" : ""),
    record.skipped > 0 && one(figure("skipped", 0), "skipped"),
    one(rate("images_per_s", record.images_per_s), "images per second"),
    one([figure("cpu_utilisation", 0, 100), " %"], "CPU utilisation, " + plural(record.cores, "core")));
}

function failures() {
  const reasons = [...data.failures].sort((a, b) => b.count - a.count).map(({ count, reason, names }) => [shown(count, 0), [reason,
    details("which images", h("ul", {}, names.map(name => h("li", { class: "name" }, name)),
      count > names.length && h("li", {}, `and ${shown(count - names.length, 0)} more, which `, h("code", {}, "--report FILE"), " lists")))]]);
  if (data.other_failures)
    reasons.push([shown(data.other_failures, 0), ["other reasons, which ", h("code", {}, "--report FILE"), " lists"]]);
  return section("failures", "Failures, by reason", table(["images", "reason"], reasons, [0], { class: "reasons" }));
}

// Lays the filtered image over the original and lets a slider move the border between them.
function pair({ name, width, height, crop, before, after }) {
  const side = (what, bytes) => h("div", { class: "side " + what },
    h("img", { alt: `${name}, ${what}`, width: crop[0], height: crop[1], src: "data:image/png;base64," + bytes }),
    h("span", { class: "tag", "aria-hidden": "true" }, what));
  const slider = h("input", { type: "range", min: 0, max: 1000, value: 500, "aria-label": "Original shown of " + name });
  const frame = h("div", { class: "frame slides", style: `max-width:${crop[0]}px` }, side("before", before), side("after", after),
    h("span", { class: "grip", "aria-hidden": "true" }), slider);
  const show = () => {
    frame.style.setProperty("--cut", slider.value / 10 + "%");
    slider.setAttribute("aria-valuetext", Math.round(slider.value / 10) + " % of the original");
  };
  slider.addEventListener("input", show);
  show();
  const cropped = width !== crop[0] || height !== crop[1];
  return h("figure", { class: "pair", style: `width:${crop[0]}px` }, frame,
    h("figcaption", { title: cropped ? `${crop[0]} × ${crop[1]} of its pixels, from ${crop[2]}, ${crop[3]} on` : null },
      h("span", { class: "name" }, name), " ",
      h("span", { class: "quiet" }, `${width} × ${height}${cropped ? ", 1:1 detail" : ""}`)));
}

const onDevice = (stage, async) => async && DEVICE_STAGES.includes(stage);
const isCopy = stage => stage.startsWith("copy");

function times() {
  const workers = plural(data.workers, "worker"), stages = STAGES.filter(stage => !isCopy(stage) || data.async);
  const limit = record.limit && ["The run was limited by ", h("strong", {}, figure("limit")),
    record.next_limit && ["; next would be ", figure("next_limit")], ". "];
  const line = stage => h("tr", {}, h("th", { scope: "row" }, h("i", { class: "key " + stage }), label(stage)),
    [percent("busy." + stage), [figure("ms." + stage, 2, 0.001), " s"],
      shown(record.done ? record.ms[stage] / record.done : 0, 3) + " ms"].map(cell => h("td", { class: "number" }, cell)));
  const group = text => h("tr", { class: "group" }, h("th", { scope: "rowgroup", colspan: 4 }, text));
  const ofWorkers = stages.filter(stage => !onDevice(stage, data.async));
  const head = table(["stage", "share", "total", "per image"], [], [1, 2, 3], { class: "narrow" });
  head.append(h("tbody", {}, group("Share of the time of " + workers), ofWorkers.map(line),
    h("tr", {}, h("th", { scope: "row" }, h("i", { class: "key waiting" }), "no stage"),
      h("td", { class: "number" }, percent("waiting")), h("td"), h("td"))));
  if (data.async)
    head.append(h("tbody", {}, group(`Share of the run during which ${data.device} did this, on ${plural(data.streams, "stream")}${
      data.devices > 1 ? " each" : ""}`), DEVICE_STAGES.map(line)));
  return section("time", "Where the time went",
    lede(limit, "Before the first stage of an image, ", figure("start_seconds", 2), ` s were spent in starting. The bar divides the \
wall-clock time of ${workers}${data.async ? `; copies and kernels ran on ${data.device} at the same time` : ""}. A stage includes its \
waits for the disk and for a free core; `, h("em", {}, "no stage"), " is a worker with nothing to do. CPU utilisation (above) is a \
different figure: the CPU time of this process as a share of the time of " + plural(record.cores, "core") + "."),
    h("div", { class: "stack", "aria-hidden": "true" }, ofWorkers.map(stage => h("i", { class: stage, style: "width:" + share(record.busy[stage]) }))),
    scroll("Time per stage", head),
    record.overlap && lede("Two of copy in, kernel and copy out were busy at once for ", percent("overlap.two"),
      " of the run, all three for ", percent("overlap.three"), "."));
}

// --- single images ---------------------------------------------------------------------------------
// Bars of equal width on a logarithmic scale: [from, to, count].
function bars(bins, most) {
  const first = bins[0][0], last = bins[bins.length - 1][0], start = bin => bins[0][1] * 2 ** ((bin - first) / 16);
  let merge = 1;
  while ((last - first) / merge + 1 > most) merge *= 2;
  const list = Array.from({ length: Math.floor((last - first) / merge) + 1 },
    (_, i) => [start(first + i * merge), start(first + (i + 1) * merge), 0]);
  for (const [bin, , count] of bins) list[Math.floor((bin - first) / merge)][2] += count;
  return list.map(([from, to, count]) => [describeTime(from / 1e3), describeTime(to / 1e3), count]);
}

function histogram() {
  const list = bars(data.times.bins, 24), highest = Math.max(...list.map(bar => bar[2]));
  const every = list.length > 12 ? 6 : list.length > 4 ? 3 : 1;
  return [h("div", { class: "histogram", "aria-hidden": "true" }, list.map(([from, to, count], i) =>
    h("div", { title: `${shown(count, 0)} images, ${from} to ${to}` }, h("i", { style: "height:" + share(count / highest) }),
      h("span", {}, i % every === 0 && 5 * i <= 4 * list.length && from)))),
  details("The same as a table: images by time", table(["time", "images"],
    list.map(([from, to, count]) => [`${from} to ${to}`, shown(count, 0)]), [1], { class: "narrow" }))];
}

function images() {
  const { median, most, slowest, bins } = data.times, timed = bins.reduce((sum, bin) => sum + bin[2], 0);
  const slow = slowest.map(({ name, width, height, total, ns }) => {
    const stage = ns.indexOf(Math.max(...ns)), size = `${width} × ${height}`;
    return h("tr", {}, h("td", { class: "name" }, name, h("span", { class: "quiet small-screen" }, size)),
      h("td", { class: "number large-screen" }, size), h("td", { class: "number" }, describeTime(total / 1e3)),
      h("td", {}, `${label(STAGES[stage])}, ${Math.round(100 * ns[stage] / total)}\u00a0%`));
  });
  const list = table(["image", "size", "time", "longest stage"], [], [1, 2]);
  list.querySelectorAll("th")[1].classList.add("large-screen");
  list.querySelector("tbody").append(...slow);
  return section("images", "Single images",
    lede("Half of the images took at most ", h("strong", {}, describeTime(median / 1e3)), ", 95 % at most ",
      h("strong", {}, describeTime(most / 1e3)), `, the slowest ${describeTime(slowest[0].total / 1e3)}: the sum of its stages, without \
waiting between them. The time of a group on a device is divided among its images by size.`,
      timed >= FEWEST_TIMED && " The chart has the number of images by time, on a logarithmic scale."),
    timed >= FEWEST_TIMED && histogram(), h("h3", {}, "The slowest"), scroll("The slowest images", list));
}

// --- streams ---------------------------------------------------------------------------------------
function streams() {
  const async = record.rows[0].streams !== null, unit = async ? "streams" : "workers", alone = record.stage === "device";
  const waits = !(alone && async), copied = record.copy !== null, highest = Math.max(...record.rows.map(row => row.mpix_per_s));
  const stages = STAGES.filter(stage => stage !== "write" && (!isCopy(stage) || async) && (!alone || DEVICE_STAGES.includes(stage)));
  const cells = record.rows.map((row, i) => {
    const at = key => `rows.${i}.${key}`;
    return [figure(at(unit), 0), rate(at("images_per_s"), row.images_per_s), rate(at("mpix_per_s"), row.mpix_per_s),
      [figure(at("speed_up"), 2), "×"], ...(copied ? [percent(at("share_of_copy"))] : []),
      ...(async ? [percent(at("overlap.two")), percent(at("overlap.three"))] : []),
      ...stages.map(stage => percent(at("busy." + stage))), ...(waits ? [percent(at("waiting"))] : [])];
  });
  const heads = [unit, "images/s", "Mpix/s", "speed-up", ...(copied ? ["of two-way copy"] : []),
    ...(async ? ["2 at once", "3 at once"] : []), ...stages.map(label), ...(waits ? ["no stage"] : [])];
  return section("streams", "Throughput by number of " + unit,
    h("div", { class: "bars", "aria-hidden": "true" }, record.rows.map(row => [
      h("span", { class: "bar-name" }, plural(row[unit], unit.slice(0, -1))),
      h("span", { class: "bar" }, h("i", { style: "width:" + share(row.mpix_per_s / highest) })),
      h("span", { class: "bar-value" }, h("b", {}, shown(row.mpix_per_s, row.mpix_per_s < 100 ? 1 : 0)), " ", h("span", { class: "quiet" }, "Mpix/s"))])),
    copied && record.copy.both_gb_per_s > 0 && lede("Measured in the same run with large copies of pinned memory: ", figure("copy.in_gb_per_s", 1),
      " GB/s in, ", figure("copy.out_gb_per_s", 1), " GB/s out, ", figure("copy.both_gb_per_s", 1), " GB/s both ways at once."),
    record.small && record.small.images > 0 && lede(`The same images copied in and out, ${shown(record.small.images, 0)} of them: one by one `,
      figure("small.one_by_one_ms", 2), ` ms, over ${record.small.streams} streams `, figure("small.streams_ms", 2), " ms, as one group ",
      figure("small.group_ms", 2), " ms."),
    lede(async && "Copy in, kernel, copy out: share of the time in which a stream was in this stage; 2 at once, 3 at once: share in which two \
or all three of them overlapped.", waits && " Stages of workers, and no stage (a worker with nothing to do): shares of the workers' time."),
    scroll(`Throughput by number of ${unit}, all figures`, table(heads, cells, heads.map((_, i) => i))));
}

// --- kernels ---------------------------------------------------------------------------------------
function panel(one, prefix, place, title, number) {
  const placeOf = row => (row.threads > 1 ? row.where + "_all" : row.where);
  const rows = one.rows.map((row, i) => ({ ...row, key: `${prefix}rows.${i}.` })).filter(row => placeOf(row) === place);
  const measured = rows.filter(row => !row.skipped), ofCopy = rows.find(row => row.kind === "copy"), old = one.compared_with;
  if (measured.length === 0) return null;
  const copy = ofCopy ? ofCopy.gb_per_s : one[place + "_copy_gb_per_s"], highest = Math.max(copy, ...measured.map(row => row.gb_per_s));
  const flops = measured.some(row => row.tflop_per_s > 0), digits = row => (row.gb_per_s < 100 ? 2 : 0);
  const heads = ["kernel", "GB/s", ...(flops ? ["TFLOP/s"] : []), "ms", "fastest", "slowest", "runs",
    ...(old ? ["ms before", "speed-up"] : []), "description"];
  const cells = rows.map(row => [h("code", {}, row.name), row.skipped ? null : shown(row.gb_per_s, digits(row)),
    ...[...(flops ? [["tflop_per_s", 4]] : []), ["ms", 3], ["ms_min", 3], ["ms_max", 3], ["runs", 0]]
      .map(([name, decimals]) => (row.skipped ? null : figure(row.key + name, decimals))),
    ...(old ? [row.change && figure(row.key + "old_ms", 3), row.change && [figure(row.key + "speed_up", 2), "×"]] : []), row.skipped || row.summary]);
  return section("panel-" + number, title,
    lede("Bytes read and written per second, from the simplest kernel to the fastest. The share is of the speed of ",
      ofCopy ? "the copy in this table" : `a copy of the same bytes, ${shown(copy, 1)} GB/s`,
      ", the dashed line at 100 %; the step (×) is over the variant before. Medians, with cold caches.",
      old && ` Compared with ${old}: a kernel is called faster or slower only if the middle halves of its runs, then and now, do not \
overlap and the medians are at least 2 % apart.`),
    h("div", { class: "bars ladder", "aria-hidden": "true" }, measured.map(row => [
      h("span", { class: "bar-name " + row.kind, title: row.summary }, row.name),
      h("span", { class: "bar" }, h("i", { class: row.kind, style: "width:" + share(row.gb_per_s / highest) }),
        h("i", { class: "limit", style: "left:" + share(copy / highest) })),
      h("span", { class: "bar-value" }, h("b", {}, figure(row.key + "gb_per_s", digits(row))), " ", h("span", { class: "quiet" }, "GB/s",
        row.kind !== "copy" && [", ", figure(row.key + "share_of_copy", 0, 100), " %"], row.step > 0 && [", ", figure(row.key + "step", 2), "×"]),
      row.change && [" ", h("span", { class: "change " + row.change }, row.change)])])),
    details("Description of each kernel, and the spread of its runs",
      scroll(title + ", all figures", table(heads, cells, heads.map((_, i) => i).filter(i => i > 0 && i < heads.length - 1)))));
}

function kernels() {
  const all = Array.isArray(record) ? record : [record], sizes = data.facts.filter(([name]) => name === "images").map(fact => fact[1]);
  return all.flatMap((one, i) => ["cpu", "cpu_all", "cuda"].map((place, p) => panel(one, all.length > 1 ? i + "." : "", place,
    one[place] + (all.length > 1 ? ", " + sizes[i].replace(" ", one.images === 1 ? " image " : " images ") : ""), 3 * i + p)));
}

// --- settings --------------------------------------------------------------------------------------
function settings() {
  const filter = ({ name, width, height, scale, offset, magnitude, coef }) => h("figure", { class: "filter" },
    h("table", { class: "matrix", "aria-label": "Coefficients of " + name }, h("tbody", {}, Array.from({ length: height }, (_, y) =>
      h("tr", {}, coef.slice(y * width, (y + 1) * width).map(value => h("td", {}, String(value))))))),
    h("figcaption", {}, h("b", {}, name), h("br"), h("span", { class: "quiet" }, `${width} × ${height}${magnitude
      ? ", magnitude with the transpose" : ""}, divided by ${scale}${offset ? `, ${offset < 0 ? "minus" : "plus"} ${Math.abs(offset)}` : ""}`)));
  return section("settings", "Settings and machine", h("div", { class: "done" },
    h("dl", {}, data.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("div", { class: "filters" }, data.filters.map(filter))));
}

// --- timelines -------------------------------------------------------------------------------------
// Draws each row on a canvas: slice by slice where the page has them, else each bin's shares. Timelines
// of one page share their scale, and zoom together.
const charts = [];

// [{start, end, stage, name}], in µs.
function unpack({ slices, names }) {
  const list = [];
  let start = 0;
  for (let i = 0; i < slices.length; i += 4) {
    start += slices[i];
    list.push({ start, end: start + slices[i + 1], stage: STAGES[slices[i + 2]], name: names[slices[i + 3]] });
  }
  return list;
}

// The share of the whole timeline that the row spent in each stage.
function rowShares(row, span) {
  return STAGES.map((stage, s) => (row.slices
    ? row.slices.reduce((sum, slice) => sum + (slice.stage === stage ? slice.end - slice.start : 0), 0) / span
    : row.bins.reduce((sum, value, i) => sum + (i % STAGES.length === s ? value / 100 : 0), 0) * STAGES.length / row.bins.length));
}

const streamOf = name => (name.match(/^.*stream \d+/) || [name])[0];

class Chart {
  constructor({ title, span, rows, hidden }) {
    this.span = span;
    this.title = title;
    this.axis = h("div", { class: "axis", "aria-hidden": "true" });
    this.brush = h("div", { class: "brush", hidden: "" });
    this.rows = rows.map(row => ({ name: row.name, bins: row.bins, slices: row.slices && unpack(row),
      canvas: h("canvas", { class: "row", "aria-hidden": "true" }) }));
    const first = i => i > 0 && streamOf(rows[i].name) !== streamOf(rows[i - 1].name) && rows[i - 1].name.includes("stream");
    this.box = h("div", { class: "timeline" + (rows.length > 12 ? " dense" : "") }, this.rows.map(({ name, canvas }, i) => {
      canvas.classList.toggle("apart", first(i)); // from the rows of the stream before
      return [h("span", { class: "row-name" + (first(i) ? " apart" : "") }, name), canvas];
    }), h("span"), this.axis, this.brush);
    const coarse = this.rows.filter(row => !row.slices).length;
    this.panel = h("div", { class: "timeline-panel" }, title && h("h3", {}, title), this.box,
      coarse > 0 && h("p", { class: "quiet small" }, `${coarse} of the rows show only shares, because they have too many slices for a page.`),
      hidden > 0 && h("p", { class: "quiet small" }, `${hidden} more rows are in `, h("code", {}, "--trace FILE"), "."),
      details("The same as a table: each row's share of the time in each stage",
        scroll((title ? title + ": " : "") + "shares of time, by row", table(["row", ...STAGES.map(label)],
          this.rows.map(row => [row.name, ...rowShares(row, span).map(part => shown(100 * part, 1) + " %")]), STAGES.map((_, i) => i + 1)))));
    this.addTools();
    this.addPointer();
  }

  addTools() {
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "group");
    this.box.setAttribute("aria-label", `${this.title ? this.title + ": " : ""}timeline of ${this.rows.length} rows. Plus and minus zoom, \
left and right arrows move, Home shows everything. The same figures are in the table below.`);
    const actions = [["+", "Zoom in", () => zoom(0.5)], ["−", "Zoom out", () => zoom(2)],
      ["←", "Earlier", () => move(-0.4)], ["→", "Later", () => move(0.4)], ["All", "Show all of the time", () => show(0, this.span)]];
    this.output = h("output", {}, "Drag over the timeline to zoom in; point at it for details.");
    this.box.before(h("div", { class: "tools" }, actions.map(([text, title, action]) => {
      const button = h("button", { type: "button", "aria-label": title, title }, text);
      button.addEventListener("click", action);
      return button;
    }), this.output));
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
    tip.textContent = row.name + ": " + (found ? label(found.stage) + ", " + describeTime(found.end - found.start)
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
        const count = row.bins.length / STAGES.length, wide = scale * this.span / count, tall = row.canvas.height / 100;
        for (let b = 0; b < count; b++) {
          let top = 0;
          STAGES.forEach((stage, s) => {
            const value = row.bins[b * STAGES.length + s];
            top += value;
            context.fillStyle = colours.getPropertyValue("--" + stage);
            if (value) context.fillRect(b * wide - view.from * scale, (100 - top) * tall, wide + 0.5, value * tall);
          });
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
      this.axis.append(h("span", { style: "left:" + share((at - view.from) / (view.to - view.from)) }, at ? describeTime(at) : "0"));
    }
  }
}

const view = { from: 0, to: 1 }, tip = h("div", { class: "tip", hidden: "", "aria-hidden": "true" });

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

function timelines() {
  charts.push(...data.timelines.map(timeline => new Chart(timeline)));
  const coarse = charts.some(chart => chart.rows.some(row => !row.slices));
  const stages = STAGES.filter(stage => charts.some(chart => chart.rows.some(row => rowShares(row, chart.span)[STAGES.indexOf(stage)] > 0)));
  return section("timeline", "Timeline",
    lede(`Time runs from left to right: ${describeTime(charts[0].span)} from the first stage to the last.`,
      coarse && " Height is the share of time in a stage; empty parts were waiting."),
    h("p", { class: "legend" }, stages.map(stage => h("span", {}, h("i", { class: "key " + stage }), label(stage)))),
    charts.map(chart => chart.panel));
}

// --- the page --------------------------------------------------------------------------------------
function footer() {
  const link = h("a", { download: "conv.json", href: "#" }, "Save its figures as JSON");
  link.addEventListener("click", () => {
    link.href = "data:application/json;charset=utf-8," + encodeURIComponent(JSON.stringify(record));
  });
  return h("footer", {}, `Written by conv ${data.version}${data.when ? ", " + data.when : ""}. This page is self-contained; `, link, ".");
}

// Of a run with images to look at, the details are folded.
function more() {
  const parts = [data.timelines.length > 0 && timelines(), data.times && data.times.bins.length > 0 && data.times.slowest.length > 1 && images()];
  if (!data.pairs.length || !parts.some(part => part)) return parts;
  const folded = h("details", { class: "more" }, h("summary", {}, "Timeline and single images"), parts);
  folded.addEventListener("toggle", () => { if (charts.length) show(view.from, view.to); });
  return folded;
}

document.title = data.title + " · conv";
document.querySelector("main").replaceChildren(...[
  h("header", {}, h("p", { class: "kind" }, data.kind), h("h1", {}, data.title),
    h("p", { class: "command" }, h("code", {}, data.command))),
  data.note && h("p", { class: "note" }, data.note),
  data.workers && headline(),
  data.failures && record.failed > 0 && failures(),
  data.pairs.length > 0 && section("pairs", "Before and after", h("div", { class: "pairs" }, data.pairs.map(pair))),
  data.workers && times(),
  record.type === "bench-streams" && streams(),
  more(),
  !data.workers && record.type !== "bench-streams" && kernels(),
  settings(), footer()].flat(Infinity).filter(part => part));
if (charts.length) {
  document.body.append(tip);
  show(0, charts[0].span);
  addEventListener("resize", () => show(view.from, view.to));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(view.from, view.to));
}
