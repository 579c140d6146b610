// Text and JSON of the input, read in place.
//
// Views and values are taken from a pool that every call uses anew, so that
// reading makes no garbage. They are valid until the function of the hook
// returns; toString makes a copy that stays.

/** Text of the input, without a copy. */
@final export class View {
  ptr: usize = 0;
  len: i32 = 0;

  /** A copy that stays. */
  toString(): string {
    return decode(this.ptr, this.len);
  }

  get empty(): bool {
    return this.len == 0;
  }

  /** Says whether the text is s. */
  is(s: string): bool {
    return matchAt(this.ptr, this.ptr + this.len, s) == this.ptr + this.len;
  }

  /** Says whether the text begins with s. */
  hasPrefix(s: string): bool {
    return matchAt(this.ptr, this.ptr + this.len, s) != 0;
  }

  /** Says whether the text ends with s. */
  hasSuffix(s: string): bool {
    const n = String.UTF8.byteLength(s);
    const end = this.ptr + this.len;
    return n <= this.len && matchAt(end - n, end, s) == end;
  }

  /** Says whether s is a part of the text. */
  contains(s: string): bool {
    const end = this.ptr + this.len;
    for (let p = this.ptr; p <= end; p++) if (matchAt(p, end, s)) return true;
    return false;
  }

  /** Says whether a pattern, in which * stands for any characters, matches all of the text. */
  matches(pattern: string): bool {
    return glob(pattern, this.toString());
  }
}

/** Says whether a pattern, in which * stands for any characters, matches all of a name. */
export function glob(pattern: string, name: string): bool {
  let p = 0, n = 0, star = -1, mark = 0;
  while (n < name.length) {
    if (p < pattern.length && pattern.charCodeAt(p) == 0x2a) {
      star = p++;
      mark = n;
    } else if (p < pattern.length && pattern.charCodeAt(p) == name.charCodeAt(n)) {
      p++;
      n++;
    } else if (star >= 0) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.length && pattern.charCodeAt(p) == 0x2a) p++;
  return p == pattern.length;
}

// The string of UTF-8 text. Plain ASCII, which most text is, needs no decoding:
// four characters at a time.
function decode(p: usize, n: i32): string {
  let s = __new(n << 1, idof<string>()), to = s;
  let from = p;
  const end = p + n;
  for (; end - from >= 4; from += 4, to += 8) {
    let four = <u64>load<u32>(from);
    if (four & 0x80808080) return String.UTF8.decodeUnsafe(p, n);
    four = (four | (four << 16)) & 0x0000ffff0000ffff;
    store<u64>(to, (four | (four << 8)) & 0x00ff00ff00ff00ff);
  }
  for (; from < end; from++, to += 2) {
    const c = load<u8>(from);
    if (c >= 0x80) return String.UTF8.decodeUnsafe(p, n);
    store<u16>(to, c);
  }
  return changetype<string>(s);
}

// Where the UTF-8 text of s ends, when it begins at p and ends by end; else 0.
export function matchAt(p: usize, end: usize, s: string): usize {
  const n = s.length;
  let i = 0;
  for (; n - i >= 4 && end - p >= 4; i += 4, p += 4) { // four characters at a time, as long as they are ASCII
    let four = load<u64>(changetype<usize>(s) + (i << 1));
    if (four & 0xff80ff80ff80ff80) break;
    four = (four | (four >> 8)) & 0x0000ffff0000ffff;
    if (<u32>(four | (four >> 16)) != load<u32>(p)) return 0;
  }
  for (; i < n; i++) {
    let c = <i32>load<u16>(changetype<usize>(s) + (i << 1));
    if (c < 0x80) {
      if (p >= end || <i32>load<u8>(p++) != c) return 0;
      continue;
    }
    c = s.codePointAt(i);
    if (c > 0xffff) i++;
    const n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    if (p + n > end) return 0;
    let first = n == 2 ? 0xc0 | (c >> 6) : n == 3 ? 0xe0 | (c >> 12) : 0xf0 | (c >> 18);
    if (<i32>load<u8>(p++) != first) return 0;
    for (let k = n - 2; k >= 0; k--) {
      if (<i32>load<u8>(p++) != (0x80 | ((c >> (6 * k)) & 0x3f))) return 0;
    }
  }
  return p;
}

/**
 * JSON text, read in place: nothing is decoded before it is asked for. One that
 * does not exist answers every question with nothing.
 */
@final export class Value {
  ptr: usize = 0;
  len: i32 = 0;

  /** Says whether there is a value; null is one. */
  get exists(): bool {
    return space(this.ptr, this.ptr + this.len) < this.ptr + this.len;
  }

  /** A copy of the JSON text. */
  get json(): string {
    return String.UTF8.decodeUnsafe(this.ptr, this.len);
  }

  private first(): i32 {
    const end = this.ptr + this.len, p = space(this.ptr, end);
    return p < end ? load<u8>(p) : 0;
  }

  get isNull(): bool {
    return this.first() == 0x6e;
  }
  get isTrue(): bool {
    return this.first() == 0x74;
  }
  get isText(): bool {
    return this.first() == 0x22;
  }
  get isArray(): bool {
    return this.first() == 0x5b;
  }
  get isObject(): bool {
    return this.first() == 0x7b;
  }

  /** The text of a string; "" for anything else. */
  get text(): string {
    const end = this.ptr + this.len;
    let p = space(this.ptr, end);
    if (p >= end || load<u8>(p) != 0x22) return "";
    let after = skip(p, end);
    if (after - p < 2 || load<u8>(after - 1) != 0x22) return "";
    p++;
    after--;
    let q = p;
    while (q < after && load<u8>(q) != 0x5c) q++;
    if (q == after) return decode(p, <i32>(after - p));
    return unescape(p, after);
  }

  /** Says whether it is the string s. */
  is(s: string): bool {
    const end = this.ptr + this.len;
    let p = space(this.ptr, end);
    if (p >= end || load<u8>(p) != 0x22) return false;
    const after = skip(p, end) - 1;
    if (<isize>(after - p) < 1 || load<u8>(after) != 0x22) return false;
    for (let q = ++p; q < after; q++) if (load<u8>(q) == 0x5c) return this.text == s;
    return matchAt(p, after, s) == after;
  }

  /** The value of a number, NaN for anything else. */
  get number(): f64 {
    const c = this.first();
    if (c != 0x2d && (c < 0x30 || c > 0x39)) return NaN;
    const end = this.ptr + this.len, p = space(this.ptr, end);
    return parseFloat(String.UTF8.decodeUnsafe(p, skip(p, end) - p));
  }

  /** The member of an object with a name, or a value that does not exist. */
  get(name: string): Value {
    for (let m = this.members(); m.next(); ) if (m.name.is(name)) return m.value;
    return none();
  }

  /** Goes over the elements of an array: for (let e = v.elements(); e.next(); ) … e.value */
  elements(): Elements {
    return new Elements(this);
  }

  /** Goes over the members of an object: for (let m = v.members(); m.next(); ) … m.name, m.value */
  members(): Members {
    return new Members(this);
  }

  /** The value behind a JSON pointer (RFC 6901), or one that does not exist. */
  at(pointer: string): Value {
    if (pointer == "") return this;
    if (pointer.charCodeAt(0) != 0x2f) return none();
    const tokens = pointer.split("/");
    let v: Value = this;
    for (let i = 1; i < tokens.length; i++) {
      const token = tokens[i];
      v = v.isArray ? v.element(token) : v.get(token.includes("~") ? token.replaceAll("~1", "/").replaceAll("~0", "~") : token);
    }
    return v;
  }

  private element(token: string): Value {
    if (token.length == 0 || token.length > 9 || (token.length > 1 && token.charCodeAt(0) == 0x30)) return none();
    let index = 0;
    for (let i = 0; i < token.length; i++) {
      const c = token.charCodeAt(i);
      if (c < 0x30 || c > 0x39) return none();
      index = index * 10 + c - 0x30;
    }
    for (let e = this.elements(); e.next(); ) if (index-- == 0) return e.value;
    return none();
  }
}

/** Goes over the elements of an array. */
@final export class Elements {
  value: Value = none();
  private p: usize = 0;
  private end: usize = 0;

  constructor(from: Value) {
    this.end = from.ptr + from.len;
    const p = space(from.ptr, this.end);
    this.p = p < this.end && load<u8>(p) == 0x5b ? space(p + 1, this.end) : this.end;
  }

  next(): bool {
    let p = this.p;
    if (this.value.ptr != 0) {
      p = space(p, this.end);
      if (p < this.end && load<u8>(p) == 0x2c) p = space(p + 1, this.end);
    }
    if (p >= this.end || load<u8>(p) == 0x5d) return false;
    this.p = skip(p, this.end);
    this.value = value(p, <i32>(this.p - p));
    return this.p > p;
  }
}

/** Goes over the members of an object. */
@final export class Members {
  name: Value = none();
  value: Value = none();
  private p: usize = 0;
  private end: usize = 0;

  constructor(from: Value) {
    this.end = from.ptr + from.len;
    const p = space(from.ptr, this.end);
    this.p = p < this.end && load<u8>(p) == 0x7b ? space(p + 1, this.end) : this.end;
  }

  next(): bool {
    let p = this.p;
    const end = this.end;
    if (this.value.ptr != 0) {
      p = space(p, end);
      if (p < end && load<u8>(p) == 0x2c) p = space(p + 1, end);
    }
    if (p >= end || load<u8>(p) != 0x22) return false;
    let after = skip(p, end);
    this.name = value(p, <i32>(after - p));
    p = space(after, end);
    if (p >= end || load<u8>(p) != 0x3a) return false;
    p = space(p + 1, end);
    this.p = after = skip(p, end);
    this.value = value(p, <i32>(after - p));
    return after > p;
  }
}

function isSpace(c: u8): bool {
  return c == 0x20 || c == 0x0a || c == 0x09 || c == 0x0d;
}

function isEnd(c: u8): bool {
  return isSpace(c) || c == 0x2c || c == 0x3a || c == 0x22 || c == 0x7b || c == 0x7d || c == 0x5b || c == 0x5d;
}

function space(p: usize, end: usize): usize {
  while (p < end && isSpace(load<u8>(p))) p++;
  return p;
}

// What follows the value that p begins with.
function skip(p: usize, end: usize): usize {
  let depth = 0;
  while (p < end) {
    const c = load<u8>(p);
    if (c == 0x22) {
      for (p++; p < end && load<u8>(p) != 0x22; p++) if (load<u8>(p) == 0x5c) p++;
      p = p < end ? p + 1 : end;
    } else if (c == 0x7b || c == 0x5b) {
      depth++;
      p++;
    } else if (c == 0x7d || c == 0x5d) {
      if (--depth < 0) return p;
      p++;
    } else {
      const from = p;
      while (p < end && !isEnd(load<u8>(p))) p++;
      if (p == from) {
        if (depth == 0) return p;
        p++;
        continue;
      }
    }
    if (depth == 0) return p;
  }
  return end;
}

function hex4(p: usize, end: usize): i32 {
  if (p + 4 > end) return 0xfffd;
  let r = 0;
  for (let i = 0; i < 4; i++) {
    const c = <i32>load<u8>(p + i), low = c | 0x20;
    if (c >= 0x30 && c <= 0x39) r = (r << 4) | (c - 0x30);
    else if (low >= 0x61 && low <= 0x66) r = (r << 4) | (low - 0x57);
    else return 0xfffd;
  }
  return r;
}

function unescape(p: usize, end: usize): string {
  let out = "", from = p;
  while (p < end) {
    if (load<u8>(p) != 0x5c || p + 1 == end) {
      p++;
      continue;
    }
    out += String.UTF8.decodeUnsafe(from, p - from);
    p++;
    switch (load<u8>(p++)) {
      case 0x62: out += "\b"; break;
      case 0x66: out += "\f"; break;
      case 0x6e: out += "\n"; break;
      case 0x72: out += "\r"; break;
      case 0x74: out += "\t"; break;
      case 0x75: {
        let r = hex4(p, end);
        p += min<usize>(4, end - p);
        if (r >= 0xd800 && r < 0xdc00) {
          const low = p + 6 <= end && load<u8>(p) == 0x5c && load<u8>(p + 1) == 0x75 ? hex4(p + 2, end) : 0;
          if (low >= 0xdc00 && low < 0xe000) {
            r = 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00);
            p += 6;
          } else {
            r = 0xfffd;
          }
        } else if (r >= 0xdc00 && r < 0xe000) {
          r = 0xfffd;
        }
        out += String.fromCodePoint(r);
        break;
      }
      default: out += String.UTF8.decodeUnsafe(p - 1, 1); break;
    }
    from = p;
  }
  return out + String.UTF8.decodeUnsafe(from, p - from);
}

/** The JSON text of a string. */
export function quote(s: string): string {
  let plain = true;
  for (let i = 0; i < s.length && plain; i++) {
    const c = s.charCodeAt(i);
    plain = c >= 0x20 && c != 0x22 && c != 0x5c;
  }
  if (plain) return '"' + s + '"';
  const hex = "0123456789abcdef";
  let out = '"', from = 0;
  for (let i = 0; i < s.length; i++) {
    const c = s.charCodeAt(i);
    if (c >= 0x20 && c != 0x22 && c != 0x5c) continue;
    out += s.substring(from, i);
    out += c < 0x20 ? "\\u00" + hex.charAt(c >> 4) + hex.charAt(c & 15) : "\\" + s.charAt(i);
    from = i + 1;
  }
  return out + s.substring(from) + '"';
}

// Text of an AssemblyScript string for whoever reads it as JSON (parse).
let parsed: ArrayBuffer = new ArrayBuffer(0);

/** Reads JSON text that does not come from the input. It is valid until the next one is read. */
export function parse(json: string): Value {
  parsed = String.UTF8.encode(json);
  return value(changetype<usize>(parsed), parsed.byteLength);
}

// The pools. What is taken beyond their bound is garbage of the call.
const bound = 256;
const views = new StaticArray<View>(bound), values = new StaticArray<Value>(bound);
for (let i = 0; i < bound; i++) {
  views[i] = new View();
  values[i] = new Value();
}
let viewsUsed = 0, valuesUsed = 0;

export function view(ptr: usize, len: i32): View {
  const v = viewsUsed < bound ? unchecked(views[viewsUsed++]) : new View();
  v.ptr = ptr;
  v.len = len;
  return v;
}

export function value(ptr: usize, len: i32): Value {
  const v = valuesUsed < bound ? unchecked(values[valuesUsed++]) : new Value();
  v.ptr = ptr;
  v.len = len;
  return v;
}

function none(): Value {
  return value(0, 0);
}

/** Begins a call: everything that the last one took is free again, and empty. */
export function freshPools(): void {
  while (viewsUsed > 0) unchecked(views[--viewsUsed]).len = 0;
  while (valuesUsed > 0) unchecked(values[--valuesUsed]).len = 0;
}
