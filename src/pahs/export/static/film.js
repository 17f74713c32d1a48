// Video files and pictures in, video files out: frame by frame, with the codecs of the browser.

import * as media from "./runtime/mediabunny.min.mjs";

export class Unusable extends Error {}

/** A file whose pixels look like those of the network: the bits of a camera rather than those of a stream. */
const BITS_PER_PIXEL = 0.4;
const LEAST_BITS = 2e6;
const CODECS = ["avc", "vp9", "av1", "hevc", "vp8"];

/** What was chosen: one video, or pictures of one size in the order of their names. */
export async function open(files) {
  return files.length === 1 && !files[0].type.startsWith("image/") ? Video.open(files[0]) : Pictures.open(files);
}

class Video {
  static async open(file) {
    const film = new Video();
    const input = new media.Input({ source: new media.BlobSource(file), formats: media.ALL_FORMATS });
    if (!(await input.canRead())) throw new Unusable(`${file.name} is no video file that a browser reads: MP4, MOV, WebM, MKV or MPEG-TS.`);
    film.track = await input.getPrimaryVideoTrack();
    if (!film.track) throw new Unusable(`${file.name} has no picture in it.`);
    const codec = await film.track.getCodec();
    if (!(await film.track.canDecode())) throw new Unusable(`This browser cannot decode the ${codec ?? "unknown"} video in ${file.name}; \`pahs deblur\` can.`);
    film.sound = await input.getPrimaryAudioTrack();
    const metrics = await film.track.computeFrameRateMetrics();
    film.first = await film.track.getFirstTimestamp();
    film.facts = {
      name: file.name, bytes: file.size, codec,
      width: await film.track.getDisplayWidth(), height: await film.track.getDisplayHeight(),
      seconds: (await film.track.computeDuration()) - film.first, rate: metrics.bestGuessFrameRate,
      sound: film.sound ? await film.sound.getCodec() : null,
      deep: await film.track.hasHighDynamicRange(),
    };
    return film;
  }

  /** Pictures from `start` until `end`, in seconds, of this size. */
  async *pictures({ start, end, width, height }) {
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false });
    context.imageSmoothingQuality = "high";
    let origin = null;
    for await (const sample of new media.VideoSampleSink(this.track).samples(this.first + start, this.first + end)) {
      // The frame that is shown at `start` may have begun before it.
      origin ??= Math.max(sample.timestamp, this.first + start);
      const time = Math.max(0, sample.timestamp - origin);
      const { duration } = sample;
      sample.draw(context, 0, 0, width, height);
      sample.close();
      yield { pixels: context.getImageData(0, 0, width, height).data, width, height, time, duration };
    }
  }

  /** The sound of that part as it is, packet by packet. */
  async *packets({ start, end }) {
    const sink = new media.EncodedPacketSink(this.sound);
    for await (const packet of sink.packets()) {
      const time = packet.timestamp - this.first - start;
      if (time >= end - start) break;
      if (time >= -packet.duration / 2) yield packet.clone({ timestamp: Math.max(0, time) });
    }
  }
}

class Pictures {
  static RATE = 24;

  static async open(files) {
    const film = new Pictures();
    film.files = [...files].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
    const other = film.files.find((file) => !file.type.startsWith("image/"));
    if (other) throw new Unusable(`${other.name} is no picture; choose one video, or pictures that are the frames of one.`);
    const { width, height } = await film.bitmap(0);
    film.sound = null;
    film.facts = {
      name: film.files[0].name.replace(/[\W_]*\d*\.\w+$/, "") || "frames", bytes: film.files.reduce((sum, file) => sum + file.size, 0), codec: "pictures",
      width, height, seconds: film.files.length / Pictures.RATE, rate: Pictures.RATE, sound: null, deep: false,
    };
    return film;
  }

  async bitmap(number) {
    const file = this.files[number];
    try {
      return await createImageBitmap(file, { colorSpaceConversion: "none", premultiplyAlpha: "none" });
    } catch {
      throw new Unusable(`${file.name} is no picture that this browser reads.`);
    }
  }

  async *pictures({ start, end, width, height }) {
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true, alpha: false });
    context.imageSmoothingQuality = "high";
    const first = Math.round(start * Pictures.RATE);
    for (let number = first; number < Math.min(this.files.length, Math.round(end * Pictures.RATE)); number += 1) {
      const bitmap = await this.bitmap(number);
      if (bitmap.width !== this.facts.width || bitmap.height !== this.facts.height) {
        throw new Unusable(`${this.files[number].name} is ${bitmap.width} × ${bitmap.height}, the first picture ${this.facts.width} × ${this.facts.height}; frames have one size.`);
      }
      context.drawImage(bitmap, 0, 0, width, height);
      bitmap.close();
      yield { pixels: context.getImageData(0, 0, width, height).data, width, height, time: (number - first) / Pictures.RATE, duration: 1 / Pictures.RATE };
    }
  }
}

/** An MP4 that grows picture by picture, in pieces that the browser may keep on disk. */
export class Film {
  static async start(width, height, rate, sound = null) {
    const film = new Film();
    const format = new media.Mp4OutputFormat({ fastStart: false });
    const quality = new media.Quality({ bitrate: Math.max(LEAST_BITS, BITS_PER_PIXEL * width * height * rate) });
    const known = CODECS.filter((codec) => format.getSupportedCodecs().includes(codec));
    const codec = await media.getFirstEncodableVideoCodec(known, { width, height, quality, frameRate: rate });
    if (!codec) throw new Unusable(`This browser cannot encode video of ${width} × ${height}.`);
    film.pieces = [];
    film.output = new media.Output({ format, target: new media.StreamTarget(new WritableStream({
      write: ({ data, position }) => void film.pieces.push({ data: new Blob([data]), position }),
    }), { chunked: true, chunkSize: 1 << 22 }) });
    film.video = new media.VideoSampleSource({ codec, quality, keyFrameInterval: 1 });
    film.output.addVideoTrack(film.video);
    film.lost = null;
    const wanted = sound && (await sound.getCodec());
    if (wanted && format.getSupportedCodecs().includes(wanted)) {
      film.audio = new media.EncodedAudioPacketSource(wanted);
      film.meta = { decoderConfig: await sound.getDecoderConfig() };
      film.output.addAudioTrack(film.audio);
    } else if (sound) film.lost = `The sound (${wanted ?? "unknown"}) does not fit into an MP4 and is left out.`;
    await film.output.start();
    return film;
  }

  async add(pixels, width, height, time, duration) {
    const sample = new media.VideoSample(pixels, { format: "RGBX", codedWidth: width, codedHeight: height, timestamp: time, duration });
    await this.video.add(sample);
    sample.close();
  }

  async addSound(packets) {
    if (!this.audio) return;
    for await (const packet of packets) await this.audio.add(packet, this.meta);
    this.audio.close();
  }

  async finish() {
    await this.output.finalize();
    // Later pieces may lie over earlier ones: the length of a part is written once it is known.
    let whole = new Blob([]);
    for (const { data, position } of this.pieces) {
      whole = new Blob([whole.slice(0, position), data, whole.slice(position + data.size)], { type: "video/mp4" });
    }
    return whole;
  }
}
