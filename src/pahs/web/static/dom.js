// Elements, icons, and texts for numbers.

/** An element with properties and children. Names that start with "on" are listeners, others attributes. */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const PATHS = {
  play: "M8 5.5v13l11-6.5z",
  pause: "M7 5h3.4v14H7zM13.6 5H17v14h-3.4z",
  back: "M14.5 6 8.5 12l6 6",
  forward: "m9.5 6 6 6-6 6",
  loop: "M6 9.5A4 4 0 0 1 10 6h8m-3-3 3 3-3 3M18 14.5a4 4 0 0 1-4 3.5H6m3 3-3-3 3-3",
  full: "M4 9V4h5M20 9V4h-5M4 15v5h5M20 15v5h-5",
  camera: "M4 8h3l1.5-2h7L17 8h3v11H4zM12 16a3 3 0 1 0 0-6 3 3 0 0 0 0 6",
  download: "M12 4v11m-5-4.5 5 5 5-5M5 20h14",
  close: "M6 6l12 12M18 6 6 18",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  up: "m6 14 6-6 6 6",
  down: "m6 10 6 6 6-6",
  film: "M4 5h16v14H4zM8 5v14M16 5v14M4 9.7h4M4 14.3h4M16 9.7h4M16 14.3h4",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  warn: "M12 4 2.8 20h18.4zM12 10v4.5M12 17.2v.3",
  check: "m5 12.5 4.5 4.5L19 7.5",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12M12 15a3 3 0 1 0 0-6 3 3 0 0 0 0 6",
};

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  const path = document.createElementNS(space, "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("glyph", `glyph-${name}`);
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon, a text, or both; without a text its label is read out and shown as a hint. */
export function button(label, { glyph, text = true, kind = "", ...props } = {}) {
  const names = text ? {} : { "aria-label": label, title: label };
  return h("button", { type: "button", class: `${kind}${text ? "" : " icon"}`, ...names, ...props }, glyph ? icon(glyph) : null, text ? label : null);
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined || !isFinite(seconds)) return "";
  if (seconds < 1) return "under 1 s";
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Minutes and seconds of a position, as in 1:05.20. */
export function clock(seconds, digits = 2) {
  const minutes = Math.floor(seconds / 60);
  const rest = (seconds - 60 * minutes).toFixed(digits).padStart(digits ? 3 + digits : 2, "0");
  return `${minutes}:${rest}`;
}

/** Seconds of what a person types: 90, 1:30, 0:01:30.5; NaN if it is no time. */
export function secondsOf(text) {
  const parts = text.trim().split(":");
  if (parts.length > 3 || parts.some((part) => !/^\d+([.,]\d*)?$/.test(part))) return NaN;
  return parts.reduce((sum, part) => 60 * sum + Number(part.replace(",", ".")), 0);
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 1000 && unit < units.length - 1) {
    bytes /= 1000;
    unit += 1;
  }
  return `${unit && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}

export function rate(perSecond) {
  if (!perSecond) return "";
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)} frames/s`;
}

/** A line that appears for a while and is read out. */
export function toast(text, kind = "") {
  const line = h("div", { class: `toast ${kind}` }, text);
  document.getElementById("toasts").append(line);
  setTimeout(() => line.remove(), 8000);
}

/** Whether the server is this machine. */
export const local = ["localhost", "127.0.0.1", "[::1]"].includes(location.hostname);
