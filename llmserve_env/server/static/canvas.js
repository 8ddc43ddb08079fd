// A canvas that is as sharp as the screen, redraws when its size or the colours change, and reports the pointer.
import { colours } from "./theme.js";

export class Canvas {
  constructor(draw, onPoint = null) {
    this.element = document.createElement("canvas");
    this.element.setAttribute("role", "img");
    this.draw = draw;
    new ResizeObserver(() => this.redraw()).observe(this.element);
    document.addEventListener("themechange", () => this.redraw());
    if (onPoint) {
      this.element.addEventListener("pointermove", (event) => {
        const box = this.element.getBoundingClientRect();
        onPoint(event.clientX - box.left, box.width);
      });
      this.element.addEventListener("pointerleave", () => onPoint(null, 0));
    }
  }

  set label(text) {
    this.element.setAttribute("aria-label", text);
  }

  redraw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width || !height) return;
    const scale = window.devicePixelRatio || 1;
    const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
    if (this.element.width !== wide || this.element.height !== high) {
      this.element.width = wide;
      this.element.height = high;
    }
    const pen = this.element.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.draw(pen, width, height, colours());
  }
}
