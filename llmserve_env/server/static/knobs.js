// The six knobs as form controls, made from the server's own action schema.
const SPEC = {
  batch_cap: { label: "Batch cap", step: 1 },
  kv_budget_fraction: { label: "KV budget", step: 0.05 },
  speculation_depth: { label: "Speculation depth", step: 1 },
  quantization_tier: { label: "Quantization" },
  prefill_decode_split: { label: "Prefill/decode split" },
  priority_routing: { label: "Priority routing" },
};

export class Knobs {
  constructor(parent, schema, onChange) {
    this.inputs = {};
    for (const [name, spec] of Object.entries(SPEC)) this.add(parent, name, spec, schema.properties[name], onChange);
  }

  add(parent, name, spec, field, onChange) {
    const box = document.createElement("div");
    box.className = "knob";
    box.dataset.knob = name;
    const id = "knob-" + name;
    const [meaning] = field.description.split(":");
    const note = `<small id="${id}-note">${meaning}</small>`;
    if (field.enum) {
      const options = field.enum.map((value) => `<option>${value}</option>`).join("");
      box.innerHTML = `<label for="${id}">${spec.label}</label><select id="${id}" aria-describedby="${id}-note">${options}</select>${note}`;
    } else if (field.type === "boolean") {
      box.innerHTML = `<label for="${id}">${spec.label}</label><input type="checkbox" id="${id}" aria-describedby="${id}-note">${note}`;
    } else {
      const range = `min="${field.minimum}" max="${field.maximum}" step="${spec.step}"`;
      box.innerHTML = `<label for="${id}">${spec.label}</label>
        <div class="row"><input type="range" id="${id}-range" ${range} aria-label="${spec.label}, slider">
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
    else input.value = typeof value === "number" ? String(Math.round(value * 1000) / 1000) : value;
    if (slider) slider.value = value;
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
      const isMasked = task.masked_knobs.includes(name);
      box.classList.toggle("masked", isMasked);
      box.querySelector("small").textContent =
        field.description.split(":")[0] + (isMasked ? " (stays at its default in this task)" : "");
      input.disabled = isMasked || isAgent;
      if (slider) slider.disabled = input.disabled;
      if (isMasked) this.set(name, field.default);
    }
  }
}
