// The hooks: what each is asked about, and the operations that it may use.

import { Identity, Item, Principal, Setup, Wants, add, addRaw, addText, attr, claim, header, items, json, now, on, onStart, principal, refuse, say, selected, status, text, wants } from "./call";
import { Value, View } from "./text";

/** Kinds of refusals. */
export const Forbidden = 0;
export const Unauthenticated = 1;
export const Invalid = 2;
export const Limited = 3;
export const NotFound = 4;

/** A request before authentication. */
@final export class HTTPRequest {
  get method(): View { return text(4); }
  get path(): View { return text(17); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** Sets a header. The value is a string or a View. */
  setHeader<T>(name: string, value: T): void { addText(6, name, value); }
  delHeader(name: string): void { add(7, "", "", name, "", 0, 0, 0); }
  /** Answers with a result, as JSON text. */
  respond(json: string): void { add(8, "", json, "", "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
  /** Says something of the client, as JSON text, under a name of a-z, 0-9 and _: policies read it as principal.attr_NAME, and later filters see it. */
  setAttr(name: string, json: string): void { add(10, "", json, name, "", 0, 0, 0); }
}
export const theHTTPRequest = new HTTPRequest();

/** A credential that nothing else claimed. */
@final export class Credential {
  get method(): View { return text(4); }
  get path(): View { return text(17); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** Says who the client is. */
  setPrincipal(who: Identity): void { say(who); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
  /** Asks for a credential: the value of a WWW-Authenticate header. */
  challenge(text: string): void { add(25, "", "", "", text, 0, 0, 0); }
}
export const theCredential = new Credential();

/** A token that was verified. */
@final export class VerifiedToken {
  get method(): View { return text(4); }
  get path(): View { return text(17); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  get issuer(): View { return text(18); }
  /** The claims, an object. */
  get claims(): Value { return json(14); }
  /** Who the client is so far. */
  get principal(): Principal { return principal; }
  /** Says who the client is. */
  setPrincipal(who: Identity): void { say(who); }
  /** Says something of the client, as JSON text, under a name of a-z, 0-9 and _: policies read it as principal.attr_NAME, and later filters see it. */
  setAttr(name: string, json: string): void { add(10, "", json, name, "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
}
export const theVerifiedToken = new VerifiedToken();

/** What backends offer: tools, prompts or resources. */
@final export class Catalog {
  get backend(): View { return text(2); }
  /** Somebody who asks, of those that variesBy puts together. */
  get principal(): Principal { return principal; }
  get items(): Item[] { return items(); }
}
export const theCatalog = new Catalog();

/** A call of a tool, before authorization. */
@final export class Call {
  /** The claim of the client at pointer i of claims. */
  claim(i: i32): Value { return claim(i); }
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** The arguments. They do not exist when they are above the limit of inlineLimit. */
  get arguments(): Value { return json(8); }
  /** The value at pointer i of those that were asked for. */
  selected(i: i32): Value { return selected(i); }
  /** Sets the argument behind a JSON pointer to JSON text. */
  set(pointer: string, json: string): void { add(1, pointer, json, "", "", 0, 0, 0); }
  /** Removes the argument behind a JSON pointer. */
  del(pointer: string): void { add(2, pointer, "", "", "", 0, 0, 0); }
  /** Replaces all arguments by those of an object. */
  setArguments(json: string): void { add(3, "", json, "", "", 0, 0, 0); }
  /** Calls another tool, by the name that clients see. */
  setTool(name: string): void { add(4, "", "", name, "", 0, 0, 0); }
  /** Calls another backend. */
  setBackend(name: string): void { add(5, "", "", name, "", 0, 0, 0); }
  /** Leaves text, a string or a View, for onResult to find. */
  carry<T>(text: T): void { addRaw(11, text); }
  /** Sets a header. The value is a string or a View. */
  setHeader<T>(name: string, value: T): void { addText(6, name, value); }
  delHeader(name: string): void { add(7, "", "", name, "", 0, 0, 0); }
  /** Answers with a result, as JSON text. */
  respond(json: string): void { add(8, "", json, "", "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
  /** Says something of the client, as JSON text, under a name of a-z, 0-9 and _: policies read it as principal.attr_NAME, and later filters see it. */
  setAttr(name: string, json: string): void { add(10, "", json, name, "", 0, 0, 0); }
  /** Notes a text, a string or a View, in the record of the message. */
  logField<T>(name: string, text: T): void { addText(12, name, text); }
}
export const theCall = new Call();

/** A backend that a credential is chosen for. */
@final export class Outgoing {
  /** The claim of the client at pointer i of claims. */
  claim(i: i32): Value { return claim(i); }
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** Chooses a credential that was granted, by its name. */
  useCredential(name: string): void { add(23, "", "", name, "", 0, 0, 0); }
  /** Sets a header. The value is a string or a View. */
  setHeader<T>(name: string, value: T): void { addText(6, name, value); }
  delHeader(name: string): void { add(7, "", "", name, "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
}
export const theOutgoing = new Outgoing();

/** A request before it leaves for a backend. */
@final export class BackendRequest {
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** Sets a header. The value is a string or a View. */
  setHeader<T>(name: string, value: T): void { addText(6, name, value); }
  delHeader(name: string): void { add(7, "", "", name, "", 0, 0, 0); }
}
export const theBackendRequest = new BackendRequest();

/** The result, or the error, of a call. */
@final export class CallResult {
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** The result; does not exist when there is an error. */
  get result(): Value { return json(11); }
  /** The error object; does not exist when there is a result. */
  get error(): Value { return json(12); }
  /** What carry left in the request. */
  get carried(): View { return text(15); }
  /** Removes a block of the result's content, by its index. */
  dropContent(index: i32): void { add(14, "", "", "", "", 0, <u64>index, 0); }
  /** The value at pointer i of those that were asked for. */
  selected(i: i32): Value { return selected(i); }
  /** Replaces the value of the result behind a JSON pointer by JSON text. */
  patch(pointer: string, json: string): void { add(13, pointer, json, "", "", 0, 0, 0); }
  /** Puts a text into the place of the value behind a JSON pointer. */
  redact(pointer: string, text: string): void { add(15, pointer, "", "", text, 0, 0, 0); }
  /** Answers with a result, as JSON text. */
  respond(json: string): void { add(8, "", json, "", "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
  /** Notes a text, a string or a View, in the record of the message. */
  logField<T>(name: string, text: T): void { addText(12, name, text); }
}
export const theCallResult = new CallResult();

/** A message that no other hook is for. */
@final export class Message {
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** The arguments; do not exist in an answer. */
  get arguments(): Value { return json(8); }
  /** The result; exists in an answer only. */
  get result(): Value { return json(11); }
  /** The error object; exists in an answer only. */
  get error(): Value { return json(12); }
  /** The value at pointer i of those that were asked for. */
  selected(i: i32): Value { return selected(i); }
  /** Replaces the value of the result behind a JSON pointer by JSON text. */
  patch(pointer: string, json: string): void { add(13, pointer, json, "", "", 0, 0, 0); }
  /** Puts a text into the place of the value behind a JSON pointer. */
  redact(pointer: string, text: string): void { add(15, pointer, "", "", text, 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
}
export const theMessage = new Message();

/** A response before its headers are sent. */
@final export class HTTPResponse {
  get method(): View { return text(4); }
  get path(): View { return text(17); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  get status(): i32 { return <i32>status; }
  /** Sets a header. The value is a string or a View. */
  setHeader<T>(name: string, value: T): void { addText(6, name, value); }
  delHeader(name: string): void { add(7, "", "", name, "", 0, 0, 0); }
}
export const theHTTPResponse = new HTTPResponse();

/** A session that begins or ends. */
@final export class Session {
  /** The name that the client uses. */
  get tool(): View { return text(1); }
  get backend(): View { return text(2); }
  /** An opaque key of the client's session, empty without one. */
  get session(): View { return text(3); }
  get method(): View { return text(4); }
  get id(): Value { return json(5); }
  get principal(): Principal { return principal; }
  /** The first value of a header that was asked for. The name is in lower case. */
  header(name: string): View { return header(name); }
  /** What a filter said of the client under a name, which no token can say. */
  attr(name: string): Value { return attr(name); }
  /** The time, in milliseconds since 1970 UTC. */
  get now(): u64 { return now; }
  /** Says something of the client, as JSON text, under a name of a-z, 0-9 and _: policies read it as principal.attr_NAME, and later filters see it. */
  setAttr(name: string, json: string): void { add(10, "", json, name, "", 0, 0, 0); }
  /** Refuses the message, with a text that the client sees. Functions after this one are not asked. */
  deny(code: i32, text: string): void { this.denyWith(code, text, ""); }
  /** The same, with data for the error's object. */
  denyWith(code: i32, text: string, data: string): void { add(9, "", data, "", text, code, 0, 0); refuse(); }
}
export const theSession = new Session();

/** A copy of the record of a message. */
@final export class Event {
  /** The record, an object. */
  get record(): Value { return json(19); }
}
export const theEvent = new Event();

/**
 * Registers a function that reads the configuration. It may register functions
 * for hooks. A text that it returns instead of null tells the operator why the
 * configuration cannot be used.
 */
export function onInit(f: (s: Setup) => string | null): void { onStart(f.index); }

/** Registers a function for requests before authentication. */
export function onHTTPRequest(f: (x: HTTPRequest) => void, w: Wants = wants()): void { on(0, f.index, w); }
/** Registers a function for credentials that nothing else claimed; setPrincipal needs the grant identity. */
export function onAuthenticate(f: (x: Credential) => void, w: Wants = wants()): void { on(1, f.index, w); }
/** Registers a function for verified tokens. */
export function onIdentity(f: (x: VerifiedToken) => void, w: Wants = wants()): void { on(2, f.index, w); }
/** Registers a function for how tools are offered; it is asked once for what a backend offers. */
export function onTools(f: (x: Catalog) => void, w: Wants = wants()): void { on(3, f.index, w); }
/** Registers a function for how prompts are offered. */
export function onPrompts(f: (x: Catalog) => void, w: Wants = wants()): void { on(4, f.index, w); }
/** Registers a function for how resources are offered. */
export function onResources(f: (x: Catalog) => void, w: Wants = wants()): void { on(5, f.index, w); }
/** Registers a function for calls of tools. */
export function onCall(f: (x: Call) => void, w: Wants = wants()): void { on(6, f.index, w); }
/** Registers a function for the choice of a credential for a backend. */
export function onOutgoing(f: (x: Outgoing) => void, w: Wants = wants()): void { on(7, f.index, w); }
/** Registers a function for requests that leave for a backend. */
export function onBackendRequest(f: (x: BackendRequest) => void, w: Wants = wants()): void { on(8, f.index, w); }
/** Registers a function for results and errors of calls. */
export function onResult(f: (x: CallResult) => void, w: Wants = wants()): void { on(9, f.index, w); }
/** Registers a function for methods that no other hook is for. */
export function onMessage(f: (x: Message) => void, w: Wants = wants()): void { on(10, f.index, w); }
/** Registers a function for responses before their headers are sent. */
export function onHTTPResponse(f: (x: HTTPResponse) => void, w: Wants = wants()): void { on(11, f.index, w); }
/** Registers a function for sessions that begin. */
export function onSessionStart(f: (x: Session) => void, w: Wants = wants()): void { on(12, f.index, w); }
/** Registers a function for sessions that end. */
export function onSessionEnd(f: (x: Session) => void, w: Wants = wants()): void { on(13, f.index, w); }
/** Registers a function for copies of the record of each message. */
export function onEvent(f: (x: Event) => void, w: Wants = wants()): void { on(14, f.index, w); }
