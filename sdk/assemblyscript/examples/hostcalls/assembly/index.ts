// A guest that calls every function of the host.

import * as weir from "../../../assembly";
export * from "../../../assembly/exports";

const minute = 60000;

weir.onInit((s: weir.Setup): string | null => {
  const grants = ["random", "kv", "metrics", "keys", "http", "tools", "events"];
  for (let i = 0; i < grants.length; i++) if (!s.granted(grants[i])) return grants[i] + " is not granted";
  return null;
});

weir.onCall((c: weir.Call): void => {
  c.respond(weir.textResult(answer(c.tool.toString(), c.selected(0).text)));
}, weir.wants().pointers(["/text"]).blocking());

function or(n: i64, text: string): string {
  return n < 0 ? "error: " + weir.failure(n) : text;
}

function hex(sum: Uint8Array): string {
  let out = "";
  for (let i = 0; i < sum.length; i++) out += (sum[i] < 16 ? "0" : "") + (<u32>sum[i]).toString(16);
  return out;
}

function answer(tool: string, text: string): string {
  if (tool == "give up") throw new Error("given up on " + text);
  if (tool == "count") {
    const n = weir.kvAdd("calls", 1, minute);
    return or(n, n.toString());
  }
  if (tool == "remember") return or(weir.kvSet("note", text, minute), "");
  if (tool == "recall") {
    const note = weir.kvGet("note");
    return note === null ? or(weir.ErrNotFound, "") : note;
  }
  if (tool == "forever") return or(weir.kvSet("note", "", 365 * 24 * 60 * <i64>minute), "");
  if (tool == "digest") return hex(weir.sha256(text));
  if (tool == "sign" || tool == "sign with another") {
    const sum = weir.hmac(tool == "sign" ? "sign" : "other", text);
    return sum === null ? or(weir.ErrNotFound, "") : hex(sum);
  }
  if (tool == "random") {
    const one = new Uint8Array(32), two = new Uint8Array(32);
    const n = weir.random(one) + weir.random(two);
    return or(n, hex(one) != hex(two) ? "true" : "false");
  }
  if (tool == "too random") return or(weir.random(new Uint8Array(5000)), "");
  if (tool == "measure") return or(weir.gauge("level", 7) + weir.count("asked", 2), "");
  if (tool == "measure badly") return or(weir.count("Asked!", 2), "");
  if (tool == "time") {
    const before = weir.monotonic();
    return weir.nowMillis() > 1600000000000 && weir.monotonic() >= before ? "true" : "false";
  }
  if (tool == "log") {
    weir.debug("d " + text);
    weir.info("i " + text);
    weir.warn("w " + text);
    weir.error("e " + text);
    return weir.logLevel().toString();
  }
  if (tool == "fetch") {
    const q = new weir.Fetch("https://api.example/judge?x=1");
    q.method = "POST";
    q.headers = ["x-say", "hello"];
    q.body = text;
    q.millis = 2000;
    const a = weir.fetch(q);
    return or(a.failed, a.status.toString() + " " + a.header("x-kind") + " " + a.body);
  }
  if (tool == "fetch size") {
    const q = new weir.Fetch("https://api.example/judge?x=1");
    q.method = "POST";
    const a = weir.fetch(q);
    return or(a.failed, a.body.length.toString());
  }
  if (tool == "fetch elsewhere") {
    const a = weir.fetch(new weir.Fetch("https://elsewhere.example/"));
    return or(a.failed, a.status.toString());
  }
  if (tool == "tool") {
    const a = weir.callTool(text, '{"deep":true}');
    if (a.error != "") return "failed: " + weir.parse(a.error).get("message").text;
    return or(a.failed, a.failed < 0 ? "" : weir.parse(a.result).at("/content/0/text").text);
  }
  if (tool == "emit") return or(weir.emit("seen", '{"text":' + weir.quote(text) + "}"), "");
  if (tool == "emit badly") return or(weir.emit("Seen!", ""), "");
  return "error: no such tool";
}
