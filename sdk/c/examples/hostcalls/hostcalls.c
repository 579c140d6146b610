// A guest that calls every function of the host.
#include "../../weir.h"

enum { MINUTE = 60000 };

WEIR_INIT(s) {
    if (!weir_granted(s, "random") || !weir_granted(s, "kv") || !weir_granted(s, "metrics") || !weir_granted(s, "keys")) return "a grant is missing";
    if (!weir_granted(s, "http") || !weir_granted(s, "tools") || !weir_granted(s, "events")) return "a grant is missing";
    weir_on(s, WEIR_ON_CALL_REQUEST, .pointers = WEIR_LIST("/text"), .blocking = 1);
    return 0;
}

static weir_view hex(const weir_byte *sum) {
    char *to = weir_room_(64);
    for (int i = 0; i < 32; i++) {
        to[2 * i] = "0123456789abcdef"[sum[i] >> 4];
        to[2 * i + 1] = "0123456789abcdef"[sum[i] & 15];
    }
    return weir_span_(to, 64);
}

static weir_view failure(weir_i64 n) {
    static const char *const texts[] = {"not found", "not granted", "above the limit", "bad argument", "not available", "no answer in time", "connection refused", "no such host", "TLS failed"};
    return weir_cat(weir_str("error: "), weir_str(texts[-1 - n]));
}

static weir_view answer(weir_view tool, weir_view text) {
    weir_view none = weir_str("");
    weir_i64 n = 0;
    if (weir_equal(tool, "give up")) weir_panic(weir_cat(weir_str("given up on "), text));
    if (weir_equal(tool, "count")) {
        n = weir_kv_add("calls", 1, MINUTE);
        return n < 0 ? failure(n) : weir_decimal(n);
    }
    if (weir_equal(tool, "remember")) {
        n = weir_kv_set("note", text, MINUTE);
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "recall")) {
        weir_view note;
        n = weir_kv_get("note", &note);
        return n < 0 ? failure(n) : note;
    }
    if (weir_equal(tool, "forever")) {
        n = weir_kv_set("note", "", 365LL * 24 * 60 * MINUTE);
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "digest")) {
        weir_byte sum[32];
        weir_sha256(text, sum);
        return hex(sum);
    }
    if (weir_equal(tool, "sign") || weir_equal(tool, "sign with another")) {
        weir_byte sum[32];
        n = weir_hmac(weir_equal(tool, "sign") ? "sign" : "other", text, sum);
        return n < 0 ? failure(n) : hex(sum);
    }
    if (weir_equal(tool, "random")) {
        char one[32], two[32];
        n = weir_random(one, 32);
        if (n == 0) n = weir_random(two, 32);
        return n < 0 ? failure(n) : weir_equal(weir_span_(one, 32), weir_span_(two, 32)) ? weir_str("false") : weir_str("true");
    }
    if (weir_equal(tool, "too random")) {
        static char much[5000];
        n = weir_random(much, sizeof much);
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "measure")) {
        n = weir_gauge("level", 7);
        if (n == 0) n = weir_count("asked", 2);
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "measure badly")) {
        n = weir_count("Asked!", 2);
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "time")) {
        weir_i64 before = weir_mono_ns();
        return weir_now_ms() > 1600000000000 && weir_mono_ns() >= before ? weir_str("true") : weir_str("false");
    }
    if (weir_equal(tool, "log")) {
        weir_log(WEIR_DEBUG, weir_cat(weir_str("d "), text));
        weir_log(WEIR_INFO, weir_cat(weir_str("i "), text));
        weir_log(WEIR_WARN, weir_cat(weir_str("w "), text));
        weir_log(WEIR_ERROR, weir_cat(weir_str("e "), text));
        return weir_decimal(weir_log_level());
    }
    if (weir_equal(tool, "fetch")) {
        weir_line say = {weir_str("x-say"), weir_str("hello")};
        weir_reply a;
        n = weir_fetch((weir_request){.method = weir_str("POST"), .url = weir_str("https://api.example/judge?x=1"), .body = text, .headers = &say, .lines = 1, .millis = 2000}, &a);
        return n < 0 ? failure(n) : weir_cat(weir_decimal(a.status), weir_str(" "), weir_reply_header(&a, "x-kind"), weir_str(" "), a.body);
    }
    if (weir_equal(tool, "fetch size")) {
        weir_reply a;
        n = weir_fetch((weir_request){.method = weir_str("POST"), .url = weir_str("https://api.example/judge?x=1")}, &a);
        return n < 0 ? failure(n) : weir_decimal(a.body.n);
    }
    if (weir_equal(tool, "fetch elsewhere")) {
        weir_reply a;
        n = weir_fetch((weir_request){.url = weir_str("https://elsewhere.example/")}, &a);
        return n < 0 ? failure(n) : weir_decimal(a.status);
    }
    if (weir_equal(tool, "tool")) {
        weir_reply a;
        n = weir_call_tool(text, "{\"deep\":true}", &a);
        if (weir_exists(a.error)) return weir_cat(weir_str("failed: "), weir_text(weir_get(a.error, "message")));
        return n < 0 ? failure(n) : weir_text(weir_at(a.result, "/content/0/text"));
    }
    if (weir_equal(tool, "emit")) {
        n = weir_emit("seen", weir_cat(weir_str("{\"text\":"), weir_quote(text), weir_str("}")));
        return n < 0 ? failure(n) : none;
    }
    if (weir_equal(tool, "emit badly")) {
        n = weir_emit("Seen!", "");
        return n < 0 ? failure(n) : none;
    }
    return weir_str("error: no such tool");
}

WEIR_HOOK(on_call_request, c) { weir_respond(c, weir_text_result(answer(weir_tool(c), weir_text(weir_selected(c, 0))))); }
