// The page: keeps what the server says about the jobs, takes files, and draws the list and the stage.

import { ask, listen, send, uploadOf } from "./api.js";
import { button, h, icon, local, setText, size, toast } from "./dom.js";
import { ended, makeList } from "./list.js";
import { rememberedOptions } from "./options.js";
import { makeStage } from "./stage.js";

const MOST_UPLOADS = 2;
const jobs = new Map();
let about = { models: [], codecs: ["auto"], limits: {}, suffixes: [] };
let selected = location.hash.slice(1) || null;
let heard = false;

const main = document.getElementById("main");
const list = makeList(document.getElementById("list"), { onSelect: select, onMove: move, onClear: clear, onStartAll: startAll });
const files = document.getElementById("files");
const stage = makeStage(document.getElementById("stage"), {
  about: () => about,
  onUpload: () => files.click(),
  onRemoved: (id) => {
    const order = [...document.querySelectorAll("a.row")].map((row) => row.hash.slice(1));
    const place = order.indexOf(id);
    jobs.delete(id);
    select(matchMedia("(max-width: 820px)").matches ? null : order[place + 1] ?? order[place - 1] ?? null);
  },
  onBack: () => {
    const id = selected;
    select(null);
    list.focus(id);
  },
});

// Drawing: at most once a frame, however many events arrive.

let drawn = 0;
function draw() {
  drawn ||= requestAnimationFrame(() => {
    drawn = 0;
    const all = [...jobs.values()];
    const job = jobs.get(selected) ?? null;
    const waiting = all.filter((each) => each.state === "queued" && !each.held).sort((a, b) => a.position - b.position);
    const running = all.some((each) => each.state === "running") ? 1 : 0;
    main.className = `${all.length ? "" : "empty"}${job ? " chosen" : ""}`;
    list.render({ jobs: all, selected });
    if (heard) stage.render(job, Math.max(0, waiting.indexOf(job)) + running);
    const active = all.find((each) => each.state === "running");
    document.title = active?.stage === "restoring" ? `${Math.floor(100 * active.progress)} % pahs` : "pahs: sharp video";
  });
}

function select(id) {
  if (id === selected) return draw();
  selected = id;
  history.replaceState(null, "", id ? `#${id}` : location.pathname);
  if (id && matchMedia("(max-width: 820px)").matches) scrollTo(0, 0);
  draw();
}

addEventListener("hashchange", () => {
  selected = location.hash.slice(1) || null;
  draw();
});

// News.

listen(
  (change) => {
    heard = true;
    if (change.all) jobs.clear();
    for (const job of change.jobs) {
      const before = jobs.get(job.id);
      if (before && before.state !== job.state) tell(job);
      jobs.set(job.id, job);
    }
    for (const id of change.removed) jobs.delete(id);
    if (selected && !jobs.has(selected)) select(null);
    if (change.all && !selected && !matchMedia("(max-width: 820px)").matches) {
      const open = [...jobs.values()].sort((a, b) => Number(ended(a)) - Number(ended(b)) || (b.finished ?? 0) - (a.finished ?? 0));
      if (open.length) select(open[0].id);
    }
    draw();
  },
  (linked) => {
    document.getElementById("link").hidden = linked;
  },
);

function tell(job) {
  if (job.state === "done") {
    toast(`${job.name} is sharp`);
    learn();
  }
  if (job.state === "failed" && job.id !== selected) toast(`${job.name}: ${job.error}`, "error");
}

async function learn() {
  try {
    about = await ask("GET", "/api/about");
    draw();
    if (about.measuring) setTimeout(learn, 1500);
  } catch (error) {
    toast(error.message, "error");
  }
}
learn();

// Files.

const waiting = [];
let sending = 0;

async function take(chosen) {
  let first = null;
  for (const file of chosen) {
    const ending = file.name.includes(".") ? file.name.slice(file.name.lastIndexOf(".")).toLowerCase() : "";
    const { upload_bytes: most, free_bytes: free } = about.limits;
    if (about.suffixes.length && !about.suffixes.includes(ending)) toast(`${file.name} is not a video this page knows.`, "error");
    else if (most && file.size > most) toast(`${file.name} has ${size(file.size)}; this server accepts ${size(most)}.`, "error");
    else if (free && file.size > free) toast(`${file.name} has ${size(file.size)}; the server's disk has room for ${size(Math.max(0, free))}.`, "error");
    else {
      const id = await announce(file);
      first ??= id;
    }
  }
  if (first) select(first);
}

/** A job for the file: one that broke off where it was, or a new one. */
async function announce(file) {
  const half = [...jobs.values()].find((job) => job.state === "uploading" && job.name === file.name && job.size === file.size && !uploadOf(job.id));
  try {
    const job = half ?? (await ask("POST", "/api/jobs", { name: file.name, size: file.size, hold: true, options: usable(rememberedOptions()) }));
    jobs.set(job.id, job);
    waiting.push([job.id, file]);
    next();
    return job.id;
  } catch (error) {
    toast(`${file.name}: ${error.message}`, "error");
    return null;
  }
}

/** What was chosen last time, without a model that this server does not offer. */
function usable(options) {
  return about.models.some((model) => model.name === options.model) ? options : { ...options, model: "auto" };
}

async function next() {
  if (sending >= MOST_UPLOADS || !waiting.length) return;
  const [id, file] = waiting.shift();
  sending += 1;
  try {
    await send(id, file, draw);
  } catch (error) {
    toast(error.message, "error");
  } finally {
    sending -= 1;
    draw();
    next();
  }
}

files.addEventListener("change", () => {
  take([...files.files]);
  files.value = "";
});
const over = document.getElementById("over");
const brings = (event) => event.dataTransfer?.types.includes("Files");
let depth = 0;
addEventListener("dragenter", (event) => {
  if (brings(event)) over.hidden = ++depth < 1;
});
addEventListener("dragleave", (event) => {
  if (brings(event)) over.hidden = --depth < 1;
});
addEventListener("dragover", (event) => brings(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!brings(event)) return;
  event.preventDefault();
  depth = 0;
  over.hidden = true;
  take([...event.dataTransfer.files]);
});
addEventListener("beforeunload", (event) => {
  if (sending) event.preventDefault();
});

// The whole list.

async function move(id, where) {
  const open = [...jobs.values()].filter((job) => !ended(job)).sort((a, b) => a.position - b.position).map((job) => job.id);
  let before;
  if (typeof where === "number") {
    const place = open.indexOf(id);
    if (place < 0 || place + where < 0 || place + where >= open.length) return;
    before = open[where > 0 ? place + 2 : place - 1] ?? null;
  } else ({ before } = where);
  try {
    await ask("POST", `/api/jobs/${id}/move`, { before });
  } catch (error) {
    toast(error.message, "error");
  }
}

async function startAll() {
  for (const job of [...jobs.values()].filter((each) => each.state === "queued" && each.held)) {
    await ask("POST", `/api/jobs/${job.id}/start`).catch((error) => toast(error.message, "error"));
  }
}

function clear() {
  const gone = [...jobs.values()].filter(ended);
  const dialog = h("dialog", { class: "card", "aria-labelledby": "sure" });
  const sure = async () => {
    dialog.close();
    for (const job of gone) await ask("DELETE", `/api/jobs/${job.id}`).catch(() => {});
  };
  dialog.append(
    h("h2", { id: "sure" }, `Remove ${gone.length === 1 ? "this result" : `all ${gone.length} results`}?`),
    h("p", {}, "The uploaded videos and what was made of them are deleted from the server."),
    h("div", { class: "actions" }, button("Keep them", { kind: "secondary", onclick: () => dialog.close() }), button("Remove", { glyph: "trash", kind: "danger", onclick: sure })),
  );
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

// Light and dark.

const theme = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const showTheme = () => theme.replaceChildren(icon(isDark() ? "sun" : "moon"));
theme.addEventListener("click", () => {
  const next = isDark() ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // it lasts until the page is loaded again
  }
  showTheme();
});
dark.addEventListener("change", showTheme);
showTheme();
document.querySelector(".drop-more").hidden = !local;
setText(document.querySelector(".drop-title"), matchMedia("(pointer: coarse)").matches ? "Choose a blurry video" : "Drop a blurry video");
draw();
