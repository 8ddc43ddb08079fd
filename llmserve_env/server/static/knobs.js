// The knobs as form controls, made from the server's action schema.
const SLIDER_STEPS = 18;

// "kv_budget_fraction" -> "KV budget fraction"
function labelOf(name) {
  const words = name.replace(/_/g, " ");
  return words.startsWith("kv ") ? "KV" + words.slice(2) : words[0].toUpperCase() + words.slice(1);
}

// A field that may be null names its type among its alternatives.
function typeOf(field) {
  return field.type ?? field.anyOf?.find((one) => one.type !== "null")?.type;
}

export class Knobs {
  constructor(parent, schema, onChange) {
    this.inputs = {};
    for (const [name, field] of Object.entries(schema.properties)) {
      if (field.enum || typeOf(field) !== "object") this.add(parent, name, field, onChange);
    }
  }

  add(parent, name, field, onChange) {
    const box = document.createElement("div");
    box.className = "knob";
    box.dataset.knob = name;
    const id = "knob-" + name;
    const label = labelOf(name);
    const [meaning] = field.description.split(":");
    const note = `<small id="${id}-note">${meaning}</small>`;
    if (field.enum) {
      const options = field.enum.map((value) => `<option>${value}</option>`).join("");
      box.innerHTML = `<label for="${id}">${label}</label><select id="${id}" aria-describedby="${id}-note">${options}</select>${note}`;
    } else if (typeOf(field) === "boolean") {
      box.innerHTML = `<label for="${id}">${label}</label><input type="checkbox" id="${id}" aria-describedby="${id}-note">${note}`;
    } else {
      const step = typeOf(field) === "integer" ? 1 : (field.maximum - field.minimum) / SLIDER_STEPS;
      const range = `min="${field.minimum}" max="${field.maximum}" step="${step}"`;
      box.innerHTML = `<label for="${id}">${label}</label>
        <div class="row"><input type="range" id="${id}-range" ${range} aria-label="${label}, slider">
        <input type="number" id="${id}" step="any" aria-describedby="${id}-note"></div>${note}`;
    }
    parent.append(box);
    const input = box.querySelector("#" + id);
    const slider = box.querySelector("input[type=range]");
    this.inputs[name] = { box, input, slider, field };
    if (slider) {
      slider.addEventListener("input", () => { input.value = slider.value; onChange(); });
      input.addEventListener("input", () => { slider.value = input.value; onChange(); });
    } else {
      input.addEventListener("change", onChange);
    }
    this.set(name, field.default);
  }

  set(name, value) {
    const { input, slider } = this.inputs[name];
    if (input.type === "checkbox") input.checked = value;
    else input.value = typeof value === "number" ? String(Math.round(value * 1000) / 1000) : (value ?? "");
    if (slider && value !== null) slider.value = value;
  }

  show(action) {
    for (const [name, value] of Object.entries(action)) if (this.inputs[name]) this.set(name, value);
  }

  // What the form says, unchecked: the server knows the ranges and says what is wrong.
  action() {
    const chosen = {};
    for (const [name, { input, box, field }] of Object.entries(this.inputs)) {
      if (box.classList.contains("masked")) continue;
      if (input.type === "checkbox") chosen[name] = input.checked;
      else if (field.enum) chosen[name] = input.value;
      else chosen[name] = input.value === "" ? null : Number(input.value);
    }
    return chosen;
  }

  setTask(task, isAgent) {
    for (const [name, { box, input, slider, field }] of Object.entries(this.inputs)) {
      const isMasked = !task.active_knobs.includes(name);
      // An optional knob that this task does not offer is not shown at all.
      box.hidden = isMasked && !task.masked_knobs.includes(name);
      box.classList.toggle("masked", isMasked);
      box.querySelector("small").textContent =
        field.description.split(":")[0] + (isMasked ? " (stays at its default in this task)" : "");
      input.disabled = isMasked || isAgent;
      if (slider) slider.disabled = input.disabled;
      if (isMasked) this.set(name, field.default);
    }
  }
}
