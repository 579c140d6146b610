// The call under way: its input and its operations so far.

import { Area, Reader, copy, four, size, write, writeNumber } from "./record";
import { View, Value, view, value, glob, matchAt, freshPools } from "./text";

/** Hooks by number, as they are called in subscriptions. */
export const hookNames: string[] = [
  "on_http_request", "authenticate", "map_identity", "override_tools", "override_prompts", "override_resources", "on_call_request",
  "outgoing_auth", "on_upstream_request", "on_call_response", "on_message", "on_http_response", "on_session_start", "on_session_end", "on_event",
  "on_notification", "on_question",
];

/** What the answer of a hook that is cached depends on, besides its input. */
export const ByTenant = 1;
export const ByGroups = 2;
export const BySubject = 3;

/** Which messages a function is asked about, and what it sees of them. */
export class Wants {
  toolGlobs: string[] = [];
  backendGlobs: string[] = [];
  methodGlobs: string[] = [];
  headerNames: string[] = [];
  pointerList: string[] = [];
  claimList: string[] = [];
  fieldBits: u64 = 0;
  varies: u64 = 0;
  limit: u64 = 0;
  cache: u64 = 0;
  waits: bool = false;
  holds: bool = false;

  /** Only tools, by the names that clients see, that a glob matches. */
  tools(globs: string[]): this {
    this.toolGlobs = globs;
    return this;
  }
  /** Only backends that a glob matches. */
  backends(globs: string[]): this {
    this.backendGlobs = globs;
    return this;
  }
  /** Only methods that a glob matches. It is for onMessage, onNotification and onQuestion. */
  methods(globs: string[]): this {
    this.methodGlobs = globs;
    return this;
  }
  /** The headers that are seen, in lower case. There are no others. */
  headers(names: string[]): this {
    this.headerNames = names;
    return this;
  }
  /** Values of the arguments or the result that are seen, by JSON pointers; selected gives them by their place. */
  pointers(list: string[]): this {
    this.pointerList = list;
    return this;
  }
  /** Claims of the client that are seen, by JSON pointers into its token's; claim gives them by their place. It is for onCall and onOutgoing, and needs the grant claims of every one. */
  claims(list: string[]): this {
    this.claimList = list;
    return this;
  }
  /** The fields that are read, by their numbers in ABI.md; all when there are none. */
  fields(numbers: i32[]): this {
    for (let i = 0; i < numbers.length; i++) this.fieldBits |= <u64>1 << numbers[i];
    return this;
  }
  /** What onOutgoing answers is kept for a time, at most an hour, for all messages to the same backend from clients that variesBy puts together. The function is told of nothing else then. */
  cacheFor(millis: u64): this {
    this.cache = millis;
    return this;
  }
  /** What a call tells before its answer, such as progress, waits until the function has judged the answer: of one that is denied the client hears nothing. It is for onResult and onMessage. A question cannot wait: a guest that holds needs onQuestion, too. */
  hold(): this {
    this.holds = true;
    return this;
  }
  /** The function waits for others, with fetch or callTool. */
  blocking(): this {
    this.waits = true;
    return this;
  }
  /** The answer depends on who asks: ByTenant, ByGroups or BySubject. */
  variesBy(what: u64): this {
    this.varies = what;
    return this;
  }
  /** Arguments of more than n bytes are left out. */
  inlineLimit(n: u64): this {
    this.limit = n;
    return this;
  }
}

/** Begins what a function wants: weir.wants().tools(["delete_*"]) */
export function wants(): Wants {
  return new Wants();
}

// A glob, taken apart: what stands before its first *, and whether there is more.
@final class Glob {
  star: i32;
  prefix: string;
  constructor(public pattern: string) {
    const star = pattern.indexOf("*");
    this.star = star;
    this.prefix = star < 0 ? pattern : pattern.substring(0, star);
  }
}

function globs(patterns: string[]): StaticArray<Glob> {
  const list: Glob[] = [];
  for (let i = 0; i < patterns.length; i++) list.push(new Glob(patterns[i]));
  return StaticArray.fromArray(list);
}

@final class Handler {
  base: i32 = 0;
  claimBase: i32 = 0;
  pointers: i32;
  claims: i32;
  tools: StaticArray<Glob>;
  backends: StaticArray<Glob>;
  methods: StaticArray<Glob>;
  constructor(public run: u32, public w: Wants) {
    this.pointers = w.pointerList.length;
    this.claims = w.claimList.length;
    this.tools = globs(w.toolGlobs);
    this.backends = globs(w.backendGlobs);
    this.methods = globs(w.methodGlobs);
  }
}

const handlers: Handler[][] = [];
for (let i = 0; i < hookNames.length; i++) handlers.push([]);
const inits: u32[] = [];

export function on(hook: i32, run: u32, w: Wants): void {
  handlers[hook].push(new Handler(run, w));
}

export function onStart(run: u32): void {
  inits.push(run);
}

/** What a guest is given when it starts. */
export class Setup {
  name: string = "";
  config: Value = value(0, 0);
  version: u64 = 0;
  grants: string[] = [];

  /** Says whether something is granted: random, kv, metrics, keys, identity, credentials, http, tools, events or claims. */
  granted(grant: string): bool {
    return this.grants.includes(grant);
  }
}

// Where the host writes inputs.
let input: usize = 0;
let inputRoom: i32 = 0;
const output = new Area(1024);

export function buffer(min: i32): usize {
  if (<u32>min > 32 << 20) return 0;
  if (min > inputRoom) {
    if (input) heap.free(input);
    input = heap.alloc(min);
    inputRoom = min;
  }
  return input;
}

function give(a: Area): u64 {
  return a.len ? (<u64>a.ptr << 32) | <u64>a.len : 0;
}

/** Is weir_init: reads an InitRequest, and returns an InitResult. */
export function start(n: i32): u64 {
  const s = new Setup();
  freshPools();
  const r = new Reader().of(input, n);
  while (r.next()) {
    switch (r.field) {
      case 1: s.config = value(r.ptr, r.len); break;
      case 2: s.grants.push(String.UTF8.decodeUnsafe(r.ptr, r.len)); break;
      case 3: s.name = String.UTF8.decodeUnsafe(r.ptr, r.len); break;
      case 4: s.version = r.number; break;
    }
  }
  output.len = 0;
  for (let i = 0; i < inits.length; i++) {
    const wrong = call_indirect<string | null>(inits[i], s);
    if (wrong !== null) {
      output.string(2, wrong);
      return give(output);
    }
  }
  const sub = new Area(1024);
  for (let hook = 0; hook < handlers.length; hook++) {
    if (handlers[hook].length == 0) continue;
    sub.len = 0;
    const wrong = subscribe(sub, hook, handlers[hook]);
    if (wrong != "") {
      output.len = 0;
      output.string(2, wrong);
      return give(output);
    }
    output.bytes(1, sub.ptr, sub.len);
  }
  heap.free(sub.ptr);
  return give(output);
}

const most = 64; // values in a list of a subscription

// The one subscription that covers all functions for a hook. With several of
// them it may cover more than each asked for: ask looks again.
function subscribe(to: Area, hook: i32, all: Handler[]): string {
  const tools: string[] = [], backends: string[] = [], methods: string[] = [], headers: string[] = [], pointers: string[] = [], claims: string[] = [];
  let everyTool = false, everyBackend = false, everyMethod = false, everyField = false;
  let fields: u64 = 0, varies: u64 = 0, inline: u64 = 0, cache: u64 = 0, waits = false, holds = false;
  for (let i = 0; i < all.length; i++) {
    const h = all[i], w = h.w;
    everyTool = everyTool || w.toolGlobs.length == 0;
    everyBackend = everyBackend || w.backendGlobs.length == 0;
    everyMethod = everyMethod || w.methodGlobs.length == 0;
    everyField = everyField || w.fieldBits == 0;
    union(tools, w.toolGlobs);
    union(backends, w.backendGlobs);
    union(methods, w.methodGlobs);
    union(headers, w.headerNames);
    h.base = pointers.length;
    for (let k = 0; k < w.pointerList.length; k++) pointers.push(w.pointerList[k]);
    h.claimBase = claims.length;
    for (let k = 0; k < w.claimList.length; k++) claims.push(w.claimList[k]);
    fields |= w.fieldBits;
    varies = max(varies, w.varies);
    waits = waits || w.waits;
    holds = holds || w.holds;
    cache = i == 0 ? w.cache : min(cache, w.cache);
    if (i == 0 || w.limit == 0 || (inline != 0 && w.limit > inline)) inline = w.limit;
  }
  if (headers.length > most || pointers.length > most || claims.length > most) return hookNames[hook] + ": more than 64 headers, pointers or claims";
  to.string(1, hookNames[hook]);
  if (!everyMethod && methods.length <= most) put(to, 2, methods);
  if (!everyTool && tools.length <= most) put(to, 3, tools);
  if (!everyBackend && backends.length <= most) put(to, 4, backends);
  put(to, 6, headers);
  put(to, 7, pointers);
  put(to, 13, claims);
  if (!everyField) {
    fields |= (1 << 1) | (1 << 2) | (1 << 4); // what ask itself reads
    if (headers.length) fields |= 1 << 7;
    if (pointers.length) fields |= 1 << 9;
    if (claims.length) fields |= 1 << 26;
    for (let f = 1; f < 64; f++) if ((fields >> f) & 1) to.number(5, f);
  }
  if (varies) to.number(8, varies);
  if (inline) to.number(9, inline);
  if (cache) to.number(10, cache);
  if (waits) to.number(11, 1);
  if (holds) to.number(12, 1);
  return "";
}

function put(to: Area, field: i32, list: string[]): void {
  for (let i = 0; i < list.length; i++) to.string(field, list[i]);
}

function union(list: string[], more: string[]): void {
  for (let i = 0; i < more.length; i++) if (!list.includes(more[i])) list.push(more[i]);
}

// The call: where its record is, and where each field of it is, by number: an
// address and a length, of those whose bit is set in has.
const fieldCount = 20;
const fields = memory.data(fieldCount << 3, 8);
const selectedAt = memory.data(most << 3, 8);
let has: u32 = 0;
let selectedCount = 0, recordLen = 0, refused = false, base = 0, pointerCount = 0, claimBase = 0, claimCount = 0;
let itemGlobs = new StaticArray<Glob>(0); // of the function, for the names of items
export let now: u64 = 0;
export let status: u64 = 0;
export let from: u64 = 0;
const outer = new Reader();
const inner = new Reader();

// @ts-ignore: decorator
@inline function fieldPtr(field: i32): usize {
  return load<usize>(fields + (<usize>field << 3));
}

// @ts-ignore: decorator
@inline function fieldLen(field: i32): i32 {
  return (has >> field) & 1 ? load<i32>(fields + (<usize>field << 3), 4) : 0;
}

/** Is weir_<hook>: asks the functions that the input is for. One that denies is the last. */
export function ask(hook: i32, typed: usize, n: i32): u64 {
  recordLen = n;
  refused = false;
  now = status = from = 0;
  output.len = 0;
  split(input, input + n);
  const all = unchecked(handlers[hook]);
  for (let i = 0; i < all.length && !refused; i++) {
    const h = unchecked(all[i]);
    if (!one(h.tools, 1) || !one(h.backends, 2) || !one(h.methods, 4)) continue;
    base = h.base;
    pointerCount = h.pointers;
    claimBase = h.claimBase;
    claimCount = h.claims;
    itemGlobs = h.tools;
    call_indirect<void>(h.run, typed);
  }
  // The input is zeroed by the host.
  freshPools();
  recordLen = 0;
  has = 0;
  return give(output);
}

// Notes where the fields of a record are.
function split(p: usize, end: usize): void {
  has = selectedCount = 0;
  while (p < end) {
    // Most keys are one byte, and lengths one or two: those are read here.
    const k = <i32>load<u8>(p);
    if ((k & 0x87) == 2 && p + 2 < end) {
      let l = <usize>load<u8>(p, 1), from = p + 2;
      if (l >= 0x80) {
        const high = <usize>load<u8>(from++);
        l = (l & 0x7f) | (high << 7);
        if (high >= 0x80) from = end + 1;
      }
      if (from + l <= end) {
        note(k >> 3, from, <i32>l);
        p = from + l;
        continue;
      }
    }
    const r = outer.of(p, <i32>(end - p));
    if (!r.next()) return;
    p = r.p;
    if (r.field == 10) now = r.number;
    else if (r.field == 16) status = r.number;
    else if (r.field == 20) from = r.number;
    else if (r.field >= 0 && r.field < fieldCount) note(r.field, r.ptr, r.len);
  }
}

// @ts-ignore: decorator
@inline function note(field: i32, ptr: usize, len: i32): void {
  let at = fields + (<usize>field << 3);
  if (field == 9) {
    if (selectedCount == most) return;
    at = selectedAt + (<usize>selectedCount << 3);
    selectedCount++;
  }
  store<usize>(at, ptr);
  store<i32>(at, len, 4);
  has |= 1 << field;
}

// Says whether one of the globs matches a field. An input without it is for
// every function: the host has none in that hook.
function one(globs: StaticArray<Glob>, field: i32): bool {
  if (globs.length == 0) return true;
  return anyOf(globs, fieldPtr(field), fieldLen(field));
}

// Says whether one of the globs matches a name, or there is none.
function anyOf(globs: StaticArray<Glob>, p: usize, n: i32): bool {
  if (n == 0) return true;
  const end = p + n;
  for (let i = 0; i < globs.length; i++) {
    const g = unchecked(globs[i]), after = matchAt(p, end, g.prefix);
    if (!after) continue;
    if (g.star < 0 ? after == end : g.star == g.pattern.length - 1 || glob(g.pattern, String.UTF8.decodeUnsafe(p, n))) return true;
  }
  return false;
}

export function text(field: i32): View {
  return view(fieldPtr(field), fieldLen(field));
}

export function json(field: i32): Value {
  return value(fieldPtr(field), fieldLen(field));
}

export function selected(i: i32): Value {
  if (i < 0 || i >= pointerCount || base + i >= selectedCount) return value(0, 0);
  const at = selectedAt + (<usize>(base + i) << 3);
  return value(load<usize>(at), load<i32>(at, 4));
}

export function header(name: string): View {
  const r = outer.of(input, recordLen);
  while (r.next()) {
    if (r.field == 7 && first(r.ptr, r.len, 1).is(name)) return first(r.ptr, r.len, 2);
  }
  return view(0, 0);
}

/** What a filter said of the client under a name. */
export function attr(name: string): Value {
  const r = outer.of(input, recordLen);
  while (r.next()) {
    if (r.field != 25 || !first(r.ptr, r.len, 1).is(name)) continue;
    const v = first(r.ptr, r.len, 2);
    return value(v.ptr, v.len);
  }
  return value(0, 0);
}

/** The claim of the client at pointer i of claims. */
export function claim(i: i32): Value {
  if (i < 0 || i >= claimCount) return value(0, 0);
  const r = outer.of(input, recordLen);
  for (let n = 0; r.next(); ) if (r.field == 26 && n++ == claimBase + i) return value(r.ptr, r.len);
  return value(0, 0);
}

// The first field of a number in a record within the input. Most keys and
// lengths are one byte: those are read here.
export function first(ptr: usize, len: i32, field: i32): View {
  const end = ptr + len;
  while (ptr + 1 < end) {
    const k = <i32>load<u8>(ptr), l = <i32>load<u8>(ptr, 1);
    if ((k & 0x87) != 2 || l >= 0x80 || ptr + 2 + l > end) break;
    if (k >> 3 == field) return view(ptr + 2, l);
    ptr += 2 + l;
  }
  const r = inner.of(ptr, <i32>(end - ptr));
  while (r.next()) if (r.field == field) return view(r.ptr, r.len);
  return view(0, 0);
}

/** Who a client is. */
@final export class Principal {
  /** Says whether there is one: false for an anonymous client. */
  get known(): bool {
    return fieldLen(6) > 0;
  }
  get subject(): View {
    return this.first(1);
  }
  get tenant(): View {
    return this.first(2);
  }
  get issuer(): View {
    return this.first(6);
  }
  inGroup(name: string): bool {
    return this.has(3, name);
  }
  hasRole(name: string): bool {
    return this.has(4, name);
  }
  hasScope(name: string): bool {
    return this.has(5, name);
  }
  get groups(): View[] {
    return this.all(3);
  }
  get roles(): View[] {
    return this.all(4);
  }
  get scopes(): View[] {
    return this.all(5);
  }
  private first(field: i32): View {
    return first(fieldPtr(6), fieldLen(6), field);
  }
  private has(field: i32, name: string): bool {
    let p = fieldPtr(6);
    const end = p + fieldLen(6);
    while (p + 1 < end) {
      const k = <i32>load<u8>(p), l = <i32>load<u8>(p, 1), after = p + 2 + l;
      if ((k & 0x87) != 2 || l >= 0x80 || after > end) break;
      if (k >> 3 == field && matchAt(p + 2, after, name) == after) return true;
      p = after;
    }
    const r = inner.of(p, <i32>(end - p));
    while (r.next()) {
      if (r.field == field && matchAt(r.ptr, r.ptr + r.len, name) == r.ptr + r.len) return true;
    }
    return false;
  }
  private all(field: i32): View[] {
    const list: View[] = [];
    const r = inner.of(fieldPtr(6), fieldLen(6));
    while (r.next()) if (r.field == field) list.push(view(r.ptr, r.len));
    return list;
  }
}
export const principal = new Principal();

/** A tool, a prompt or a resource of a backend. */
@final export class Item {
  constructor(private index: u64, private ptr: usize, private len: i32) {}

  get name(): View {
    return first(this.ptr, this.len, 1);
  }
  get backend(): View {
    return first(this.ptr, this.len, 2);
  }
  /** What the backend says of it: an object with name, description, inputSchema and so on. */
  get json(): Value {
    const v = first(this.ptr, this.len, 3);
    return value(v.ptr, v.len);
  }
  /** Offers it under another name. */
  rename(name: string): void {
    add(16, "", "", name, "", 0, 0, this.index);
  }
  /** Replaces its description. */
  describe(text: string): void {
    add(17, "", "", "", text, 0, 0, this.index);
  }
  /** Does not offer it. Whoever knows its name is not kept from it: deny calls, too, where that matters. */
  hide(): void {
    add(18, "", "", "", "", 0, 0, this.index);
  }
  /** Sets an annotation. */
  annotate(name: string, json: string): void {
    add(19, "", json, name, "", 0, 0, this.index);
  }
  /** Sets what the backend says of it behind a JSON pointer, such as /icons. Its name or URI stays. */
  patch(pointer: string, json: string): void {
    add(26, pointer, json, "", "", 0, 0, this.index);
  }
  /** Replaces the schema of its input. */
  setSchema(json: string): void {
    add(20, "", json, "", "", 0, 0, this.index);
  }
  /** Gives an argument one value for good, and takes it out of the schema. */
  pinArg(pointer: string, json: string): void {
    add(21, pointer, json, "", "", 0, 0, this.index);
  }
  /** Takes an argument out of the schema. */
  hideArg(pointer: string): void {
    add(22, pointer, "", "", "", 0, 0, this.index);
  }
}

export function items(): Item[] {
  const list: Item[] = [];
  const r = outer.of(input, recordLen);
  for (let index: u64 = 0; r.next(); ) {
    if (r.field != 13) continue;
    const item = new Item(index++, r.ptr, r.len), name = item.name;
    // Another function may have asked for it.
    if (itemGlobs.length == 0 || anyOf(itemGlobs, name.ptr, name.len)) list.push(item);
  }
  return list;
}

export function refuse(): void {
  refused = true;
}

/** Who a client is said to be. */
export class Identity {
  subject: string = "";
  tenant: string = "";
  issuer: string = "";
  groups: string[] = [];
  roles: string[] = [];
  scopes: string[] = [];
}

const scratch = new Area(256);

export function say(who: Identity): void {
  const a = scratch;
  a.len = 0;
  if (who.subject.length) a.string(1, who.subject);
  if (who.tenant.length) a.string(2, who.tenant);
  put(a, 3, who.groups);
  put(a, 4, who.roles);
  put(a, 5, who.scopes);
  if (who.issuer.length) a.string(6, who.issuer);
  const arg = size(<u64>a.len) + 1 + a.len;
  output.varint((1 << 3) | 2);
  output.varint(2 + size(<u64>arg) + arg);
  output.varint((24 << 3) | 2);
  output.varint(arg);
  output.bytes(2, a.ptr, a.len);
}

/** Writes an operation. What is empty is left out, which reads the same. */
export function add(op: i32, pointer: string, raw: string, name: string, text: string, code: u64, index: u64, item: u64): void {
  // The lengths of the two records around it come before what they measure:
  // four bytes are left for each, and filled in at last.
  const o = output, before = o.len, start = o.more(64 + 3 * (pointer.length + raw.length + name.length + text.length));
  store<u8>(start, (1 << 3) | 2);
  let p = start + 6;
  if (op < 16) {
    store<u8>(start, <u8>((op << 3) | 2), 5);
  } else {
    store<u8>(start, <u8>((op << 3) | 2) | 0x80, 5);
    store<u8>(p++, <u8>(op >> 4));
  }
  const content = p + 4;
  p = write(content, 1, pointer);
  p = write(p, 2, raw);
  p = write(p, 3, name);
  p = write(p, 4, text);
  if (code | index | item) {
    p = writeNumber(p, 5, code);
    p = writeNumber(p, 6, index);
    p = writeNumber(p, 7, item);
  }
  four(start + 1, <i32>(p - start - 5));
  four(content - 4, <i32>(p - content));
  o.len = before + <i32>(p - start);
}

/** The same of a name and a text, which may be a string or a View of the input: that is written without a string being made of it. */
export function addText<T>(op: i32, name: string, text: T): void {
  if (text instanceof View) addView(op, 4, name, text);
  else if (isString<T>()) add(op, "", "", name, changetype<string>(text), 0, 0, 0);
  else ERROR("a string or a View");
}

/** The same of bytes. */
export function addRaw<T>(op: i32, raw: T): void {
  if (raw instanceof View) addView(op, 2, "", raw);
  else if (isString<T>()) add(op, "", changetype<string>(raw), "", "", 0, 0, 0);
  else ERROR("a string or a View");
}

function addView(op: i32, field: i32, name: string, v: View): void {
  const o = output, before = o.len, start = o.more(32 + 3 * name.length + v.len);
  store<u8>(start, (1 << 3) | 2);
  store<u8>(start, <u8>((op << 3) | 2), 5); // one byte: the operations of views have numbers below 16
  let p = write(start + 10, 3, name);
  if (v.len) {
    store<u8>(p, <u8>((field << 3) | 2));
    four(p + 1, v.len);
    copy(p + 5, v.ptr, v.len);
    p += 5 + v.len;
  }
  four(start + 1, <i32>(p - start - 5));
  four(start + 6, <i32>(p - start - 10));
  o.len = before + <i32>(p - start);
}
