// What the page says to the server: requests, uploads that go on where they broke off, and live events.

export class Refusal extends Error {}

export async function ask(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "Content-Type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refusal("The server does not answer. Is pahs serve still running?");
  }
  if (answer.status === 401) location.assign("/sign-in");
  const data = answer.status === 204 ? null : await answer.json();
  if (!answer.ok) throw new Refusal(data.error);
  return data;
}

const uploads = new Map();

/** Upload of a job from this page: { sent, total, abort } or undefined. */
export const uploadOf = (id) => uploads.get(id);

/** Send a file, from where the server has it; after a broken connection it goes on by itself. */
export async function send(id, file, onProgress) {
  const upload = { sent: 0, total: file.size, aborted: false, request: null };
  upload.abort = () => {
    upload.aborted = true;
    upload.request?.abort();
  };
  uploads.set(id, upload);
  try {
    for (let failures = 0; !upload.aborted; ) {
      try {
        const job = await ask("GET", `/api/jobs/${id}`);
        if (job.state !== "uploading") return;
        const before = job.received;
        await put(id, file, before, upload, onProgress);
        return;
      } catch (error) {
        if (upload.aborted) return;
        if (error instanceof Refusal && error.final) throw error;
        failures += 1;
        if (failures > 8) throw new Refusal(`${file.name}: the connection broke off too often. Drop it again to go on.`);
        await new Promise((resolve) => setTimeout(resolve, Math.min(500 * 2 ** failures, 8000)));
      }
    }
  } finally {
    uploads.delete(id);
  }
}

function put(id, file, from, upload, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    upload.request = request;
    upload.sent = from;
    request.open("PUT", `/api/jobs/${id}/source`);
    if (from) request.setRequestHeader("Content-Range", `bytes ${from}-${file.size - 1}/${file.size}`);
    request.upload.onprogress = (event) => {
      upload.sent = from + event.loaded;
      onProgress();
    };
    request.onerror = request.onabort = () => reject(new Error("broken"));
    request.onload = () => {
      if (request.status < 300) return resolve();
      const refusal = new Refusal(JSON.parse(request.responseText || "{}").error ?? "The upload failed.");
      refusal.final = request.status !== 409 && request.status < 500 ? true : request.status === 507;
      reject(refusal);
    };
    request.send(from ? file.slice(from) : file);
  });
}

/** Calls back with { all, jobs, removed } for every change; the browser reconnects and says what it has seen. */
export function listen(onChange, onLink) {
  const source = new EventSource("/api/events");
  source.addEventListener("jobs", (event) => onChange(JSON.parse(event.data)));
  source.onopen = () => onLink(true);
  source.onerror = () => {
    onLink(false);
    if (source.readyState === EventSource.CLOSED) setTimeout(() => listen(onChange, onLink), 2000);
  };
}
