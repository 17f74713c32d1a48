// The chosen video: what it is, what to do with it, how far it is, and the comparison.

import { ask, uploadOf } from "./api.js";
import { button, clock, duration, h, icon, local, rate, setText, size, toast } from "./dom.js";
import { ended, filling, stageName, statusOf } from "./list.js";
import { optionsForm } from "./options.js";
import { viewer } from "./viewer.js";

const CODECS = { h264: "H.264", hevc: "HEVC", vp9: "VP9", av1: "AV1", prores: "ProRes", mpeg4: "MPEG-4", ffv1: "FFV1", mjpeg: "Motion JPEG" };

/** Words about a source, as [label, value]. */
function factsOf(job) {
  const facts = job.facts;
  if (!facts) return [["Size", size(job.size)]];
  return [
    ["Picture", `${facts.width} × ${facts.height}`],
    ["Length", facts.seconds === null ? "" : `${clock(facts.seconds, 1)}, ${facts.frames} frames`],
    ["Rate", `${Number(facts.rate.toFixed(2))} frames/s`],
    ["Format", [CODECS[facts.codec] ?? facts.codec, facts.depth > 8 ? `${facts.depth} bit` : "", facts.hdr ? "HDR" : ""].filter(Boolean).join(", ")],
    ["Sound", facts.sound ? "kept as it is" : "none"],
    ["Size", size(job.size)],
    ["Result", ended(job) || !facts.output_bytes ? "" : `about ${size(facts.output_bytes)}`],
  ].filter(([, value]) => value);
}

export function makeStage(container, { about, onUpload, onRemoved, onBack }) {
  let job = null;
  let shape = "";
  let parts = {};
  let player = null;

  const act = async (action, body) => {
    try {
      await ask("POST", `/api/jobs/${job.id}/${action}`, body);
    } catch (error) {
      toast(error.message, "error");
    }
  };

  const remove = async () => {
    const id = job.id;
    uploadOf(id)?.abort();
    try {
      await ask("DELETE", `/api/jobs/${id}`);
      onRemoved(id);
    } catch (error) {
      toast(error.message, "error");
    }
  };

  async function start(action) {
    const options = parts.form.read();
    if (!options) return toast("Look at the part of the video first.", "error");
    await act(action, { options });
  }

  const cancel = () => {
    uploadOf(job.id)?.abort();
    act("cancel");
  };

  /** What kind of page a job needs; another kind is built anew, the same one is only brought up to date. */
  function shapeOf(each) {
    return [each.id, each.state, each.held, each.facts !== null, each.preview?.url, each.state === "failed" ? each.error : "", about().models.length].join("|");
  }

  function close() {
    player?.close();
    player = null;
  }

  function showEmpty() {
    close();
    shape = "";
    job = null;
    container.replaceChildren(h("div", { class: "welcome" },
      h("h1", {}, "Make a shaky video sharp"),
      h("ol", { class: "steps" },
        h("li", {}, h("b", {}, "Drop it"), " anywhere on this page"),
        h("li", {}, h("b", {}, "Watch"), " a first look appear within moments"),
        h("li", {}, h("b", {}, "Compare"), " frame by frame, then download")),
      h("p", { class: "note" }, "Sound, subtitles, rotation and bit depth stay as they are. ", local ? "Nothing is sent anywhere." : "Your videos go to this server and nowhere else.")));
  }

  function render(next, place) {
    if (!next) return job === null && container.firstChild ? undefined : showEmpty();
    const before = job;
    job = next;
    const wanted = shapeOf(next);
    if (wanted !== shape) {
      const same = before?.id === next.id && before?.preview?.url === next.preview?.url && player;
      if (!same) close();
      shape = wanted;
      build();
    }
    refresh(place);
  }

  function build() {
    const held = document.activeElement?.dataset?.action;
    parts = {};
    const title = h("h1", { class: "title" }, job.name);
    title.title = job.name;
    const back = button("All videos", { glyph: "back", kind: "quiet back", onclick: onBack });
    const head = h("div", { class: "stage-head" }, back, title, h("div", { class: "actions" }, actions()));
    if (job.preview && !player) player = viewer(job.preview, job.name);
    const screen = h("div", { class: "screen" }, player ? player.element : poster());
    if (job.preview?.kind === "first") screen.append(h("p", { class: "ribbon" }, icon("eye"), `First look: the blurriest second, from ${clock(job.preview.start, 1)}`));
    const body = h("div", { class: "below" });
    if (job.state === "failed") body.append(h("div", { class: "failure", role: "alert" }, icon("warn"), h("div", {}, h("b", {}, "This did not work"), h("p", {}, job.error))));
    if (job.state === "cancelled") body.append(h("p", { class: "line" }, job.received === job.size ? "Cancelled. Retry starts it again from the beginning." : "The upload was cancelled. Drop the file again to start over."));
    if (job.warnings.length) body.append(h("ul", { class: "warnings" }, job.warnings.map((line) => h("li", {}, line))));
    const meter = h("div", { class: "meter", role: "progressbar", "aria-label": "Progress", "aria-valuemin": "0", "aria-valuemax": "100" }, h("i"));
    parts.meter = meter;
    parts.line = h("p", { class: "line" });
    parts.left = h("p", { class: "left" });
    if (!ended(job) && !(job.state === "queued" && job.held)) body.append(h("div", { class: "progress" }, h("div", { class: "progress-words" }, parts.line, parts.left), meter));
    const choosing = job.facts && job.state === "queued" && job.held;
    if (choosing) {
      parts.form = optionsForm(job, about());
      body.append(parts.form.element);
    } else if (ended(job) && job.facts) {
      parts.form = optionsForm(job, about());
      const again = h("details", { class: "again" }, h("summary", {}, job.state === "done" ? "Do it again with other choices" : "Change the choices"),
        parts.form.element, button("Start again", { glyph: "again", kind: "secondary", onclick: () => start("retry") }));
      body.append(again);
    } else if (job.facts) {
      body.append(choices());
    }
    body.append(h("dl", { class: "facts" }, factsOf(job).map(([label, value]) => h("div", {}, h("dt", {}, label), h("dd", {}, value)))));
    if (job.facts?.kept) {
      const part = (label, kind, lines) => lines?.length ? h("div", { class: kind }, h("dt", {}, label), lines.map((line) => h("dd", {}, line))) : null;
      body.append(h("details", { class: "fate", open: job.facts.lost.length > 0 }, h("summary", {}, job.facts.lost.length ? "What stays and what does not" : "What stays as it is"),
        h("dl", {}, part("Stays", "stays", job.facts.kept), part("Changes", "changes", job.facts.changed), part("Does not stay", "goes", job.facts.lost))));
    }
    container.replaceChildren(head, screen, body);
    if (held) container.querySelector(`[data-action="${held}"]`)?.focus();
  }

  function choices() {
    const { model, strength, start: from, end, codec } = job.options;
    const title = about().models.find((each) => each.name === model)?.title ?? model;
    const words = [`Model: ${title}`, strength < 1 ? `strength ${Math.round(100 * strength)} %` : "", from !== null || end !== null ? `from ${clock(from ?? 0, 1)} to ${clock(end ?? job.facts.seconds ?? 0, 1)}` : "", codec === "auto" ? "" : codec.toUpperCase()];
    return h("p", { class: "choices" }, words.filter(Boolean).join("  ·  "));
  }

  function actions() {
    const list = [];
    const add = (label, glyph, kind, onclick) => list.push(button(label, { glyph, kind, onclick, "data-action": label }));
    if (job.state === "done") {
      list.push(h("a", { class: "primary", href: job.result.url, download: job.result.name, "data-action": "download" }, icon("download"), `Download  ${size(job.result.size)}`));
    }
    if (job.state === "queued" && job.held && job.facts) add("Make it sharp", "play", "primary", () => start("start"));
    if (job.state === "queued" && !job.held && job.facts) add("Hold", "pause", "secondary", () => act("pause"));
    if (job.state === "running") {
      if (job.held) add("Go on", "play", "primary", () => act("start"));
      else add("Pause", "pause", "secondary", () => act("pause"));
    }
    if (job.state === "uploading" && !uploadOf(job.id)) add("Choose the file again", "again", "primary", () => onUpload());
    if (["failed", "cancelled"].includes(job.state) && job.received === job.size) add("Retry", "again", "primary", () => (parts.form ? start("retry") : act("retry")));
    if (["running", "uploading"].includes(job.state) || (job.state === "queued" && !job.held)) add("Cancel", "close", "secondary", cancel);
    else add("Remove", "trash", "secondary", remove);
    return list;
  }

  function poster() {
    const shape = job.facts ? `${job.facts.width} / ${job.facts.height}` : "16 / 9";
    const frame = h("div", { class: "poster" }, job.thumbnail ? h("img", { src: job.thumbnail, alt: `First frame of ${job.name}` }) : icon("film"));
    frame.style.setProperty("--shape", shape);
    frame.classList.toggle("small", ended(job) && !job.thumbnail);
    if (job.state === "running" && !job.held) frame.append(h("span", { class: "scan", "aria-hidden": "true" }));
    return frame;
  }

  function refresh(place) {
    parts.form?.update(about().models);
    const fill = filling(job);
    const busy = fill === null && !job.held && (job.state === "running" || (job.state === "queued" && (place === 0 || !job.facts)));
    parts.meter.classList.toggle("busy", busy);
    parts.meter.firstChild.style.width = `${100 * (fill ?? 0)}%`;
    if (fill === null) parts.meter.removeAttribute("aria-valuenow");
    else parts.meter.setAttribute("aria-valuenow", String(Math.round(100 * fill)));
    if (job.state === "running" && !job.stopping) {
      setText(parts.line, job.held ? "Paused" : job.stage === "restoring" ? `Restoring frame ${job.frames.done} of ${job.frames.expected ?? "?"}` : stageName(job));
      const left = job.seconds_left && job.stage === "restoring" && !job.held ? `${duration(job.seconds_left)} left` : "";
      setText(parts.left, [job.held ? "" : rate(job.rate), left].filter(Boolean).join("  ·  "));
    } else {
      setText(parts.line, statusOf(job, place));
      setText(parts.left, "");
    }
  }

  return { render };
}
