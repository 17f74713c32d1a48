// Before and after, in step by construction: one video holds both pictures above each other, every frame of it is
// copied once, and both sides are drawn from that copy.

import { button, clock, h, icon, setText, toast } from "./dom.js";

const SPEEDS = [0.1, 0.25, 0.5, 1];
const MOST_ZOOM = 32;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

/** A viewer for one preview, as the API describes it. `close` stops it. */
export function viewer(preview, name) {
  const video = h("video", { src: preview.url, muted: true, playsinline: true, preload: "auto", loop: true, tabindex: "-1" });
  video.muted = true;
  const copy = document.createElement("canvas");
  copy.width = preview.width;
  copy.height = preview.offset + preview.height;
  const copyContext = copy.getContext("2d", { alpha: false });
  const canvas = h("canvas", { "aria-hidden": "true" });
  const context = canvas.getContext("2d", { alpha: false });
  const divider = h("div", {
    class: "divider", role: "slider", tabindex: "0", "aria-label": "Divider between before and after",
    "aria-valuemin": "0", "aria-valuemax": "100", "aria-orientation": "horizontal",
  }, h("span", { class: "grip" }, icon("back"), icon("forward")));
  const wait = h("div", { class: "wait", role: "status" }, h("span", { class: "spinner" }), "Loading");
  const picture = h("div", { class: "picture" },
    canvas, h("span", { class: "tag before" }, "Before"), h("span", { class: "tag after" }, "After"), divider, wait);
  const state = { split: 0.5, zoom: 0, x: 0.5, y: 0.5, frame: -1, loaded: false, original: false };

  const play = button("Play", { glyph: "play", text: false, onclick: () => toggle() });
  const back = button("One frame back", { glyph: "back", text: false, onclick: () => step(-1) });
  const forward = button("One frame on", { glyph: "forward", text: false, onclick: () => step(1) });
  const seek = h("input", { type: "range", class: "seek", min: "0", max: String(preview.frames - 1), step: "1", "aria-label": "Frame", value: "0", oninput: () => { pause(); show(Number(seek.value)); } });
  const time = h("output", { class: "time" });
  const speed = h("select", { "aria-label": "Speed", title: "Speed", onchange: () => { video.playbackRate = Number(speed.value); } },
    SPEEDS.map((each) => h("option", { value: String(each), selected: each === 1 }, `${each}×`)));
  const loop = button("Loop", { glyph: "loop", text: false, "aria-pressed": "true", onclick: () => {
    video.loop = !video.loop;
    loop.setAttribute("aria-pressed", String(video.loop));
  } });
  const smaller = button("Zoom out", { text: true, kind: "zoom", onclick: () => zoomBy(1 / 1.5) });
  const larger = button("Zoom in", { text: true, kind: "zoom", onclick: () => zoomBy(1.5) });
  smaller.replaceChildren("−");
  larger.replaceChildren("+");
  smaller.setAttribute("aria-label", "Zoom out");
  larger.setAttribute("aria-label", "Zoom in");
  const fit = h("button", { type: "button", class: "fit", title: "Whole picture, or one pixel for one pixel", onclick: () => setZoom(state.zoom ? 0 : pixels()) });
  const save = button("Save this frame", { glyph: "camera", text: false, title: "Save this frame as PNG (Shift: both pictures)", onclick: (event) => saveFrame(event.shiftKey) });
  const full = button("Full screen", { glyph: "full", text: false, onclick: fullScreen });
  const element = h("div", { class: "viewer", tabindex: "0", role: "group", "aria-label": "Before and after. Space plays, arrow keys step, plus and minus zoom, O shows the original." },
    picture,
    h("div", { class: "controls" },
      h("div", { class: "group" }, back, play, forward), seek, time,
      h("div", { class: "group" }, speed, loop), h("div", { class: "group" }, smaller, fit, larger), h("div", { class: "group" }, save, full)));
  picture.style.setProperty("--shape", `${preview.width} / ${preview.height}`);

  // Frames.

  const frameAt = (seconds) => clamp(Math.round(seconds * preview.rate), 0, preview.frames - 1);
  const wanted = { frame: null, busy: false };

  function onFrame(_, data) {
    take(frameAt(data.mediaTime));
    if (!closed) video.requestVideoFrameCallback(onFrame);
  }

  function take(frame) {
    copyContext.drawImage(video, 0, 0);
    state.frame = frame;
    if (!state.loaded) {
      state.loaded = true;
      wait.remove();
    }
    element.dataset.frame = String(frame);
    if (document.activeElement !== seek || video.paused) seek.value = String(frame);
    setText(time, `${clock(preview.start + frame / preview.rate)}  ·  ${frame + 1}/${preview.frames}`);
    seek.setAttribute("aria-valuetext", `frame ${frame + 1} of ${preview.frames}`);
    draw();
  }

  /** Go to a frame. Of several wishes while the player seeks, the last one counts. */
  function show(frame) {
    wanted.frame = clamp(frame, 0, preview.frames - 1);
    if (!wanted.busy) nextSeek();
  }

  function nextSeek() {
    if (wanted.frame === null) return;
    wanted.busy = true;
    const target = (wanted.frame + 0.5) / preview.rate;
    wanted.frame = null;
    video.currentTime = target;
  }

  video.addEventListener("seeked", () => {
    wanted.busy = false;
    if (!video.requestVideoFrameCallback) take(frameAt(video.currentTime - 0.5 / preview.rate));
    nextSeek();
  });

  function step(by) {
    pause();
    const from = wanted.frame ?? (wanted.busy ? frameAt(video.currentTime - 0.5 / preview.rate) : Math.max(0, state.frame));
    const to = from + by;
    show(video.loop ? (to + preview.frames) % preview.frames : to);
  }

  function toggle() {
    if (video.paused) video.play().catch(() => toast("This browser cannot play the preview.", "error"));
    else pause();
  }

  function pause() {
    if (!video.paused) video.pause();
  }

  for (const event of ["play", "pause"]) {
    video.addEventListener(event, () => {
      play.replaceChildren(icon(video.paused ? "play" : "pause"));
      play.setAttribute("aria-label", video.paused ? "Play" : "Pause");
      play.title = video.paused ? "Play" : "Pause";
    });
  }
  video.addEventListener("error", () => {
    wait.replaceChildren("This browser cannot play the preview. The download is not affected.");
    picture.append(wait);
  });

  // Where the picture lies: `zoom` is device pixels per picture pixel, 0 fits it into the canvas.

  const fitting = () => Math.min(canvas.width / preview.width, canvas.height / preview.height) || 1;
  const scale = () => state.zoom || fitting();
  const pixels = () => Math.max(1, Math.ceil(fitting() / 0.999));

  function place() {
    const s = scale();
    const width = preview.width * s;
    const height = preview.height * s;
    const left = width <= canvas.width ? (canvas.width - width) / 2 : clamp(canvas.width / 2 - state.x * width, canvas.width - width, 0);
    const top = height <= canvas.height ? (canvas.height - height) / 2 : clamp(canvas.height / 2 - state.y * height, canvas.height - height, 0);
    return { s, left, top, width, height };
  }

  function draw() {
    const { s, left, top, width, height } = place();
    context.fillStyle = "#0b0a0e";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.imageSmoothingEnabled = s < 3;
    context.imageSmoothingQuality = "high";
    const split = state.original ? canvas.width : Math.round(state.split * canvas.width);
    half(0, 0, split);
    half(preview.offset, split, canvas.width);

    function half(row, from, to) {
      if (to <= from) return;
      context.save();
      context.beginPath();
      context.rect(from, 0, to - from, canvas.height);
      context.clip();
      context.drawImage(copy, 0, row, preview.width, preview.height, left, top, width, height);
      context.restore();
    }

    element.dataset.zoom = s.toFixed(3);
    setText(fit, state.zoom ? `${Math.round((s / window.devicePixelRatio) * 100)} %` : "Fit");
    canvas.dataset.place = JSON.stringify([left, top, s]);
  }

  function setZoom(zoom, at = null) {
    const before = place();
    const smallest = fitting();
    state.zoom = zoom <= smallest * 1.001 ? 0 : Math.min(zoom, MOST_ZOOM * window.devicePixelRatio);
    if (at && state.zoom) {
      // The picture's point under the pointer stays there.
      const x = (at.x - before.left) / before.width;
      const y = (at.y - before.top) / before.height;
      state.x = x + (canvas.width / 2 - at.x) / (preview.width * state.zoom);
      state.y = y + (canvas.height / 2 - at.y) / (preview.height * state.zoom);
    }
    settle();
    draw();
  }

  function settle() {
    const { width, height } = place();
    const [x, y] = [canvas.width / 2 / width, canvas.height / 2 / height];
    state.x = x < 0.5 ? clamp(state.x, x, 1 - x) : 0.5;
    state.y = y < 0.5 ? clamp(state.y, y, 1 - y) : 0.5;
    picture.classList.toggle("pannable", state.zoom > 0);
  }

  const zoomBy = (factor, at = null) => setZoom(scale() * factor, at ?? { x: canvas.width / 2, y: canvas.height / 2 });

  function panBy(x, y) {
    const { width, height } = place();
    state.x -= x / width;
    state.y -= y / height;
    settle();
    draw();
  }

  function setSplit(split) {
    state.split = clamp(split, 0, 1);
    const percent = Math.round(state.split * 100);
    divider.style.left = `${state.split * 100}%`;
    divider.setAttribute("aria-valuenow", String(percent));
    divider.setAttribute("aria-valuetext", `${percent} % before, ${100 - percent} % after`);
    picture.style.setProperty("--split", String(state.split));
    draw();
  }

  function setOriginal(on) {
    if (state.original === on) return;
    state.original = on;
    picture.classList.toggle("original", on);
    draw();
  }

  // Pointers: the divider's grip always moves the divider; the picture pans when zoomed, and moves the divider when not.

  const pointers = new Map();
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const ratio = canvas.width / box.width;
    return { x: (event.clientX - box.left) * ratio, y: (event.clientY - box.top) * ratio };
  };
  let dragging = null;
  picture.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    picture.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, at(event));
    dragging = divider.contains(event.target) || !state.zoom ? "split" : "pan";
    if (dragging === "split") setSplit(at(event).x / canvas.width);
    (divider.contains(event.target) ? divider : element).focus({ preventScroll: true });
    event.preventDefault();
  });
  picture.addEventListener("pointermove", (event) => {
    const last = pointers.get(event.pointerId);
    if (!last) return;
    const now = at(event);
    if (pointers.size === 2) {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(last.x - other.x, last.y - other.y));
      setZoom(scale() * factor, { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
    } else if (dragging === "split") setSplit(now.x / canvas.width);
    else panBy(now.x - last.x, now.y - last.y);
    pointers.set(event.pointerId, now);
  });
  for (const event of ["pointerup", "pointercancel"]) {
    picture.addEventListener(event, (each) => pointers.delete(each.pointerId));
  }
  picture.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoomBy(2 ** (-event.deltaY / (event.ctrlKey ? 100 : 300)), at(event));
  }, { passive: false });
  picture.addEventListener("dblclick", (event) => setZoom(state.zoom ? 0 : 2 * pixels(), at(event)));

  divider.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -0.02, ArrowRight: 0.02, PageDown: -0.1, PageUp: 0.1 }[event.key];
    if (by) setSplit(state.split + by);
    else if (event.key === "Home") setSplit(0);
    else if (event.key === "End") setSplit(1);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  element.addEventListener("keydown", (event) => {
    if (event.target.matches("select, input") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === " " && event.target.matches("button")) return;
    const actions = {
      " ": toggle, ArrowLeft: () => step(-1), ArrowRight: () => step(1), ",": () => step(-1), ".": () => step(1),
      "+": () => zoomBy(1.5), "=": () => zoomBy(1.5), "-": () => zoomBy(1 / 1.5), 0: () => setZoom(0),
      1: () => setZoom(pixels()), f: fullScreen, l: () => loop.click(), s: () => saveFrame(false), S: () => saveFrame(true),
      o: () => setOriginal(true), Home: () => show(0), End: () => show(preview.frames - 1),
    };
    const action = actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  });
  element.addEventListener("keyup", (event) => event.key === "o" && setOriginal(false));
  element.addEventListener("blur", () => setOriginal(false));

  function fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else element.requestFullscreen?.().catch(() => toast("This browser has no full screen here.", "error"));
  }

  function saveFrame(both) {
    if (!state.loaded) return;
    const out = document.createElement("canvas");
    out.width = preview.width * (both ? 2 : 1);
    out.height = preview.height;
    const drawing = out.getContext("2d", { alpha: false });
    const rows = both ? [0, preview.offset] : [preview.offset];
    rows.forEach((row, place) => drawing.drawImage(copy, 0, row, preview.width, preview.height, place * preview.width, 0, preview.width, preview.height));
    out.toBlob((blob) => {
      const link = h("a", { href: URL.createObjectURL(blob), download: `${name.replace(/\.[^.]*$/, "")}-frame-${state.frame + 1}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10000);
    }, "image/png");
  }

  let closed = false;
  const resize = new ResizeObserver(() => {
    const box = picture.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(box.width * ratio));
    canvas.height = Math.max(1, Math.round(box.height * ratio));
    settle();
    draw();
  });
  resize.observe(picture);
  setSplit(0.5);
  if (video.requestVideoFrameCallback) video.requestVideoFrameCallback(onFrame);
  else video.addEventListener("timeupdate", () => video.paused || take(frameAt(video.currentTime)));
  video.addEventListener("loadeddata", () => {
    take(0);
    if (matchMedia("(prefers-reduced-motion: no-preference)").matches) video.play().catch(() => {});
  }, { once: true });

  return {
    element,
    close() {
      closed = true;
      resize.disconnect();
      video.pause();
      video.removeAttribute("src");
      video.load();
    },
  };
}
