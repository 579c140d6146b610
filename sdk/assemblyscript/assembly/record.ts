// Records: the wire format of Protocol Buffers, and memory that grows.

/** Bytes that a record is written into. */
@final export class Area {
  ptr: usize;
  room: i32;
  len: i32 = 0;

  constructor(room: i32) {
    this.ptr = heap.alloc(room);
    this.room = room;
  }

  /** Room for n more bytes: where they go. */
  more(n: i32): usize {
    if (this.len + n > this.room) {
      let room = this.room;
      while (room < this.len + n) room *= 2;
      this.ptr = heap.realloc(this.ptr, room);
      this.room = room;
    }
    const p = this.ptr + this.len;
    this.len += n;
    return p;
  }

  varint(v: u64): void {
    let p = this.more(size(v));
    for (; v >= 0x80; v >>= 7) store<u8>(p++, <u8>v | 0x80);
    store<u8>(p, <u8>v);
  }

  number(field: i32, v: u64): void {
    this.varint(<u64>(field << 3));
    this.varint(v);
  }

  /** A string; fields have numbers below 16. */
  string(field: i32, s: string): void {
    const before = this.len, start = this.more(5 + 3 * s.length);
    store<u8>(start, <u8>((field << 3) | 2));
    const end = encode(s, start + 5);
    four(start + 1, <i32>(end - start - 5));
    this.len = before + <i32>(end - start);
  }

  bytes(field: i32, from: usize, n: i32): void {
    this.varint(<u64>((field << 3) | 2));
    this.varint(<u64>n);
    memory.copy(this.more(n), from, n);
  }
}

/** Writes a string that is not empty, with its length in four bytes: it is known when the text is written. Returns where it ends. */
export function write(p: usize, field: i32, s: string): usize {
  if (s.length == 0) return p;
  store<u8>(p, <u8>((field << 3) | 2));
  const end = encode(s, p + 5);
  four(p + 1, <i32>(end - p - 5));
  return end;
}

/** Copies bytes. For a few, memory.copy costs more than to copy them here. */
export function copy(to: usize, from: usize, n: i32): void {
  if (n > 64) {
    memory.copy(to, from, n);
    return;
  }
  for (; n >= 8; n -= 8, from += 8, to += 8) store<u64>(to, load<u64>(from));
  for (; n > 0; n--) store<u8>(to++, load<u8>(from++));
}

/** Writes a number that is not zero, and returns where it ends. */
export function writeNumber(p: usize, field: i32, v: u64): usize {
  if (v == 0) return p;
  store<u8>(p++, <u8>(field << 3));
  for (; v >= 0x80; v >>= 7) store<u8>(p++, <u8>v | 0x80);
  store<u8>(p, <u8>v);
  return p + 1;
}

// Writes the UTF-8 text of a string, for which there is room: four characters at
// a time as long as they are ASCII. Returns where it ends.
function encode(s: string, to: usize): usize {
  let from = changetype<usize>(s);
  const end = from + (<usize>s.length << 1);
  while (end - from >= 8) {
    let four = load<u64>(from);
    if (four & 0xff80ff80ff80ff80) break;
    four = (four | (four >> 8)) & 0x0000ffff0000ffff;
    store<u32>(to, <u32>(four | (four >> 16)));
    from += 8;
    to += 4;
  }
  for (; from < end; from += 2) {
    const c = load<u16>(from);
    if (c >= 0x80) return to + String.UTF8.encodeUnsafe(from, <i32>((end - from) >> 1), to, false, String.UTF8.ErrorMode.REPLACE);
    store<u8>(to++, <u8>c);
  }
  return to;
}

/** Writes a number in four bytes. */
export function four(p: usize, n: i32): void {
  store<u32>(p, (n & 0x7f) | ((n & 0x3f80) << 1) | ((n & 0x1fc000) << 2) | ((n & 0xfe00000) << 3) | 0x808080);
}

export function size(v: u64): i32 {
  let n = 1;
  for (; v >= 0x80; v >>= 7) n++;
  return n;
}

/** Reads the fields of a record. One is enough for everything that is read at a time. */
@final export class Reader {
  p: usize = 0;
  end: usize = 0;
  field: i32 = 0;
  number: u64 = 0;
  ptr: usize = 0;
  len: i32 = 0;

  of(ptr: usize, len: i32): this {
    this.p = ptr;
    this.end = ptr + len;
    return this;
  }

  /** Goes to the next field; false at the end, or where the record is malformed. */
  next(): bool {
    while (this.p < this.end) {
      // Most keys and lengths are one byte: those are read here.
      const q = this.p;
      if (q + 2 <= this.end) {
        const k = <i32>load<u8>(q), l = <i32>load<u8>(q, 1);
        if ((k & 0x87) == 2 && l < 0x80 && q + 2 + l <= this.end) {
          this.field = k >> 3;
          this.ptr = q + 2;
          this.len = l;
          this.p = q + 2 + l;
          return true;
        }
      }
      const key = this.varint();
      this.field = <i32>(key >> 3);
      this.number = 0;
      this.ptr = this.p;
      this.len = 0;
      let n: u64 = 0;
      switch (<i32>key & 7) {
        case 0:
          this.number = this.varint();
          return true;
        case 2:
          n = this.varint();
          if (n > <u64>(this.end - this.p)) return false;
          this.ptr = this.p;
          this.len = <i32>n;
          this.p += <usize>n;
          return true;
        case 1: n = 8; break;
        case 5: n = 4; break;
        default: return false;
      }
      if (n > <u64>(this.end - this.p)) return false;
      this.p += <usize>n;
    }
    return false;
  }

  private varint(): u64 {
    let v: u64 = 0;
    for (let shift: u64 = 0; this.p < this.end && shift < 64; shift += 7) {
      const c = load<u8>(this.p++);
      v |= <u64>(c & 0x7f) << shift;
      if (c < 0x80) return v;
    }
    this.p = this.end;
    return v;
  }
}
