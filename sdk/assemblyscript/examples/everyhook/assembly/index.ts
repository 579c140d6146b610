// A guest with a function for every hook, and every operation in one of them.

import * as weir from "../../../assembly";
export * from "../../../assembly/exports";

// Who may delete, of the configuration {"group":"NAME"}.
let group = "";

weir.onInit((s: weir.Setup): string | null => {
  group = s.config.get("group").text;
  if (group == "") return "group is missing: name the group that may delete";
  weir.info(s.name + " is ready");
  if (s.granted("claims")) {
    weir.onCall((c: weir.Call): void => {
      c.respond(weir.textResult(c.claim(0).text + " in " + c.attr("team").text));
    }, weir.wants().tools(["whoami"]).claims(["/department"]));
  }
  return null;
});

weir.onHTTPRequest((r: weir.HTTPRequest): void => {
  if (r.path.hasPrefix("/health")) {
    r.respond('{"ok":true}');
  } else if (r.path.hasPrefix("/private") && r.header("x-key").empty) {
    r.deny(weir.Unauthenticated, "a key is wanted");
  } else {
    r.setHeader("x-seen", r.path);
    r.delHeader("x-debug");
    r.setAttr("path", weir.quote(r.path.toString()));
  }
}, weir.wants().headers(["x-key"]));

weir.onAuthenticate((c: weir.Credential): void => {
  const key = c.header("x-api-key");
  if (key.empty) {
    c.challenge('Key realm="demo"');
  } else if (key.is("open sesame")) {
    const who = new weir.Identity();
    who.subject = "robot";
    who.tenant = "acme";
    who.issuer = "urn:keys";
    who.groups = ["machines", "night"];
    who.roles = ["reader"];
    who.scopes = ["tools:read"];
    c.setPrincipal(who);
  } else {
    c.deny(weir.Unauthenticated, "no such key");
  }
}, weir.wants().headers(["x-api-key"]));

weir.onIdentity((t: weir.VerifiedToken): void => {
  const who = new weir.Identity();
  who.subject = t.claims.at("/sub").text;
  if (who.subject == "") {
    t.deny(weir.Unauthenticated, "a token without a subject");
    return;
  }
  who.tenant = t.claims.at("/tenant").text;
  who.issuer = t.issuer.toString();
  for (let e = t.claims.at("/realm_access/roles").elements(); e.next(); ) who.groups.push(e.value.text);
  t.setPrincipal(who);
  t.setAttr("issuer", weir.quote(who.issuer));
});

weir.onTools((c: weir.Catalog): void => {
  const items = c.items;
  for (let i = 0; i < items.length; i++) {
    const tool = items[i], properties = tool.json.at("/inputSchema/properties");
    if (tool.name.hasPrefix("internal_")) {
      tool.hide();
      continue;
    }
    if (tool.name.is("raw")) {
      tool.setSchema('{"type":"object"}');
      tool.patch("/icons", "[]");
    }
    tool.rename(tool.backend.toString() + "_" + tool.name.toString());
    tool.describe("Of " + tool.backend.toString() + ": " + tool.json.get("description").text);
    if (tool.name.hasPrefix("get_")) tool.annotate("readOnlyHint", "true");
    if (properties.get("region").exists) tool.pinArg("/region", weir.quote("eu-" + c.principal.tenant.toString()));
    if (properties.get("debug").exists) tool.hideArg("/debug");
  }
}, weir.wants().variesBy(weir.ByTenant));

weir.onPrompts((c: weir.Catalog): void => {
  const items = c.items;
  for (let i = 0; i < items.length; i++) items[i].rename("p_" + items[i].name.toString());
});
weir.onPrompts((c: weir.Catalog): void => {
  const items = c.items;
  for (let i = 0; i < items.length; i++) items[i].hide();
}, weir.wants().tools(["old_*"]));

weir.onResources((c: weir.Catalog): void => {
  const items = c.items;
  for (let i = 0; i < items.length; i++) items[i].describe("At " + items[i].json.get("uri").text);
});

weir.onCall((c: weir.Call): void => {
  if (!c.principal.inGroup(group)) {
    c.denyWith(weir.Forbidden, "only " + group + " may delete", '{"tool":' + weir.quote(c.tool.toString()) + "}");
    return;
  }
  const subject = c.principal.subject;
  c.set("/dry_run", "true");
  c.setHeader("x-user", subject);
  c.delHeader("x-debug");
  c.setAttr("deleting", weir.quote(c.tool.toString()));
  c.logField("session", c.session);
  c.carry(subject);
}, weir.wants().tools(["delete_*"]));

weir.onCall((c: weir.Call): void => {
  const path = c.selected(0), verbose = c.selected(1);
  if (path.is("/etc/passwd")) {
    c.respond(weir.textResult('"no"'));
    return;
  }
  if (path.isText) c.set("/path", weir.quote("/srv" + path.text));
  if (verbose.exists) c.del("/verbose");
}, weir.wants().tools(["read_*"]).pointers(["/path", "/verbose"]));

weir.onCall((c: weir.Call): void => {
  c.setTool("new");
  c.setBackend("b2");
  c.setArguments('{"was":' + c.arguments.json + "}");
}, weir.wants().tools(["old"]).backends(["b1"]));

weir.onOutgoing((o: weir.Outgoing): void => {
  const tenant = o.principal.tenant.toString();
  if (tenant == "") {
    o.deny(weir.Forbidden, "no tenant");
    return;
  }
  o.useCredential(o.backend.toString() + "-" + tenant);
  o.setHeader("x-tenant", tenant);
}, weir.wants().variesBy(weir.ByTenant).cacheFor(60000));

weir.onBackendRequest((r: weir.BackendRequest): void => {
  r.setHeader("x-request-id", r.id.json);
  r.delHeader("x-internal");
});

weir.onResult((r: weir.CallResult): void => {
  if (r.error.exists) {
    r.logField("failed", r.error.get("message").text);
    r.respond(weir.errorResult("try again later"));
    return;
  }
  if (r.selected(0).text.includes("secret")) r.redact("/content/0/text", "[redacted]");
  let index = 0;
  for (let e = r.result.get("content").elements(); e.next(); index++) if (e.value.get("type").is("image")) r.dropContent(index);
  if (!r.carried.empty) r.patch("/_meta/for", weir.quote(r.carried.toString()));
}, weir.wants().pointers(["/content/0/text"]).hold());

weir.onMessage((m: weir.Message): void => {
  if (m.arguments.get("uri").text.startsWith("file:")) m.deny(weir.NotFound, "there are no files");
  if (m.result.exists) {
    m.patch("/ttl", "-60");
    m.redact("/token", "");
  }
}, weir.wants().methods(["resources/*", "prompts/get"]));

weir.onHTTPResponse((r: weir.HTTPResponse): void => {
  if (r.status >= 500) {
    r.setHeader("retry-after", "1");
    r.delHeader("server");
  }
});

weir.onSessionStart((s: weir.Session): void => {
  if (s.principal.tenant.is("late")) {
    s.deny(weir.Limited, "come back tomorrow");
    return;
  }
  s.setAttr("since", s.now.toString());
});

weir.onSessionEnd((s: weir.Session): void => {
  s.setAttr("ended", "true");
});

weir.onEvent((e: weir.Event): void => {
  weir.info("seen: " + e.record.get("method").text);
});

weir.onNotification((n: weir.Notification): void => {
  if (!n.fromServer) {
    n.set("/_meta", '{"by":' + weir.quote(n.principal.subject.toString()) + "}");
  } else if (n.params.get("level").is("debug")) {
    n.deny(weir.Forbidden, "too much");
  } else if (n.params.get("message").text.includes("secret")) {
    n.redact("/message", "[redacted]");
    n.logField("during", n.tool);
  } else {
    n.del("/_meta");
  }
}, weir.wants().methods(["notifications/*"]));

weir.onQuestion((q: weir.Question): void => {
  if (q.fromServer && q.selected(0).text.includes("password")) {
    q.deny(weir.Forbidden, "no passwords");
  } else if (q.fromServer) {
    q.set("/_meta", '{"from":' + weir.quote(q.backend.toString()) + "}");
  } else if (q.error.exists) {
    q.logField("refused", q.params.get("message").text);
  } else if (q.result.get("action").is("accept")) {
    q.redact("/content/card", "[redacted]");
    q.patch("/content/checked", "true");
  }
}, weir.wants().pointers(["/message"]));
