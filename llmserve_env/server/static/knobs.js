// The knobs as form controls, made from the server's action schema. They also show what an agent does.
import { label } from "./format.js";

const SLIDER_STEPS = 18;

// A field that may be null names its type among its alternatives.
const typeOf = (field) => field.type ?? field.anyOf?.find((one) => one.type !== "null")?.type;
const isKnob = (field) => field.enum || ["integer", "number", "boolean"].includes(typeOf(field));

export const knobFields = (schema) => ({
  properties: Object.fromEntries(Object.entries(schema.properties).filter(([, field]) => isKnob(field))),
});

export class Knobs {
  // `onTyped` gets what is wrong with a typed value, or null.
  constructor(parent, schema, onTyped) {
    Object.assign(this, { inputs: {}, onTyped });
    for (const [name, field] of Object.entries(schema.properties)) this.add(parent, name, field);
  }

  add(parent, name, field) {
    const box = document.createElement("div");
    box.className = "knob";
    box.dataset.knob = name;
    const id = "knob-" + name;
    const note = `<small id="${id}-note">${field.description.split(":")[0]}</small>`;
    const described = `aria-describedby="${id}-note"`;
    const title = `<label for="${id}">${label(name)}</label>`;
    if (field.enum) {
      const options = field.enum.map((value) => `<option>${value}</option>`).join("");
      box.innerHTML = `${title}<select id="${id}" ${described}>${options}</select>${note}`;
    } else if (typeOf(field) === "boolean") {
      box.innerHTML = `${title}<input type="checkbox" class="switch" role="switch" id="${id}" ${described}>${note}`;
    } else {
      const step = typeOf(field) === "integer" ? 1 : (field.maximum - field.minimum) / SLIDER_STEPS;
      const range = `min="${field.minimum}" max="${field.maximum}" step="${step}"`;
      box.innerHTML = `${title}<input type="number" id="${id}" step="any" ${described}>
        <input type="range" id="${id}-range" ${range} aria-label="${label(name)}, slider">${note}`;
    }
    parent.append(box);
    this.inputs[name] = { box, field, input: box.querySelector("#" + id), slider: box.querySelector("input[type=range]") };
    this.listen(name, this.inputs[name]);
    this.set(name, field.default);
  }

  listen(name, { input, slider }) {
    if (!slider) return;
    slider.addEventListener("input", () => this.set(name, Number(slider.value)));
    input.addEventListener("input", () => { slider.value = input.value; });
    input.addEventListener("change", () => this.check(name));
  }

  // A typed value that is not allowed is refused with the range that is, and the knob keeps its value.
  check(name) {
    const { input, field, kept } = this.inputs[name];
    const value = input.value === "" ? null : Number(input.value);
    const isAllowed = value === null ? field.default === null
      : value >= field.minimum && value <= field.maximum && (typeOf(field) !== "integer" || Number.isInteger(value));
    this.set(name, isAllowed ? value : kept);
    const allowed = field.description.split(": ")[1].split(";")[0];
    this.onTyped(isAllowed ? null : new Error(`${label(name)} must be ${allowed}; got ${value ?? "nothing"}. It stays ${kept === null ? "as it was" : `at ${kept}`}.`));
  }

  set(name, value) {
    const { input, slider } = this.inputs[name];
    this.inputs[name].kept = value;
    if (input.type === "checkbox") input.checked = value;
    else input.value = typeof value === "number" ? String(Math.round(value * 1000) / 1000) : (value ?? "");
    if (slider && value !== null) slider.value = value;
  }

  show(action) {
    for (const [name, value] of Object.entries(action)) if (this.inputs[name]) this.set(name, value);
  }

  showDefaults() {
    for (const [name, { field }] of Object.entries(this.inputs)) this.set(name, field.default);
  }

  // What the form says, unchecked: the server knows the ranges and says what is wrong.
  action() {
    const chosen = {};
    for (const [name, { input, box, field }] of Object.entries(this.inputs)) {
      if (box.hidden || box.classList.contains("masked")) continue;
      if (input.type === "checkbox") chosen[name] = input.checked;
      else if (field.enum) chosen[name] = input.value;
      else chosen[name] = input.value === "" ? null : Number(input.value);
    }
    return chosen;
  }

  setTask(task, isYours) {
    for (const [name, { box, input, slider, field }] of Object.entries(this.inputs)) {
      const isMasked = !task.active_knobs.includes(name);
      // An optional knob that this task does not offer is not shown at all.
      box.hidden = isMasked && !task.masked_knobs.includes(name);
      box.classList.toggle("masked", isMasked);
      box.querySelector("small").textContent =
        field.description.split(":")[0] + (isMasked ? " (stays at its default in this task)" : "");
      input.disabled = isMasked || !isYours;
      if (slider) slider.disabled = input.disabled;
      if (isMasked) this.set(name, field.default);
    }
  }
}
