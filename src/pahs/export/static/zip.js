// Files in a ZIP archive, stored as they are: pictures are compressed already.

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
  return value;
});

function checksum(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) value = TABLE[(value ^ byte) & 255] ^ (value >>> 8);
  return (value ^ 0xffffffff) >>> 0;
}

/** Numbers in little endian: each is [value, bytes]. */
function numbers(...fields) {
  const view = new DataView(new ArrayBuffer(fields.reduce((sum, [, size]) => sum + size, 0)));
  let at = 0;
  for (const [value, size] of fields) {
    if (size === 2) view.setUint16(at, value, true);
    else view.setUint32(at, value, true);
    at += size;
  }
  return view.buffer;
}

export class Zip {
  pieces = [];
  directory = [];
  size = 0;
  count = 0;

  async add(name, blob) {
    const label = new TextEncoder().encode(name);
    const sum = checksum(new Uint8Array(await blob.arrayBuffer()));
    // Version 2.0, names in UTF-8, stored, the first of January 1980.
    const about = [[20, 2], [0x800, 2], [0, 2], [0, 2], [0x21, 2], [sum, 4], [blob.size, 4], [blob.size, 4], [label.length, 2], [0, 2]];
    this.pieces.push(numbers([0x04034b50, 4], ...about), label, blob);
    this.directory.push(numbers([0x02014b50, 4], [20, 2], ...about, [0, 2], [0, 2], [0, 2], [0, 4], [this.size, 4]), label);
    this.size += 30 + label.length + blob.size;
    this.count += 1;
  }

  finish() {
    const directory = new Blob(this.directory);
    const end = numbers([0x06054b50, 4], [0, 2], [0, 2], [this.count, 2], [this.count, 2], [directory.size, 4], [this.size, 4], [0, 2]);
    return new Blob([...this.pieces, directory, end], { type: "application/zip" });
  }
}
