// Lets the search of the theme run where browsers refuse workers: on pages that are read from disk (file://). It gives the
// script of the worker a window of its own, an invisible frame, and passes messages between the two.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.onerror = this.onmessage = null;
      this.addEventListener("message", event => this.onmessage && this.onmessage(event));
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = this.inner = frame.contentWindow;
      inner.postMessage = data => setTimeout(() => this.dispatchEvent(new MessageEvent("message", {data})));
      const load = source => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        script.src = source;
        script.onload = done;
        script.onerror = failed;
        inner.document.body.appendChild(script);
      });
      inner.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      this.loaded = load(new URL(url, location.href).href);
    }
    postMessage(data) {
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", {data})));
    }
    terminate() {
      this.inner.frameElement.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
