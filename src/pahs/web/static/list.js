// The list of videos: what waits and runs in the queue's order, then what has ended, newest first.

import { uploadOf } from "./api.js";
import { duration, h, icon, rate, setText, size } from "./dom.js";

const SHOWN = 40;
const ENDED = ["done", "failed", "cancelled"];

export const ended = (job) => ENDED.includes(job.state);

/** One short line about a job. */
export function statusOf(job, place) {
  const upload = uploadOf(job.id);
  if (job.state === "uploading") {
    if (!upload) return `Upload interrupted at ${percent(job.received / job.size)}; drop it again`;
    return `Uploading, ${percent(upload.sent / upload.total)} of ${size(upload.total)}`;
  }
  if (job.state === "queued") {
    if (!job.facts) return "Looking at it…";
    if (job.held) return "Ready when you are";
    return place > 0 ? `Waiting, ${place === 1 ? "next" : `${place} before it`}` : "Starting…";
  }
  if (job.state === "running") {
    if (job.stopping) return "Stopping…";
    if (job.held) return "Paused";
    if (job.stage === "restoring") return [percent(job.progress), rate(job.rate), job.seconds_left ? `${duration(job.seconds_left)} left` : ""].filter(Boolean).join("  ·  ");
    return stageName(job);
  }
  if (job.state === "done") return `Done  ·  ${size(job.result.size)}`;
  return job.state === "failed" ? "Failed" : "Cancelled";
}

export function stageName(job) {
  return {
    "": "Loading the model…", opening: "Opening…", "first look": "Making a first look…",
    "looking ahead": `Looking ahead, ${job.frames.read} ${job.frames.read === 1 ? "frame" : "frames"} read`, restoring: "Restoring", finishing: "Finishing…",
    comparing: "Preparing the comparison…",
  }[job.stage] ?? job.stage;
}

const percent = (share) => `${Math.floor(100 * (share || 0))} %`;

/** How full the bar of a job is, from 0 to 1; null where that is not known. */
export function filling(job) {
  const upload = uploadOf(job.id);
  if (job.state === "uploading") return upload ? upload.sent / upload.total : job.received / job.size;
  if (job.state === "running") return ["restoring", "finishing", "comparing"].includes(job.stage) ? job.progress : null;
  return null;
}

export function makeList(container, { onSelect, onMove, onClear, onStartAll }) {
  const rows = new Map();
  let limit = SHOWN;
  const queueTitle = h("h2", { class: "section" });
  const startAll = h("button", { type: "button", class: "link", onclick: onStartAll }, "Start all");
  const doneTitle = h("h2", { class: "section" });
  const clear = h("button", { type: "button", class: "link", onclick: onClear }, "Remove all");
  const queueHead = h("div", { class: "section-head" }, queueTitle, startAll);
  const doneHead = h("div", { class: "section-head" }, doneTitle, clear);
  const queue = h("ul", { class: "rows", "aria-label": "Queue" });
  const results = h("ul", { class: "rows", "aria-label": "Results" });
  const more = h("button", { type: "button", class: "more", onclick: () => { limit += 200; render(last); } });
  container.append(queueHead, queue, doneHead, results, more);
  let last = { jobs: [], selected: null };

  function row(id) {
    const image = h("span", { class: "thumb" }, icon("film"));
    const name = h("span", { class: "name" });
    const status = h("span", { class: "status" });
    const bar = h("span", { class: "bar", "aria-hidden": "true" }, h("i"));
    const link = h("a", { class: "row", href: `#${id}`, draggable: "true" }, image, h("span", { class: "words" }, name, status), bar);
    const element = h("li", {}, link);
    link.addEventListener("click", (event) => {
      event.preventDefault();
      onSelect(id);
    });
    link.addEventListener("keydown", (event) => {
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const down = event.key === "ArrowDown";
        if (event.altKey) onMove(id, down ? 1 : -1);
        else {
          const all = [...container.querySelectorAll("a.row")];
          all[all.indexOf(link) + (down ? 1 : -1)]?.focus();
        }
      }
    });
    link.addEventListener("dragstart", (event) => {
      event.dataTransfer.setData("application/x-pahs-job", id);
      event.dataTransfer.effectAllowed = "move";
    });
    element.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("application/x-pahs-job")) return;
      event.preventDefault();
      element.classList.add("target");
    });
    element.addEventListener("dragleave", () => element.classList.remove("target"));
    element.addEventListener("drop", (event) => {
      element.classList.remove("target");
      const moved = event.dataTransfer.getData("application/x-pahs-job");
      if (!moved || moved === id) return;
      event.preventDefault();
      event.stopPropagation();
      onMove(moved, { before: id });
    });
    return { element, link, image, name, status, bar, seen: "" };
  }

  function update(job, place, selected) {
    let entry = rows.get(job.id);
    if (!entry) rows.set(job.id, (entry = row(job.id)));
    const status = statusOf(job, place);
    const fill = filling(job);
    const seen = [job.name, status, fill, selected, job.thumbnail, job.held, job.state].join("\n");
    if (seen === entry.seen) return entry;
    entry.seen = seen;
    setText(entry.name, job.name);
    entry.name.title = job.name;
    setText(entry.status, status);
    entry.link.className = `row is-${job.state}${job.held ? " is-held" : ""}`;
    if (selected) entry.link.setAttribute("aria-current", "true");
    else entry.link.removeAttribute("aria-current");
    entry.bar.classList.toggle("busy", job.state === "running" && fill === null && !job.held);
    entry.bar.hidden = !["uploading", "running"].includes(job.state);
    entry.bar.firstChild.style.width = `${100 * (fill ?? 0)}%`;
    if (job.thumbnail && !entry.image.querySelector("img")) {
      entry.image.replaceChildren(h("img", { src: job.thumbnail, alt: "", loading: "lazy", decoding: "async" }));
    }
    return entry;
  }

  /** Put the elements of these rows into a list, touching only what has moved. */
  function arrange(list, entries) {
    entries.forEach((entry, place) => {
      if (list.children[place] !== entry.element) list.insertBefore(entry.element, list.children[place] ?? null);
    });
    while (list.children.length > entries.length) list.lastChild.remove();
  }

  function render(state) {
    last = state;
    const open = state.jobs.filter((job) => !ended(job)).sort((a, b) => a.position - b.position);
    const closed = state.jobs.filter(ended).sort((a, b) => (b.finished ?? 0) - (a.finished ?? 0));
    const shown = closed.slice(0, limit);
    const waiting = open.filter((job) => job.state === "queued" && !job.held);
    const running = open.some((job) => job.state === "running") ? 1 : 0;
    arrange(queue, open.map((job) => update(job, waiting.indexOf(job) + running, job.id === state.selected)));
    arrange(results, shown.map((job) => update(job, 0, job.id === state.selected)));
    const known = new Set([...open, ...shown].map((job) => job.id));
    for (const id of rows.keys()) if (!known.has(id)) rows.delete(id);
    queueHead.hidden = !open.length;
    doneHead.hidden = !closed.length;
    setText(queueTitle, `Queue  ${open.length}`);
    setText(doneTitle, `Results  ${closed.length}`);
    startAll.hidden = open.filter((job) => job.held && job.state === "queued").length < 2;
    more.hidden = closed.length <= limit;
    setText(more, `Show ${Math.min(200, closed.length - limit)} more`);
  }

  return { render, focus: (id) => rows.get(id)?.link.focus() };
}
