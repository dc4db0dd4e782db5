// SPDX-License-Identifier: MIT
// Runs the script of a page of --html without a browser and prints what it shows, as HTML: the few
// parts of a document that the script uses, and nothing that is drawn.
//   node render_page.js PAGE
"use strict";
const VOID = ["br", "img", "input"];
const escaped = text => String(text).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);

class Node {
  constructor(tag) {
    Object.assign(this, { tag, attributes: {}, children: [], style: { setProperty: () => {} } });
    this.classList = { add: name => this.toggle(name, true), toggle: (name, on) => this.toggle(name, on) };
  }
  toggle(name, on) {
    const names = (this.attributes.class || "").split(" ").filter(one => one && one !== name);
    const all = on ? [...names, name] : names;
    if (all.length) this.attributes.class = all.join(" ");
  }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  get value() { return this.attributes.value; }
  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Node) node.parent = this;
      this.children.push(node);
    }
  }
  before(...nodes) {
    const { children } = this.parent;
    children.splice(children.indexOf(this), 0, ...nodes);
  }
  replaceChildren(...nodes) {
    this.children = [];
    this.append(...nodes);
  }
  querySelectorAll(tag) {
    return this.children.flatMap(node => (node instanceof Node ? [...(node.tag === tag ? [node] : []), ...node.querySelectorAll(tag)] : []));
  }
  querySelector(tag) { return this.querySelectorAll(tag)[0]; }
  addEventListener() {}
  getBoundingClientRect() { return { left: 0, top: 0, width: 1000, height: 32 }; }
  get clientWidth() { return 1000; }
  getContext() { return { fillRect: () => {} }; }
  html() {
    const attributes = Object.entries(this.attributes).map(([name, value]) => ` ${name}="${escaped(value)}"`).join("");
    const inside = this.children.map(node => (node instanceof Node ? node.html() : escaped(node))).join("");
    return `<${this.tag}${attributes}>` + (VOID.includes(this.tag) ? "" : `${inside}</${this.tag}>`);
  }
}

const source = require("fs").readFileSync(process.argv[2], "utf8");
const part = (start, end) => source.slice(source.lastIndexOf(start) + start.length, source.lastIndexOf(end));
const main = new Node("main"), body = new Node("body");
global.document = {
  createElement: tag => new Node(tag), querySelector: () => main, documentElement: main, body,
  getElementById: () => ({ textContent: part('<script type="application/json" id="data">', "</script>\n<script>") }),
};
global.getComputedStyle = () => ({ getPropertyValue: () => "" });
global.matchMedia = () => new Node("");
global.addEventListener = () => {};
global.devicePixelRatio = 1;
new Function(part("\n<script>\n", "</script>\n</body>"))();
console.log(`<!doctype html><html lang="en"><head><title>${escaped(document.title)}</title></head><body>${main.html()}</body></html>`);
