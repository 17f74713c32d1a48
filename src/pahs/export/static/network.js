// The graphs of a folder that `pahs export` wrote, and how they work together: restore.py in JavaScript.

const FLOAT = 4;
const MOST_CHUNK = 32;
const LEAST_CHUNK = 4;

export class TooLarge extends Error {}

/** Width and height as the graphs take them. */
export const padded = (about, width, height) => [width, height].map((side) => Math.ceil(side / about.multiple_of) * about.multiple_of);

/** Names of tensors that a later graph than `name` takes; the others are dropped after it. */
function kept(about, name) {
  const later = about.graphs.slice(about.graphs.findIndex((graph) => graph.name === name) + 1);
  return new Set(["frames", "restored", ...later.flatMap((graph) => graph.inputs.map((port) => port.name))]);
}

/** Frames that one backward sweep restores, as many as fit into so many bytes; 0 where too few fit. */
export function chunkFor(about, width, height, bytes) {
  const [columns, rows] = padded(about, width, height);
  const names = kept(about, "forward");
  const ports = new Map(about.graphs.flatMap((graph) => [...graph.inputs, ...graph.outputs].map((port) => [port.name, port])));
  let frame = 0;
  for (const name of names) {
    const port = ports.get(name);
    if (port) frame += (port.channels * columns * rows * FLOAT) / port.scale ** 2;
  }
  const tokens = (columns * rows) / 256;
  const attention = 3 * tokens * tokens * FLOAT;  // the map of all pairs of tokens, and what softmax makes of it
  const chunk = Math.min(MOST_CHUNK, Math.floor((bytes - attention) / frame) - about.look_ahead);
  return chunk < LEAST_CHUNK ? 0 : chunk;
}

export class Network {
  /** `sessions` has an InferenceSession for the name of each graph. */
  constructor(ort, about, sessions, chunk) {
    this.ort = ort;
    this.about = about;
    this.sessions = sessions;
    this.chunk = chunk;
    this.graphs = new Map(about.graphs.map((graph) => [graph.name, graph]));
    this.reach = Math.max(0, ...about.graphs.flatMap((graph) => graph.inputs.map((port) => port.reach)));
    this.kept = kept(about, "forward");
  }

  /** One graph on frame t of the film; notes what it gives, and returns the next state. */
  async run(name, film, t, last, state) {
    const graph = this.graphs.get(name);
    const now = film.get(t);
    const feed = state ?? Object.fromEntries(graph.state.map((each) => [each.name, this.start(each, now)]));
    for (const port of graph.inputs) {
      const window = [];
      for (let k = t - port.reach; k <= t + port.reach; k += 1) window.push(film.get(Math.min(Math.max(k, 0), last))[port.name]);
      feed[port.name] = this.joined(window);
    }
    Object.assign(now, await this.sessions[name].run(feed));
    return Object.fromEntries(graph.state.map((each) => [each.name, now[each.next]]));
  }

  /** The state before the first frame: zero, or made of that frame's tensors. */
  start(state, first) {
    if (state.start.length) return this.joined(state.start.map((name) => first[name]));
    const [rows, columns] = first.frames.dims.slice(2).map((side) => side / state.scale);
    return new this.ort.Tensor("float32", new Float32Array(state.channels * rows * columns), [1, state.channels, rows, columns]);
  }

  /** Tensors of one frame, stacked along the channels. */
  joined(tensors) {
    if (tensors.length === 1) return tensors[0];
    const values = new Float32Array(tensors.reduce((sum, each) => sum + each.data.length, 0));
    let at = 0;
    for (const each of tensors) {
      values.set(each.data, at);
      at += each.data.length;
    }
    const [, , rows, columns] = tensors[0].dims;
    return new this.ort.Tensor("float32", values, [1, values.length / rows / columns, rows, columns]);
  }

  /** Restored pictures for blurry ones ({ pixels: RGBA, width, height, ... }) of one size, in bounded memory.
   *
   * Yields { source, before, after } with both as RGBA. `note` hears of every run of a graph.
   */
  async *restore(pictures, note = () => {}) {
    const source = pictures[Symbol.asyncIterator]();
    const film = new Map();
    const ahead = this.about.look_ahead;
    const reads = Math.max(...this.graphs.get("extract").inputs.map((port) => port.reach));
    let [seen, known, done, over, state] = [0, 0, 0, false, null];  // frames read, gone through `forward`, restored
    try {
      while (!over || done < seen) {
        while (!over && seen < done + this.chunk + ahead) {
          const { value, done: ended } = await source.next();
          over = Boolean(ended);
          if (over) break;
          const { pixels, ...rest } = value;
          film.set(seen, { frames: this.tensor(pixels, value.width, value.height), source: rest });
          seen += 1;
        }
        for (; known < seen - (over ? 0 : reads); known += 1) {
          await this.run("extract", film, known, seen - 1, null);
          state = await this.run("forward", film, known, seen - 1, state);
          const frame = film.get(known);
          for (const name of Object.keys(frame)) if (name !== "source" && !this.kept.has(name)) delete frame[name];
          note("forward", known + 1);
        }
        if (this.graphs.has("backward")) {
          let back = null;
          for (let t = seen - 1; t >= done; t -= 1) {
            back = await this.run("backward", film, t, seen - 1, back);
            for (const { name } of this.graphs.get("backward").outputs) {
              if (!this.kept.has(name) || t >= done + this.chunk + this.reach) delete film.get(t)[name];
            }
            note("backward", seen - t);
          }
        }
        for (const end = Math.min(done + this.chunk, seen); done < end; done += 1) {
          if (this.graphs.has("reconstruct")) await this.run("reconstruct", film, done, known - 1, null);
          const frame = film.get(done);
          const { width, height } = frame.source;
          yield { source: frame.source, before: picture(frame.frames, width, height), after: picture(frame.restored, width, height) };
          film.delete(done - 2 * this.reach);
        }
      }
    } finally {
      await source.return?.();
    }
  }

  /** RGBA -> floats (1, 3, H, W), padded on the right and below by reflection. */
  tensor(pixels, width, height) {
    const [columns, rows] = padded(this.about, width, height);
    const plane = columns * rows;
    const values = new Float32Array(3 * plane);
    for (let y = 0; y < rows; y += 1) {
      const row = (y < height ? y : 2 * height - 2 - y) * width;
      for (let x = 0, at = y * columns; x < columns; x += 1, at += 1) {
        const from = 4 * (row + (x < width ? x : 2 * width - 2 - x));
        values[at] = pixels[from] / 255;
        values[at + plane] = pixels[from + 1] / 255;
        values[at + 2 * plane] = pixels[from + 2] / 255;
      }
    }
    return new this.ort.Tensor("float32", values, [1, 3, rows, columns]);
  }
}

/** Floats (1, 3, H, W) -> RGBA of the picture without its padding. */
function picture(tensor, width, height) {
  const [, , rows, columns] = tensor.dims;
  const plane = rows * columns;
  const values = tensor.data;
  const pixels = new Uint8ClampedArray(4 * width * height);  // clips to [0, 255] and rounds to the nearest
  for (let y = 0, to = 0; y < height; y += 1) {
    for (let x = 0, at = y * columns; x < width; x += 1, at += 1, to += 4) {
      pixels[to] = values[at] * 255;
      pixels[to + 1] = values[at + plane] * 255;
      pixels[to + 2] = values[at + 2 * plane] * 255;
      pixels[to + 3] = 255;
    }
  }
  return pixels;
}
