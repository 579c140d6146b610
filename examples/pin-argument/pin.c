// A guest that gives arguments of tools one value for good, and hides others.
// Of the configuration {"pins":[{"tool":GLOB,"argument":NAME,"value":JSON}]} it
// keeps the text and reads it anew when the edge asks what is offered, which is
// once for each catalog. A pin without a value hides the argument.
#include "../../sdk/c/weir.h"

static weir_json pins;

WEIR_INIT(s) {
    pins = weir_parse(weir_keep(weir_get(s->config, "pins")));
    weir_json pin = {0, 0};
    int count = 0;
    while (weir_next(pins, &pin)) {
        if (!weir_text(weir_get(pin, "tool")).n) return "pins: one without a tool";
        if (!weir_text(weir_get(pin, "argument")).n) return "pins: one without an argument";
        count++;
    }
    if (!count) return "pins: there are none";
    weir_on(s, WEIR_OVERRIDE_TOOLS, 0);
    return 0;
}

// The JSON pointer of an argument: a name may hold / and ~.
static weir_view pointer(weir_view name) {
    char *start = weir_room_(1 + 2 * name.n), *to = start;
    *to++ = '/';
    for (weir_u32 i = 0; i < name.n; i++) {
        if (name.p[i] == '~' || name.p[i] == '/') {
            *to++ = '~';
            *to++ = name.p[i] == '~' ? '0' : '1';
        } else {
            *to++ = name.p[i];
        }
    }
    return weir_span_(start, (weir_u32)(to - start));
}

WEIR_HOOK(override_tools, c) {
    weir_item tool = {0};
    while (weir_next_item(c, &tool)) {
        weir_json pin = {0, 0};
        while (weir_next(pins, &pin)) {
            weir_view argument = weir_text(weir_get(pin, "argument"));
            weir_json value = weir_get(pin, "value");
            if (!weir_matches(tool.name, weir_text(weir_get(pin, "tool")))) continue;
            if (!weir_exists(weir_get(weir_at(tool.json, "/inputSchema/properties"), argument))) continue;
            if (weir_exists(value)) weir_pin_arg(&tool, pointer(argument), value);
            else weir_hide_arg(&tool, pointer(argument));
        }
    }
}
