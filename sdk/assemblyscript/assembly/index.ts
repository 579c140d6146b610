// SDK for authors of guests in AssemblyScript: programs in WebAssembly that see
// the messages of a Weir edge and answer with operations on them.
//
//   import * as weir from "../weir";
//   export * from "../weir/exports";
//
//   weir.onCall((c: weir.Call): void => {
//     if (!c.principal.inGroup("admin")) c.deny(weir.Forbidden, "only admins delete");
//   }, weir.wants().tools(["delete_*"]));
//
// What a hook receives is valid until the function returns, and is zeroed then:
// keep copies (toString), or nothing, so that a message of one client never
// reaches the answer to another. An instance runs one call at a time.

export { View, Value, Elements, Members, quote, parse, glob } from "./text";
export { Setup, Wants, wants, Identity, Item, Principal, ByTenant, ByGroups, BySubject } from "./call";
export * from "./hooks";
export * from "./host";
import { quote } from "./text";

/** The result of a tool that says text. */
export function textResult(s: string): string {
  return '{"content":[{"type":"text","text":' + quote(s) + "}]}";
}

/** The result of a tool that failed, and says why. */
export function errorResult(s: string): string {
  return '{"content":[{"type":"text","text":' + quote(s) + '}],"isError":true}';
}
