// A guest with a function for every hook, and every operation in one of them.
#include "../../weir.h"

// Who may delete, of the configuration {"group":"NAME"}.
static weir_view group;

WEIR_INIT(s) {
    group = weir_keep(weir_text(weir_get(s->config, "group")));
    if (!group.n) return "group is missing: name the group that may delete";
    weir_log(WEIR_INFO, weir_cat(s->name, weir_str(" is ready")));
    weir_on(s, WEIR_ON_HTTP_REQUEST, .headers = WEIR_LIST("x-key"));
    weir_on(s, WEIR_AUTHENTICATE, .headers = WEIR_LIST("x-api-key"));
    weir_on(s, WEIR_MAP_IDENTITY, 0);
    weir_on(s, WEIR_OVERRIDE_TOOLS, .varies_by = WEIR_BY_TENANT);
    weir_on(s, WEIR_OVERRIDE_PROMPTS, 0);
    weir_on(s, WEIR_OVERRIDE_RESOURCES, 0);
    if (weir_granted(s, "claims"))
        weir_on(s, WEIR_ON_CALL_REQUEST, .tools = WEIR_LIST("delete_*", "read_*", "old", "whoami"), .pointers = WEIR_LIST("/path", "/verbose"), .claims = WEIR_LIST("/department"));
    else
        weir_on(s, WEIR_ON_CALL_REQUEST, .tools = WEIR_LIST("delete_*", "read_*", "old"), .pointers = WEIR_LIST("/path", "/verbose"));
    weir_on(s, WEIR_OUTGOING_AUTH, .varies_by = WEIR_BY_TENANT, .cache_ms = 60000);
    weir_on(s, WEIR_ON_UPSTREAM_REQUEST, 0);
    weir_on(s, WEIR_ON_CALL_RESPONSE, .pointers = WEIR_LIST("/content/0/text"), .hold = 1);
    weir_on(s, WEIR_ON_MESSAGE, .methods = WEIR_LIST("resources/*", "prompts/get"));
    weir_on(s, WEIR_ON_HTTP_RESPONSE, 0);
    weir_on(s, WEIR_ON_SESSION_START, 0);
    weir_on(s, WEIR_ON_SESSION_END, 0);
    weir_on(s, WEIR_ON_EVENT, 0);
    weir_on(s, WEIR_ON_NOTIFICATION, .methods = WEIR_LIST("notifications/*"));
    weir_on(s, WEIR_ON_QUESTION, .pointers = WEIR_LIST("/message"));
    return 0;
}

WEIR_HOOK(on_http_request, c) {
    if (weir_has_prefix(weir_path(c), "/health")) {
        weir_respond(c, "{\"ok\":true}");
    } else if (weir_has_prefix(weir_path(c), "/private") && !weir_header(c, "x-key").n) {
        weir_deny(c, WEIR_UNAUTHENTICATED, "a key is wanted");
    } else {
        weir_set_header(c, "x-seen", weir_path(c));
        weir_del_header(c, "x-debug");
        weir_set_attr(c, "path", weir_quote(weir_path(c)));
    }
}

WEIR_HOOK(authenticate, c) {
    weir_view key = weir_header(c, "x-api-key");
    if (!key.n) {
        weir_challenge(c, "Key realm=\"demo\"");
    } else if (weir_equal(key, "open sesame")) {
        weir_identity who = weir_identity_of("robot");
        weir_add_tenant(&who, "acme");
        weir_add_group(&who, "machines");
        weir_add_group(&who, "night");
        weir_add_role(&who, "reader");
        weir_add_scope(&who, "tools:read");
        weir_add_issuer(&who, "urn:keys");
        weir_set_principal(c, &who);
    } else {
        weir_deny(c, WEIR_UNAUTHENTICATED, "no such key");
    }
}

WEIR_HOOK(map_identity, c) {
    weir_view subject = weir_text(weir_at(weir_claims(c), "/sub"));
    if (!subject.n) {
        weir_deny(c, WEIR_UNAUTHENTICATED, "a token without a subject");
        return;
    }
    weir_identity who = weir_identity_of(subject);
    weir_add_tenant(&who, weir_text(weir_at(weir_claims(c), "/tenant")));
    weir_json role = {0, 0};
    while (weir_next(weir_at(weir_claims(c), "/realm_access/roles"), &role)) weir_add_group(&who, weir_text(role));
    weir_add_issuer(&who, weir_issuer(c));
    weir_set_principal(c, &who);
    weir_set_attr(c, "issuer", weir_quote(weir_issuer(c)));
}

WEIR_HOOK(override_tools, c) {
    weir_item tool = {0};
    while (weir_next_item(c, &tool)) {
        weir_json properties = weir_at(tool.json, "/inputSchema/properties");
        if (weir_has_prefix(tool.name, "internal_")) {
            weir_hide(&tool);
            continue;
        }
        if (weir_equal(tool.name, "raw")) {
            weir_set_schema(&tool, "{\"type\":\"object\"}");
            weir_patch_item(&tool, "/icons", "[]");
        }
        weir_rename(&tool, weir_cat(tool.backend, weir_str("_"), tool.name));
        weir_describe(&tool, weir_cat(weir_str("Of "), tool.backend, weir_str(": "), weir_text(weir_get(tool.json, "description"))));
        if (weir_has_prefix(tool.name, "get_")) weir_annotate(&tool, "readOnlyHint", "true");
        if (weir_exists(weir_get(properties, "region"))) weir_pin_arg(&tool, "/region", weir_quote(weir_cat(weir_str("eu-"), weir_tenant(c))));
        if (weir_exists(weir_get(properties, "debug"))) weir_hide_arg(&tool, "/debug");
    }
}

WEIR_HOOK(override_prompts, c) {
    weir_item prompt = {0};
    while (weir_next_item(c, &prompt)) {
        weir_rename(&prompt, weir_cat(weir_str("p_"), prompt.name));
        if (weir_has_prefix(prompt.name, "old_")) weir_hide(&prompt);
    }
}

WEIR_HOOK(override_resources, c) {
    weir_item resource = {0};
    while (weir_next_item(c, &resource)) weir_describe(&resource, weir_cat(weir_str("At "), weir_text(weir_get(resource.json, "uri"))));
}

static void deletes(weir_call *c) {
    if (!weir_in_group(c, group)) {
        weir_deny_with(c, WEIR_FORBIDDEN, weir_cat(weir_str("only "), group, weir_str(" may delete")),
                       weir_cat(weir_str("{\"tool\":"), weir_quote(weir_tool(c)), weir_str("}")));
        return;
    }
    weir_set(c, "/dry_run", "true");
    weir_set_header(c, "x-user", weir_subject(c));
    weir_del_header(c, "x-debug");
    weir_set_attr(c, "deleting", weir_quote(weir_tool(c)));
    weir_log_field(c, "session", weir_session(c));
    weir_carry(c, weir_subject(c));
}

static void reads(weir_call *c) {
    weir_json path = weir_selected(c, 0), verbose = weir_selected(c, 1);
    if (weir_is(path, "/etc/passwd")) {
        weir_respond(c, weir_text_result("\"no\""));
        return;
    }
    if (weir_is_text(path)) weir_set(c, "/path", weir_quote(weir_cat(weir_str("/srv"), weir_text(path))));
    if (weir_exists(verbose)) weir_del(c, "/verbose");
}

WEIR_HOOK(on_call_request, c) {
    if (weir_matches(weir_tool(c), "delete_*")) deletes(c);
    if (weir_matches(weir_tool(c), "read_*")) reads(c);
    if (weir_equal(weir_tool(c), "whoami"))
        weir_respond(c, weir_text_result(weir_cat(weir_text(weir_claim(c, 0)), weir_str(" in "), weir_text(weir_attr(c, "team")))));
    if (weir_equal(weir_tool(c), "old") && weir_equal(weir_backend(c), "b1")) {
        weir_set_tool(c, "new");
        weir_set_backend(c, "b2");
        weir_set_arguments(c, weir_cat(weir_str("{\"was\":"), weir_str(weir_arguments(c)), weir_str("}")));
    }
}

WEIR_HOOK(outgoing_auth, c) {
    weir_view tenant = weir_tenant(c);
    if (!tenant.n) {
        weir_deny(c, WEIR_FORBIDDEN, "no tenant");
        return;
    }
    weir_use_credential(c, weir_cat(weir_backend(c), weir_str("-"), tenant));
    weir_set_header(c, "x-tenant", tenant);
}

WEIR_HOOK(on_upstream_request, c) {
    weir_set_header(c, "x-request-id", weir_request_id(c));
    weir_del_header(c, "x-internal");
}

WEIR_HOOK(on_call_response, c) {
    if (weir_exists(weir_error(c))) {
        weir_log_field(c, "failed", weir_text(weir_get(weir_error(c), "message")));
        weir_respond(c, weir_error_result("try again later"));
        return;
    }
    if (weir_contains(weir_selected(c, 0), "secret")) weir_redact(c, "/content/0/text", "[redacted]");
    weir_json block = {0, 0}, content = weir_get(weir_result(c), "content");
    for (weir_u32 i = 0; weir_next(content, &block); i++)
        if (weir_is(weir_get(block, "type"), "image")) weir_drop_content(c, i);
    if (weir_carried(c).n) weir_patch(c, "/_meta/for", weir_quote(weir_carried(c)));
}

WEIR_HOOK(on_message, c) {
    if (weir_has_prefix(weir_text(weir_get(weir_arguments(c), "uri")), "file:")) weir_deny(c, WEIR_NOT_FOUND, "there are no files");
    if (weir_exists(weir_result(c))) {
        weir_patch(c, "/ttl", weir_decimal(-60));
        weir_redact(c, "/token", "");
    }
}

WEIR_HOOK(on_http_response, c) {
    if (weir_status(c) >= 500) {
        weir_set_header(c, "retry-after", "1");
        weir_del_header(c, "server");
    }
}

WEIR_HOOK(on_session_start, c) {
    if (weir_equal(weir_tenant(c), "late")) {
        weir_deny(c, WEIR_LIMITED, "come back tomorrow");
        return;
    }
    weir_set_attr(c, "since", weir_decimal((weir_i64)weir_now(c)));
}

WEIR_HOOK(on_session_end, c) { weir_set_attr(c, "ended", "true"); }

WEIR_HOOK(on_event, c) { weir_log(WEIR_INFO, weir_cat(weir_str("seen: "), weir_text(weir_get(weir_event(c), "method")))); }

WEIR_HOOK(on_notification, c) {
    weir_json params = weir_arguments(c);
    if (!weir_from_server(c)) {
        weir_set(c, "/_meta", weir_cat(weir_str("{\"by\":"), weir_quote(weir_subject(c)), weir_str("}")));
    } else if (weir_is(weir_get(params, "level"), "debug")) {
        weir_deny(c, WEIR_FORBIDDEN, "too much");
    } else if (weir_contains(weir_text(weir_get(params, "message")), "secret")) {
        weir_redact(c, "/message", "[redacted]");
        weir_log_field(c, "during", weir_tool(c));
    } else {
        weir_del(c, "/_meta");
    }
}

WEIR_HOOK(on_question, c) {
    if (weir_from_server(c) && weir_contains(weir_text(weir_selected(c, 0)), "password")) {
        weir_deny(c, WEIR_FORBIDDEN, "no passwords");
    } else if (weir_from_server(c)) {
        weir_set(c, "/_meta", weir_cat(weir_str("{\"from\":"), weir_quote(weir_backend(c)), weir_str("}")));
    } else if (weir_exists(weir_error(c))) {
        weir_log_field(c, "refused", weir_text(weir_get(weir_arguments(c), "message")));
    } else if (weir_is(weir_get(weir_result(c), "action"), "accept")) {
        weir_redact(c, "/content/card", "[redacted]");
        weir_patch(c, "/content/checked", "true");
    }
}
