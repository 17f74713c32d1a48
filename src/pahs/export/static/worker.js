// The work, away from the page: opens the film, runs the graphs over it, and builds the files.

import { Film, open, Unusable } from "./film.js";
import { chunkFor, Network } from "./network.js";
import { Zip } from "./zip.js";

const RUNTIMES = { webgpu: "./runtime/ort.webgpu.min.mjs", wasm: "./runtime/ort.wasm.min.mjs" };
const MOST_THREADS = 8;
const SHOWN_EVERY = 250;
/** Bytes that tensors may take; a browser tells its memory in GiB, and never more than 8. */
const BYTES = ((navigator.deviceMemory ?? 4) / 4) * 2 ** 30;
/** What a run of a graph costs, about, for the progress; that of `extract` is in `forward`. */
const WORK = { forward: 2, backward: 1, reconstruct: 1 };
const SHARES = [1, 3 / 4, 1 / 2, 1 / 3, 1 / 4, 1 / 6];

let film = null;
let about = null;
let provider = null;

const tell = (kind, content = {}, transfer = []) => postMessage({ kind, ...content }, transfer);

const JOBS = { prepare, look, restore };
addEventListener("message", async ({ data }) => {
  try {
    await JOBS[data.job](data);
  } catch (error) {
    tell("failed", { text: words(error), ours: error instanceof Unusable });
  }
});

function words(error) {
  if (error instanceof Unusable) return error.message;
  const text = String(error?.message ?? error);
  if (/memory|allocation|bad_alloc|RangeError/i.test(`${error?.name} ${text}`)) return "The browser ran out of memory. Choose a smaller size, or use `pahs deblur` for this video.";
  if (/fetch|import|404/i.test(text)) return `A file of this page could not be loaded (${text}). Write the folder again with \`pahs export\`.`;
  return text;
}

/** What the page needs to say before a film is chosen. */
async function prepare({ wanted }) {
  about = await (await fetched("graphs/model.json")).json();
  const adapter = wanted === "wasm" ? null : await navigator.gpu?.requestAdapter().catch(() => null);
  // A fallback adapter is no GPU: the processor plays one, and is faster without the play.
  provider = adapter && (wanted === "webgpu" || !adapter.info?.isFallbackAdapter) ? "webgpu" : "wasm";
  tell("ready", { about, provider, threads: threads(), gpu: adapter?.info?.description || adapter?.info?.vendor || "" });
}

const threads = () => (crossOriginIsolated ? Math.min(MOST_THREADS, navigator.hardwareConcurrency || 1) : 1);

async function fetched(path) {
  const found = await fetch(path);
  if (!found.ok) throw new Unusable(`${path} is missing from this page's folder. Write it again with \`pahs export\`.`);
  return found;
}

async function look({ files }) {
  film = await open(files);
  const { width, height, seconds, rate } = film.facts;
  if (Math.min(width, height) < about.min_size) throw new Unusable(`The picture is ${width} × ${height}; the smallest is ${about.min_size} × ${about.min_size}.`);
  const sizes = SHARES.map((share) => ({ share, width: Math.round(width * share), height: Math.round(height * share) }))
    .filter((size) => Math.min(size.width, size.height) >= about.min_size && chunkFor(about, size.width, size.height, BYTES));
  if (!sizes.length) throw new Unusable(`The picture is too large for a browser: ${width} × ${height}. Use \`pahs deblur\` for this video.`);
  const pictures = film.pictures({ start: 0, end: Math.max(seconds, 1 / rate), width: sizes[0].width, height: sizes[0].height });
  const { value: first } = await pictures.next();
  await pictures.return();
  if (!first) throw new Unusable(`${film.facts.name} has no picture that this browser can decode.`);
  tell("looked", { facts: film.facts, sizes, picture: first.pixels, width: first.width, height: first.height }, [first.pixels.buffer]);
}

async function sessions() {
  const use = async (name) => {
    const ort = await import(RUNTIMES[name]);
    ort.env.wasm.wasmPaths = new URL("./runtime/", import.meta.url).href;
    ort.env.wasm.numThreads = threads();
    const options = { executionProviders: [name], graphOptimizationLevel: "all", logSeverityLevel: 3 };
    const opened = {};
    for (const graph of about.graphs) {
      const bytes = new Uint8Array(await (await fetched(`graphs/${graph.files[0].name}`)).arrayBuffer());
      opened[graph.name] = await ort.InferenceSession.create(bytes, options);
    }
    return { ort, opened };
  };
  try {
    return await use(provider);
  } catch (error) {
    if (provider === "wasm" || error instanceof Unusable) throw error;
    provider = "wasm";
    tell("provider", { provider, threads: threads(), text: "WebGPU does not run these graphs here; the processor does." });
    return use(provider);
  }
}

async function restore({ start, end, width, height, png }) {
  tell("stage", { text: "Loading the network" });
  const { ort, opened } = await sessions();
  const network = new Network(ort, about, opened, chunkFor(about, width, height, BYTES));
  const part = { start, end, width, height };
  const rate = film.facts.rate;
  // Encoders take even sides; the page's player expects both pictures above each other.
  const [wide, high] = [width + (width % 2), height + (height % 2)];
  const result = await Film.start(width, height, rate, film.sound);
  const both = await Film.start(wide, 2 * high, rate);
  const frames = png ? new Zip() : null;
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  let [done, shown, work] = [0, 0, 0];
  const total = Math.max(1, Math.round((end - start) * rate));
  const planned = workOf(network, total);
  const note = (graph) => {
    work += WORK[graph];
    tell("ran", { share: Math.min(1, work / planned) });
  };
  const sound = film.sound ? result.addSound(film.packets(part)) : null;
  for await (const { source, before, after } of network.restore(film.pictures(part), note)) {
    await result.add(after, width, height, source.time, source.duration);
    await both.add(stacked(before, after, width, height, wide, high), wide, 2 * high, done / rate, 1 / rate);
    done += 1;
    note("reconstruct");
    if (frames) {
      context.putImageData(new ImageData(after, width, height), 0, 0);
      await frames.add(`${String(done).padStart(5, "0")}.png`, await canvas.convertToBlob({ type: "image/png" }));
    }
    const now = performance.now();
    const show = now - shown > SHOWN_EVERY;
    if (show) shown = now;
    tell("restored", { done, total: Math.max(total, done), width, height, before: show ? before : null, after: show ? after : null });
  }
  if (!done) throw new Unusable("That part of the video has no frames; choose another one.");
  tell("stage", { text: "Writing the files" });
  await sound;
  tell("done", {
    video: await result.finish(), lost: result.lost, frames: frames?.finish() ?? null, provider,
    preview: { video: await both.finish(), width, height, offset: high, frames: done, rate, start },
  });
}

/** Work for a film of so many frames: the backward sweeps see frames of the look-ahead several times. */
function workOf({ chunk, about: { look_ahead: ahead }, graphs }, total) {
  let work = total * (WORK.forward + WORK.reconstruct);
  if (graphs.has("backward")) for (let done = 0; done < total; done += chunk) work += WORK.backward * Math.min(chunk + ahead, total - done);
  return work;
}

/** Both pictures in one, the restored one below. */
function stacked(before, after, width, height, wide, high) {
  const pixels = new Uint8ClampedArray(4 * wide * 2 * high);
  for (const [place, picture] of [before, after].entries()) {
    for (let y = 0; y < height; y += 1) pixels.set(picture.subarray(4 * width * y, 4 * width * (y + 1)), 4 * wide * (y + place * high));
  }
  return pixels;
}
