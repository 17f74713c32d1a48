// The choices for one video: model, strength, part, codec.

import { clock, duration, h, secondsOf, setText } from "./dom.js";

const CODECS = {
  auto: "Automatic, as the original allows", h264: "H.264: plays everywhere", hevc: "HEVC: smaller, keeps 10 bit",
  vp9: "VP9: for the web", av1: "AV1: smallest, slow", prores: "ProRes: for editing", ffv1: "FFV1: lossless, very large",
};
const DEFAULTS = { model: "auto", codec: "auto", strength: 1, start: null, end: null };

export function rememberedOptions() {
  try {
    const { model, codec, strength } = { ...DEFAULTS, ...JSON.parse(localStorage.getItem("options") ?? "{}") };
    return { model, codec, strength };
  } catch {
    return { model: "auto", codec: "auto", strength: 1 };
  }
}

function remember(options) {
  try {
    localStorage.setItem("options", JSON.stringify(options));
  } catch {
    // a browser that keeps nothing starts with the defaults again
  }
}

/** Seconds that a model needs for a part of a video here; null before anything was measured. */
export function estimate(model, facts, options) {
  if (!model?.pixels_per_second || !facts?.frames) return null;
  const end = Math.min(options.end ?? facts.seconds, facts.seconds);
  const share = facts.seconds ? Math.max(0, end - (options.start ?? 0)) / facts.seconds : 1;
  return (facts.frames * share * facts.width * facts.height) / model.pixels_per_second;
}

/** A form; `read()` gives the options or null where a field is wrong. */
export function optionsForm(job, about) {
  const options = { ...DEFAULTS, ...job.options };
  const facts = job.facts;
  const changed = () => refresh();
  let known = about.models;
  const models = about.models.map((model) => {
    const time = h("span", { class: "model-time" });
    const input = h("input", { type: "radio", name: "model", value: model.name, checked: model.name === options.model, onchange: changed });
    input.defaultChecked = model.name === options.model;
    const bars = model.gain ? h("span", { class: "gain", title: "PSNR over the blurry frames, on clips of REDS" }, `+${model.gain.toFixed(1)} dB`) : null;
    return { model, time, input, element: h("label", { class: "model" }, input,
      h("span", { class: "model-name" }, model.title, bars), h("span", { class: "model-about" }, model.about), time) };
  });
  const strengthText = h("output", { class: "value" });
  const strength = h("input", { type: "range", id: "strength", min: "0", max: "100", step: "5", value: String(Math.round(options.strength * 100)), oninput: changed });
  const part = options.start !== null || options.end !== null;
  const [whole, some] = [false, true].map((value) => {
    const input = h("input", { type: "radio", name: "part", value: value ? "part" : "whole", onchange: changed });
    input.checked = value === part;
    return input;
  });
  const [from, to] = [options.start, options.end].map((value, place) => h("input", {
    type: "text", inputmode: "decimal", class: "at", autocomplete: "off", "aria-label": place ? "Part ends at" : "Part begins at",
    value: clock(value ?? (place ? facts?.seconds ?? 0 : 0), 1), oninput: () => { some.checked = true; changed(); },
  }));
  const partError = h("p", { class: "error", role: "alert", hidden: true });
  const codec = h("select", { id: "codec" }, about.codecs.filter((each) => CODECS[each] || each === options.codec).map((each) => h("option", { value: each, selected: each === options.codec }, CODECS[each] ?? each)));
  const element = h("form", { class: "options", onsubmit: (event) => event.preventDefault() },
    h("fieldset", { class: "models" }, h("legend", {}, "Model"), models.map((each) => each.element)),
    h("div", { class: "fields" },
      h("div", { class: "field" }, h("label", { for: "strength" }, "Strength ", strengthText), strength),
      h("fieldset", { class: "field part" }, h("legend", {}, "Part of the video"),
        h("div", { class: "choice" }, h("label", {}, whole, h("span", {}, "All of it")), h("label", {}, some, h("span", {}, "Only from"))),
        h("div", { class: "range" }, from, h("span", {}, "to"), to)),
      h("div", { class: "field" }, h("label", { for: "codec" }, "File"), codec)),
    partError);

  function read() {
    const found = { model: models.find((each) => each.input.checked)?.model.name ?? "auto", codec: codec.value, strength: Number(strength.value) / 100, start: null, end: null };
    if (some.checked) {
      const [start, end] = [secondsOf(from.value), secondsOf(to.value)];
      if (!(start >= 0) || !(end > start) || (facts?.seconds && start >= facts.seconds)) return null;
      found.start = start || null;
      found.end = facts?.seconds && end >= facts.seconds - 0.05 ? null : end;
    }
    return found;
  }

  function refresh() {
    setText(strengthText, `${strength.value} %`);
    strength.style.setProperty("--filled", `${strength.value}%`);
    element.classList.toggle("has-part", some.checked);
    const found = read();
    partError.hidden = found !== null;
    if (!found) setText(partError, `The part must begin before it ends, within ${clock(facts?.seconds ?? 0, 1)}. Write 12.5 or 1:05.`);
    for (const { model, time } of models) {
      const seconds = estimate(known.find((each) => each.name === model.name), facts, found ?? options);
      setText(time, seconds === null ? "" : `about ${duration(seconds)}`);
    }
  }

  refresh();
  return {
    element,
    /** The models were measured meanwhile. */
    update(models) {
      if (models === known) return;
      known = models;
      refresh();
    },
    read() {
      const found = read();
      if (found) remember(found);
      return found;
    },
  };
}
