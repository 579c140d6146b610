import { Area, Reader } from "./record";

// Functions of the host. What a guest does not call is not imported, so that it
// needs no grant for it.

@external("weir_v1", "log") declare function importLog(level: i32, p: usize, n: i32): void;
@external("weir_v1", "log_level") declare function importLogLevel(): i32;
@external("weir_v1", "now_ms") declare function importNow(): i64;
@external("weir_v1", "mono_ns") declare function importMono(): i64;
@external("weir_v1", "random") declare function importRandom(p: usize, n: i32): i32;
@external("weir_v1", "sha256") declare function importSHA256(p: usize, n: i32, out: usize): i32;
@external("weir_v1", "hmac") declare function importHMAC(key: usize, keyN: i32, p: usize, n: i32, out: usize): i64;
@external("weir_v1", "kv_get") declare function importGet(key: usize, keyN: i32, out: usize, cap: i32): i64;
@external("weir_v1", "kv_set") declare function importSet(key: usize, keyN: i32, p: usize, n: i32, ttl: i64): i64;
@external("weir_v1", "kv_incr") declare function importIncr(key: usize, keyN: i32, delta: i64, ttl: i64): i64;
@external("weir_v1", "metric") declare function importMetric(name: usize, n: i32, kind: i32, delta: i64): i32;

@external("weir_v1", "http_call") declare function importFetch(p: usize, n: i32, out: usize, cap: i32): i64;
@external("weir_v1", "call_tool") declare function importTool(p: usize, n: i32, out: usize, cap: i32): i64;
@external("weir_v1", "answer") declare function importAnswer(out: usize, cap: i32): i64;
@external("weir_v1", "emit") declare function importEmit(name: usize, nameN: i32, p: usize, n: i32): i32;

/** What functions of the host return below zero. */
export const ErrNotFound = -1;
export const ErrDenied = -2;
export const ErrLimit = -3;
export const ErrArgument = -4;
export const ErrUnavailable = -5;
/** Of fetch: why there is no answer. */
export const ErrTimeout = -6;
export const ErrRefused = -7;
export const ErrName = -8;
export const ErrTLS = -9;

/** What such a number means. */
export function failure(n: i64): string {
  switch (<i32>n) {
    case ErrNotFound: return "not found";
    case ErrDenied: return "not granted";
    case ErrLimit: return "above the limit";
    case ErrArgument: return "bad argument";
    case ErrUnavailable: return "not available";
    case ErrTimeout: return "no answer in time";
    case ErrRefused: return "connection refused";
    case ErrName: return "no such host";
    case ErrTLS: return "TLS failed";
  }
  return "host function failed";
}

function log(level: i32, text: string): void {
  const b = String.UTF8.encode(text);
  importLog(level, changetype<usize>(b), b.byteLength);
}

/** Is what the language calls where it gives up: writes why and where to the log, and ends the guest. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  log(3, (message === null ? "given up" : message) + ", " + (file === null ? "" : file) + ":" + line.toString() + ":" + column.toString());
  unreachable();
}

/** Writes a line of the log that only matters to whoever looks for it. */
export function debug(text: string): void {
  log(0, text);
}
/** Writes a line of the log, of at most 4 KiB. */
export function info(text: string): void {
  log(1, text);
}
/** Writes a line of the log that somebody should look at. */
export function warn(text: string): void {
  log(2, text);
}
/** Writes a line of the log about what does not work. */
export function error(text: string): void {
  log(3, text);
}

/** The least level that is written, 0 for debug to 3 for error. */
export function logLevel(): i32 {
  return importLogLevel();
}

/** The time, in milliseconds since 1970 UTC. */
export function nowMillis(): i64 {
  return importNow();
}

/** A time in nanoseconds that never goes backwards. */
export function monotonic(): i64 {
  return importMono();
}

/** Fills bytes, at most 4096, at random; 0 or a failure. Grant random. */
export function random(to: Uint8Array): i32 {
  return importRandom(to.dataStart, to.byteLength);
}

/** The SHA-256 of the UTF-8 text of a string. */
export function sha256(text: string): Uint8Array {
  const b = String.UTF8.encode(text), sum = new Uint8Array(32);
  importSHA256(changetype<usize>(b), b.byteLength, sum.dataStart);
  return sum;
}

/** HMAC-SHA256 under the secret of a name, null where there is none. Grant keys. */
export function hmac(key: string, text: string): Uint8Array | null {
  const k = String.UTF8.encode(key), b = String.UTF8.encode(text), sum = new Uint8Array(32);
  const n = importHMAC(changetype<usize>(k), k.byteLength, changetype<usize>(b), b.byteLength, sum.dataStart);
  return n < 0 ? null : sum;
}

/** The value of a key, null where there is none. Grant kv. */
export function kvGet(key: string): string | null {
  const k = String.UTF8.encode(key);
  let b = new ArrayBuffer(256);
  let n = importGet(changetype<usize>(k), k.byteLength, changetype<usize>(b), b.byteLength);
  while (n > <i64>b.byteLength) {
    b = new ArrayBuffer(<i32>n);
    n = importGet(changetype<usize>(k), k.byteLength, changetype<usize>(b), b.byteLength);
  }
  return n < 0 ? null : String.UTF8.decodeUnsafe(changetype<usize>(b), <usize>n);
}

/** Sets the value of a key, at most 64 KiB, for at most 24 hours; 0 or a failure. Grant kv. */
export function kvSet(key: string, value: string, millis: i64): i64 {
  const k = String.UTF8.encode(key), b = String.UTF8.encode(value);
  return importSet(changetype<usize>(k), k.byteLength, changetype<usize>(b), b.byteLength, millis);
}

/** Adds to a number in one step; the sum, or a failure below zero. Grant kv. */
export function kvAdd(key: string, n: i64, millis: i64): i64 {
  const k = String.UTF8.encode(key);
  return importIncr(changetype<usize>(k), k.byteLength, n, millis);
}

/** Adds to a counter; 0 or a failure. Grant metrics. */
export function count(name: string, delta: i64): i32 {
  const b = String.UTF8.encode(name);
  return importMetric(changetype<usize>(b), b.byteLength, 0, delta);
}

/** Sets a gauge; 0 or a failure. Grant metrics. */
export function gauge(name: string, value: i64): i32 {
  const b = String.UTF8.encode(name);
  return importMetric(changetype<usize>(b), b.byteLength, 1, value);
}

/** An HTTP request to another party. */
export class Fetch {
  method: string = "GET";
  /** Names and values in turn. */
  headers: string[] = [];
  body: string = "";
  /** Milliseconds that it may take; 0 for the host's limit. */
  millis: u64 = 0;
  constructor(public url: string) {}
}

/** The answer to one. */
export class Fetched {
  /** 0, or why there is no answer. */
  failed: i64 = 0;
  status: i32 = 0;
  /** Names, in lower case, and values in turn. */
  headers: string[] = [];
  body: string = "";

  /** The first value of a header, whose name is in lower case. */
  header(name: string): string {
    for (let i = 0; i + 1 < this.headers.length; i += 2) if (this.headers[i] == name) return this.headers[i + 1];
    return "";
  }
}

/** What a tool answered. */
export class ToolAnswer {
  /** 0, or why there is no answer. */
  failed: i64 = 0;
  /** The result as JSON text; empty when there is an error. */
  result: string = "";
  /** The error object as JSON text; empty when there is a result. */
  error: string = "";
}

const question = new Area(256);
const reply = new Area(1024);

// Asks others what is in question; what they answer is in reply then. How many
// bytes that is, or a failure.
function asked(tool: bool): i64 {
  reply.len = 0;
  reply.more(1024);
  let n = tool ? importTool(question.ptr, question.len, reply.ptr, reply.room) : importFetch(question.ptr, question.len, reply.ptr, reply.room);
  if (n > <i64>reply.room) {
    reply.len = 0;
    reply.more(<i32>n);
    n = importAnswer(reply.ptr, reply.room);
  }
  return n;
}

function line(to: Area, name: string, value: string): void {
  const h = new Area(64 + 3 * (name.length + value.length));
  h.string(1, name);
  h.string(2, value);
  to.bytes(3, h.ptr, h.len);
  heap.free(h.ptr);
}

function part(r: Reader): string {
  return String.UTF8.decodeUnsafe(r.ptr, r.len);
}

/** Sends a request to a host that is granted, and waits for the answer. Redirects are not followed. Grant http, and a function that is blocking. */
export function fetch(q: Fetch): Fetched {
  question.len = 0;
  question.string(1, q.method);
  question.string(2, q.url);
  for (let i = 0; i + 1 < q.headers.length; i += 2) line(question, q.headers[i], q.headers[i + 1]);
  question.string(4, q.body);
  if (q.millis) question.number(5, q.millis);
  const n = asked(false), a = new Fetched();
  if (n < 0) {
    a.failed = n;
    return a;
  }
  const r = new Reader().of(reply.ptr, <i32>n);
  while (r.next()) {
    if (r.field == 1) a.status = <i32>r.number;
    else if (r.field == 3) a.body = part(r);
    else if (r.field == 2) {
      const h = new Reader().of(r.ptr, r.len);
      while (h.next()) a.headers.push(part(h));
    }
  }
  return a;
}

/** Calls a tool, by the name that clients see, for the client whose message the function is asked about; json is an object. Grant tools, and a function that is blocking. */
export function callTool(name: string, json: string): ToolAnswer {
  question.len = 0;
  question.string(1, name);
  if (json != "") question.string(2, json);
  const n = asked(true), a = new ToolAnswer();
  if (n < 0) {
    a.failed = n;
    return a;
  }
  const r = new Reader().of(reply.ptr, <i32>n);
  while (r.next()) {
    if (r.field == 1) a.result = part(r);
    else if (r.field == 2) a.error = part(r);
  }
  return a;
}

/** Tells of an event, with JSON text of at most 4 KiB; 0 or a failure. Grant events. */
export function emit(name: string, json: string): i32 {
  const k = String.UTF8.encode(name), b = String.UTF8.encode(json);
  return importEmit(changetype<usize>(k), k.byteLength, changetype<usize>(b), b.byteLength);
}
