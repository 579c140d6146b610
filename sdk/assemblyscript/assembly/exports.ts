// The exports of a guest: export * from "../weir/exports" in its entry file.

import { ask, buffer, start } from "./call";
import { theHTTPRequest, theCredential, theVerifiedToken, theCatalog, theCall, theOutgoing, theBackendRequest, theCallResult, theMessage, theHTTPResponse, theSession, theEvent } from "./hooks";

export function weir_abi(): i32 { return (1 << 16) | 1; }
export function weir_buf(min: i32): usize { return buffer(min); }
export function weir_init(n: i32): u64 { return start(n); }
export function weir_on_http_request(n: i32): u64 { return ask(0, changetype<usize>(theHTTPRequest), n); }
export function weir_authenticate(n: i32): u64 { return ask(1, changetype<usize>(theCredential), n); }
export function weir_map_identity(n: i32): u64 { return ask(2, changetype<usize>(theVerifiedToken), n); }
export function weir_override_tools(n: i32): u64 { return ask(3, changetype<usize>(theCatalog), n); }
export function weir_override_prompts(n: i32): u64 { return ask(4, changetype<usize>(theCatalog), n); }
export function weir_override_resources(n: i32): u64 { return ask(5, changetype<usize>(theCatalog), n); }
export function weir_on_call_request(n: i32): u64 { return ask(6, changetype<usize>(theCall), n); }
export function weir_outgoing_auth(n: i32): u64 { return ask(7, changetype<usize>(theOutgoing), n); }
export function weir_on_upstream_request(n: i32): u64 { return ask(8, changetype<usize>(theBackendRequest), n); }
export function weir_on_call_response(n: i32): u64 { return ask(9, changetype<usize>(theCallResult), n); }
export function weir_on_message(n: i32): u64 { return ask(10, changetype<usize>(theMessage), n); }
export function weir_on_http_response(n: i32): u64 { return ask(11, changetype<usize>(theHTTPResponse), n); }
export function weir_on_session_start(n: i32): u64 { return ask(12, changetype<usize>(theSession), n); }
export function weir_on_session_end(n: i32): u64 { return ask(13, changetype<usize>(theSession), n); }
export function weir_on_event(n: i32): u64 { return ask(14, changetype<usize>(theEvent), n); }
