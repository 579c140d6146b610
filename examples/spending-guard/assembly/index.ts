// A guest that denies calls by what they would spend: too much at once, or too
// much in a day by one client. What it cannot read it denies.

import * as weir from "../../../sdk/assemblyscript/assembly";
export * from "../../../sdk/assemblyscript/assembly/exports";

let most: i64 = 0; // of one call
let perDay: i64 = 0; // of one client; 0 for no limit
const day: i64 = 24 * 60 * 60 * 1000;

// A number without a fraction that is not below zero; -1 for anything else.
function whole(v: weir.Value): i64 {
  const text = v.isText ? "" : v.json.trim();
  if (text.length == 0 || text.length > 15) return -1;
  let n: i64 = 0;
  for (let i = 0; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c < 0x30 || c > 0x39) return -1;
    n = n * 10 + c - 0x30;
  }
  return n;
}

weir.onInit((s: weir.Setup): string | null => {
  const tools: string[] = [];
  for (let e = s.config.get("tools").elements(); e.next(); ) tools.push(e.value.text);
  const amount = s.config.get("amount").text;
  if (tools.length == 0) return "tools: name the tools that spend";
  if (!amount.startsWith("/")) return "amount: a JSON pointer to the argument, such as /amount";
  most = whole(s.config.get("most"));
  if (most < 0) return "most: the largest amount of one call, a whole number";
  const limit = s.config.get("perDay");
  perDay = limit.exists ? whole(limit) : 0;
  if (perDay < 0) return "perDay: a whole number";
  if (perDay > 0 && !s.granted("kv")) return "perDay needs the grant kv, to remember what was spent";
  weir.onCall(guard, weir.wants().tools(tools).pointers([amount]));
  return null;
});

function guard(c: weir.Call): void {
  const amount = whole(c.selected(0));
  if (amount < 0) {
    c.deny(weir.Invalid, "the amount must be a whole number, not below zero");
    return;
  }
  if (amount > most) {
    c.deny(weir.Forbidden, "at most " + most.toString() + " at once");
    return;
  }
  if (perDay == 0) return;
  if (!c.principal.known) {
    c.deny(weir.Unauthenticated, "whoever spends has to sign in");
    return;
  }
  // What is denied counts, too: asking again and again does not help.
  const who = weir.sha256(c.principal.issuer.toString() + "\n" + c.principal.subject.toString());
  const today = (c.now / <u64>day).toString();
  let key = today + ":";
  for (let i = 0; i < 16; i++) key += (who[i] < 16 ? "0" : "") + (<u32>who[i]).toString(16);
  const sum = weir.kvAdd(key, amount, day);
  if (sum < 0) {
    c.deny(weir.Limited, "what was spent today is not known now: try again later");
  } else if (sum > perDay) {
    c.deny(weir.Limited, "at most " + perDay.toString() + " a day");
  } else {
    c.logField("spent_today", sum.toString());
  }
}
