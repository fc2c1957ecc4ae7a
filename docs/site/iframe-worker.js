// Browsers start no worker from a page on disk. There, this class takes the place of Worker and runs
// the theme's search in a hidden frame.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.body.appendChild(document.createElement("iframe"));
    this.frame.hidden = true;
    const inside = this.frame.contentWindow;
    this.ready = new Promise((resolve) => {
      inside.postMessage = (data) => {
        this.dispatchEvent(new MessageEvent("message", { data }));
      };
      inside.importScripts = async (...urls) => {
        for (const url of urls) await FrameWorker.load(inside.document, url);
      };
      FrameWorker.load(inside.document, url).then(resolve);
    });
  }

  static load(page, url) {
    return new Promise((resolve, reject) => {
      const script = page.createElement("script");
      Object.assign(script, { src: url, onload: resolve, onerror: reject });
      page.body.appendChild(script);
    });
  }

  postMessage(data) {
    this.ready.then(() => {
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    });
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
