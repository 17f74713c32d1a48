// The page: takes a film, asks what to do with it, shows how far the worker is, and what came out.

import { button, clock, duration, h, icon, secondsOf, setText, size, toast } from "./dom.js";
import { viewer } from "./viewer.js";

/** Pixels that take some minutes: of a video with more, only the beginning is proposed. */
const PROPOSED = { webgpu: 400e6, wasm: 40e6 };
const LEAST_SECONDS = 0.5;
const main = document.getElementById("main");
const stage = document.getElementById("stage");
const input = document.getElementById("files");
const engine = document.getElementById("engine");

let worker = null;
let setup = null;
let looked = null;
let player = null;
let parts = {};
let addresses = [];
let chosenFiles = [];
let began = 0;

// The worker: one at a time. A job is cancelled by ending it, because a graph that runs cannot be stopped.

function hire() {
  worker?.terminate();
  worker = new Worker("worker.js", { type: "module" });
  worker.addEventListener("message", ({ data }) => HEARD[data.kind](data));
  worker.addEventListener("error", (event) => fail(`The page's worker does not start: ${event.message || "a file is missing"}.`));
  worker.postMessage({ job: "prepare", wanted: new URLSearchParams(location.search).get("run") });
}

const HEARD = { ready, provider, looked: choosing, stage: ({ text }) => setText(parts.line, text), ran, restored, done, failed: ({ text }) => fail(text) };

function ready(data) {
  setup = data;
  provider(data);
  document.documentElement.dataset.ready = data.provider;
  if (!looked && !main.classList.contains("one")) welcome();
}

function provider({ provider: name, threads, text }) {
  const processor = `on ${threads === 1 ? "one thread" : `${threads} threads`} of the processor`;
  setText(engine, name === "webgpu" ? "Runs on your GPU (WebGPU)" : `Runs ${processor} (WebAssembly)`);
  engine.title = setup ? `${setup.about.model}, ${setup.about.parameters.toLocaleString("en")} parameters` : "";
  if (text) toast(text);
}

// Words.

function welcome() {
  stage.replaceChildren(h("div", { class: "welcome" },
    h("h1", {}, "Make a shaky video sharp"),
    h("ol", { class: "steps" },
      h("li", {}, h("b", {}, "Drop"), " a short video"),
      h("li", {}, h("b", {}, "Wait"), " while your machine computes"),
      h("li", {}, h("b", {}, "Compare"), " and save it")),
    h("p", { class: "note" }, "The network runs inside this page, and nothing is sent anywhere. For long or large videos, ", h("code", {}, "pahs deblur"), " is many times as fast.")));
}

function factsOf({ facts }) {
  return [
    ["Picture", `${facts.width} × ${facts.height}`],
    ["Length", `${clock(facts.seconds, 1)}, about ${Math.max(1, Math.round(facts.seconds * facts.rate))} frames`],
    ["Rate", `${Number(facts.rate.toFixed(2))} frames/s`],
    ["Format", facts.codec === "pictures" ? "pictures" : facts.codec.toUpperCase()],
    ["Sound", facts.sound ? "kept as it is" : "none"],
    ["Size", size(facts.bytes)],
  ];
}

// The stage, in its four states: choosing, running, done, failed.

function show({ title, actions, screen, below }) {
  player?.close();
  player = null;
  main.className = "one";
  for (const address of addresses.splice(0)) URL.revokeObjectURL(address);
  document.title = "pahs: sharp video in the browser";
  stage.replaceChildren(
    h("div", { class: "stage-head" }, h("h1", { class: "title", title }, title), h("div", { class: "actions" }, actions)),
    ...(screen ? [h("div", { class: "screen" }, screen)] : []),
    h("div", { class: "below" }, below, looked ? h("dl", { class: "facts" }, factsOf(looked).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))) : null));
}

const another = () => button("Another video", { glyph: "film", kind: "secondary", onclick: () => input.click() });

function poster(pixels, width, height) {
  const canvas = h("canvas", { "aria-hidden": "true" });
  const frame = h("div", { class: "poster" }, canvas);
  frame.style.setProperty("--shape", `${width} / ${height}`);
  paint(canvas, pixels, width, height);
  return frame;
}

function paint(canvas, pixels, width, height) {
  canvas.width = width;
  canvas.height = height;
  canvas.getContext("2d").putImageData(new ImageData(pixels, width, height), 0, 0);
}

function take(files) {
  if (!files.length) return;
  if (!setup) return void toast("One moment: the page is still starting.");
  if (parts.running) return void toast("A video is being restored; cancel it first.", "error");
  looked = null;
  show({ title: files[0].name, actions: [], below: h("p", { class: "line" }, "Looking into it…") });
  worker.postMessage({ job: "look", files: [...files] });
}

function choosing(data) {
  looked = data;
  const { facts, sizes } = data;
  const enough = Math.max(LEAST_SECONDS, PROPOSED[setup.provider] / (sizes[0].width * sizes[0].height * facts.rate));
  const long = facts.seconds > enough;
  const [whole, some] = [false, true].map((value) => {
    const radio = h("input", { type: "radio", name: "part", value: value ? "part" : "whole", onchange: refresh });
    radio.checked = value === long;
    return radio;
  });
  const [from, to] = ["Part begins at", "Part ends at"].map((label, place) => h("input", {
    type: "text", inputmode: "decimal", class: "at", autocomplete: "off", "aria-label": label,
    value: clock(place ? Math.min(facts.seconds, enough) : 0, 1), oninput: () => { some.checked = true; refresh(); },
  }));
  const scale = h("select", { id: "size", onchange: refresh }, sizes.map((each, place) => h("option", { value: String(place) }, `${each.width} × ${each.height}${each.share === 1 ? ", as it is" : ""}`)));
  const png = h("input", { type: "checkbox" });
  const wrong = h("p", { class: "error", role: "alert", hidden: true });
  const time = h("p", { class: "about" });
  const start = button("Make it sharp", { glyph: "play", kind: "primary", onclick: () => run(read()) });
  const form = h("form", { class: "options", onsubmit: (event) => event.preventDefault() },
    h("div", { class: "fields" },
      h("fieldset", { class: "field part" }, h("legend", {}, "Part of the video"),
        h("div", { class: "choice" }, h("label", {}, whole, h("span", {}, "All of it")), h("label", {}, some, h("span", {}, "Only from"))),
        h("div", { class: "range" }, from, h("span", {}, "to"), to)),
      h("div", { class: "field" }, h("label", { for: "size" }, "Size"), scale),
      h("fieldset", { class: "field" }, h("legend", {}, "Frames"),
        h("label", { class: "check" }, png, h("span", {}, "Every frame as PNG too", h("small", {}, "in a ZIP, exactly as the network gives it"))))),
    wrong, time);

  function read() {
    const { width, height } = sizes[Number(scale.value)];
    const chosen = { start: 0, end: facts.seconds, width, height, png: png.checked };
    if (some.checked) [chosen.start, chosen.end] = [secondsOf(from.value), Math.min(secondsOf(to.value), facts.seconds)];
    return chosen.start >= 0 && chosen.end > chosen.start ? chosen : null;
  }

  function refresh() {
    form.classList.toggle("has-part", some.checked);
    const found = read();
    start.disabled = !found;
    wrong.hidden = found !== null;
    if (!found) setText(wrong, `The part must begin before it ends, within ${clock(facts.seconds, 1)}. Write 12.5 or 1:05.`);
    const seconds = found && expected(found, facts.rate);
    setText(time, seconds ? `This takes about ${duration(seconds)} here.` : long ? "The beginning is proposed, because every frame takes a while." : "");
  }

  const notes = [
    sizes[0].share < 1 ? `At ${facts.width} × ${facts.height} this browser's memory does not suffice; the picture is made smaller.` : "",
    facts.deep ? "This video has a high dynamic range. A browser gives it to the network in 8 bits; `pahs deblur` keeps it." : "",
  ].filter(Boolean);
  show({
    title: facts.name, actions: [start, another()], screen: poster(data.picture, data.width, data.height),
    below: [notes.length ? h("ul", { class: "warnings" }, notes.map((line) => h("li", {}, line))) : null, form],
  });
  refresh();
  start.focus({ preventScroll: true });
}

// How long it takes is known after the first video: pixels per second are remembered.

const remembered = () => `pixels per second, ${setup.about.model}, ${setup.provider}, ${setup.threads}`;

function expected({ start, end, width, height }, rate) {
  try {
    const speed = Number(localStorage.getItem(remembered()));
    return speed > 0 ? (Math.max(1, (end - start) * rate) * width * height) / speed : 0;
  } catch {
    return 0;
  }
}

function run(chosen) {
  if (!chosen) return;
  const { pixels, width, height } = { pixels: looked.picture, ...looked };
  const meter = h("div", { class: "meter busy", role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i"));
  const frame = poster(pixels, width, height);
  frame.append(h("span", { class: "scan", "aria-hidden": "true" }));
  parts = { running: chosen, meter, line: h("p", { class: "line" }, "Starting"), left: h("p", { class: "left" }), canvas: frame.firstChild };
  const cancel = button("Cancel", { glyph: "close", kind: "secondary", onclick: () => {
    parts = {};
    hire();
    input.value = "";
    again();
  } });
  show({ title: looked.facts.name, actions: [cancel], screen: frame, below: [h("div", { class: "progress" }, h("div", { class: "progress-words" }, parts.line, parts.left), meter)] });
  cancel.focus({ preventScroll: true });
  began = performance.now();
  worker.postMessage({ job: "restore", ...chosen });
}

/** A new worker knows nothing of the film: it looks again. */
function again() {
  if (chosenFiles.length) {
    setup = null;
    const files = chosenFiles;
    worker.addEventListener("message", ({ data }) => data.kind === "ready" && take(files), { once: true });
  } else location.reload();
}

function ran({ share }) {
  if (!parts.running) return;
  parts.meter.classList.remove("busy");
  parts.meter.firstChild.style.width = `${100 * share}%`;
  parts.meter.setAttribute("aria-valuenow", String(Math.round(100 * share)));
  document.title = `${Math.floor(100 * share)} % pahs`;
  const spent = (performance.now() - began) / 1000;
  if (!parts.restored) setText(parts.line, "Looking ahead");
  if (spent > 3 && share > 0.01) setText(parts.left, `${duration((spent * (1 - share)) / share)} left`);
}

function restored({ done: count, total, width, height, after }) {
  if (!parts.running) return;
  parts.restored = true;
  setText(parts.line, `Restoring frame ${count} of ${total}`);
  if (after) paint(parts.canvas, after, width, height);
}

function done({ video, frames, lost, preview }) {
  const chosen = parts.running;
  const spent = (performance.now() - began) / 1000;
  parts = {};
  try {
    localStorage.setItem(remembered(), String((preview.frames * preview.width * preview.height) / spent));
  } catch {
    // without storage there is no estimate
  }
  const stem = looked.facts.name.replace(/\.[^.]*$/, "");
  const save = (blob, name, label, kind) => {
    addresses.push(URL.createObjectURL(blob));
    return h("a", { class: kind, href: addresses.at(-1), download: name }, icon("download"), `${label}  ${size(blob.size)}`);
  };
  show({ title: looked.facts.name, actions: [], screen: h("div"), below: [] });
  addresses.push(URL.createObjectURL(preview.video));
  player = viewer({ ...preview, url: addresses.at(-1) }, looked.facts.name);
  stage.querySelector(".screen").replaceChildren(player.element);
  stage.querySelector(".actions").append(
    save(video, `${stem}-deblurred.mp4`, "Download", "primary"),
    ...(frames ? [save(frames, `${stem}-deblurred.zip`, "PNG", "primary secondary")] : []), another());
  const notes = [
    lost,
    "Subtitles, tags and more than 8 bits do not stay; rotation is applied. `pahs deblur` keeps them.",
  ].filter(Boolean);
  stage.querySelector(".below").prepend(
    h("p", { class: "line" }, `${preview.frames} frames in ${duration(spent)}, ${(preview.frames / spent).toPrecision(2)} frames/s`),
    h("ul", { class: "warnings" }, notes.map((line) => h("li", {}, line))),
    h("p", {}, button("Do it again with other choices", { glyph: "again", kind: "secondary", onclick: () => choosing(looked) })));
  stage.dataset.took = String(chosen.end - chosen.start);
}

function fail(text) {
  parts = {};
  const retry = looked ? [button("Other choices", { glyph: "again", kind: "secondary", onclick: () => choosing(looked) })] : [];
  show({
    title: looked?.facts.name ?? chosenFiles[0]?.name ?? "Not started", actions: [...retry, another()],
    below: h("div", { class: "failure", role: "alert" }, icon("warn"), h("div", {}, h("b", {}, "This did not work"), h("p", {}, text))),
  });
}

// Files, by drop or by choice.

function chose(files) {
  chosenFiles = [...files];
  take(chosenFiles);
}
input.addEventListener("change", () => {
  chose(input.files);
  input.value = "";
});
const over = document.getElementById("over");
for (const event of ["dragenter", "dragover"]) {
  addEventListener(event, (each) => {
    if (!each.dataTransfer?.types.includes("Files")) return;
    each.preventDefault();
    over.hidden = false;
  });
}
for (const event of ["dragleave", "drop"]) addEventListener(event, (each) => { if (event === "drop" || !each.relatedTarget) over.hidden = true; });
addEventListener("drop", (each) => {
  each.preventDefault();
  chose(each.dataTransfer?.files ?? []);
});

// The theme, as on the page of `pahs serve`.

const theme = document.getElementById("theme");
const isDark = () => getComputedStyle(document.documentElement).colorScheme === "dark";
const drawTheme = () => theme.replaceChildren(icon(isDark() ? "sun" : "moon"));
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("theme", document.documentElement.dataset.theme);
  } catch {
    // without storage it lasts until the page is closed
  }
  drawTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
drawTheme();

// The start.

/** Several threads need headers, which `isolate.js` adds to what the server sends; they hold from the next load on. */
async function isolated() {
  if (crossOriginIsolated || !navigator.serviceWorker || sessionStorage.getItem("isolating")) return;
  sessionStorage.setItem("isolating", "1");
  await navigator.serviceWorker.register("isolate.js");
  await navigator.serviceWorker.ready;
  location.reload();
  await new Promise(() => {});
}

function missing() {
  if (typeof WebAssembly !== "object") return "WebAssembly is missing from this browser, or turned off. Use a current Chrome, Edge, Firefox or Safari.";
  if (!isSecureContext) return "A browser decodes video only for pages of https or of this machine. Open the page as http://localhost, or through https.";
  if (!("VideoDecoder" in window && "VideoEncoder" in window)) return "This browser does not let a page decode and encode video (WebCodecs). Use a current Chrome, Edge, Firefox or Safari.";
  return null;
}

document.getElementById("unstarted").remove();
const without = missing();
if (without) {
  document.getElementById("drop").remove();
  fail(without);
  stage.querySelector(".actions").replaceChildren();
} else {
  await isolated().catch(() => {});
  sessionStorage.removeItem("isolating");
  hire();
  welcome();
}
