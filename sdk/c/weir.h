/* weir.h is the SDK for authors of guests in C: programs in WebAssembly that
 * see the messages of a Weir edge and answer with operations on them. It needs
 * no library, and is included by one file.
 *
 *     #include "weir.h"
 *
 *     WEIR_INIT(s) {
 *         weir_on(s, WEIR_ON_CALL_REQUEST, .tools = WEIR_LIST("delete_*"));
 *         return 0;
 *     }
 *
 *     WEIR_HOOK(on_call_request, c) {
 *         if (!weir_in_group(c, "admin"))
 *             weir_deny(c, WEIR_FORBIDDEN, "only admins delete");
 *     }
 *
 * Build: clang --target=wasm32 -O2 -ffreestanding -nostdlib -mbulk-memory -c x.c
 *        wasm-ld --no-entry -o x.wasm x.o
 *
 * What a hook receives, and what these functions return, is valid until the
 * hook returns, and is zeroed then, by the host or here. weir_keep makes copies that stay; keep
 * nothing else, so that a message of one client never reaches the answer to
 * another. Text is a weir_view: a pointer and a length, with no zero at its end.
 * Wherever a function takes text, a string literal will do.
 *
 * An instance runs one call at a time.
 */
#ifndef WEIR_H
#define WEIR_H

#define WEIR_ABI (1 << 16 | 1) /* version 1.1 of the ABI */

typedef unsigned char weir_byte;
typedef unsigned int weir_u32;
typedef unsigned long long weir_u64;
typedef long long weir_i64;
_Static_assert(sizeof(void *) == 4, "compile with --target=wasm32");

/* weir_view is text. */
typedef struct { const char *p; weir_u32 n; } weir_view;

/* weir_json is JSON text that is read in place. Where n is 0 there is nothing,
 * and every question about it is answered with nothing. */
typedef struct { const char *p; weir_u32 n; } weir_json;

/* ---- Hooks, codes, levels ------------------------------------------------ */

#define WEIR_ON_HTTP_REQUEST "on_http_request"
#define WEIR_AUTHENTICATE "authenticate"
#define WEIR_MAP_IDENTITY "map_identity"
#define WEIR_OVERRIDE_TOOLS "override_tools"
#define WEIR_OVERRIDE_PROMPTS "override_prompts"
#define WEIR_OVERRIDE_RESOURCES "override_resources"
#define WEIR_ON_CALL_REQUEST "on_call_request"
#define WEIR_OUTGOING_AUTH "outgoing_auth"
#define WEIR_ON_UPSTREAM_REQUEST "on_upstream_request"
#define WEIR_ON_CALL_RESPONSE "on_call_response"
#define WEIR_ON_MESSAGE "on_message"
#define WEIR_ON_HTTP_RESPONSE "on_http_response"
#define WEIR_ON_SESSION_START "on_session_start"
#define WEIR_ON_SESSION_END "on_session_end"
#define WEIR_ON_EVENT "on_event"

enum { WEIR_FORBIDDEN, WEIR_UNAUTHENTICATED, WEIR_INVALID, WEIR_LIMITED, WEIR_NOT_FOUND };
enum { WEIR_DEBUG, WEIR_INFO, WEIR_WARN, WEIR_ERROR };
enum { WEIR_BY_TENANT = 1, WEIR_BY_GROUPS, WEIR_BY_SUBJECT };

/* What functions of the host return below zero. */
enum { WEIR_ERR_NOT_FOUND = -1, WEIR_ERR_DENIED = -2, WEIR_ERR_LIMIT = -3, WEIR_ERR_ARGUMENT = -4, WEIR_ERR_UNAVAILABLE = -5 };
/* Of weir_fetch: why there is no answer. */
enum { WEIR_ERR_TIMEOUT = -6, WEIR_ERR_REFUSED = -7, WEIR_ERR_NAME = -8, WEIR_ERR_TLS = -9 };

/* Fields of the input, for the member fields of weir_on. */
enum {
    WEIR_TOOL = 1, WEIR_BACKEND, WEIR_SESSION, WEIR_METHOD, WEIR_REQUEST_ID, WEIR_PRINCIPAL, WEIR_HEADER, WEIR_ARGUMENTS, WEIR_SELECTED,
    WEIR_NOW, WEIR_RESULT, WEIR_ERROR_OBJECT, WEIR_ITEM, WEIR_CLAIMS, WEIR_CARRY, WEIR_STATUS, WEIR_PATH, WEIR_ISSUER, WEIR_EVENT,
    WEIR_ATTR = 25, WEIR_CLAIM = 26
};

#define WEIR_FN_ static __attribute__((noinline, unused))

/* ---- Memory: areas that grow, and never shrink --------------------------- */

#ifndef WEIR_INPUT_SIZE
#define WEIR_INPUT_SIZE 8192 /* bytes of input that there is room for at first */
#endif
#ifndef WEIR_OUTPUT_SIZE
#define WEIR_OUTPUT_SIZE 4096
#endif
#ifndef WEIR_SCRATCH_SIZE
#define WEIR_SCRATCH_SIZE 4096
#endif

typedef struct { weir_byte *p; weir_u32 n, room; } weir_area_;

static weir_byte weir_input_0_[WEIR_INPUT_SIZE], weir_output_0_[WEIR_OUTPUT_SIZE], weir_scratch_0_[WEIR_SCRATCH_SIZE];
static weir_area_ weir_input_ = {weir_input_0_, 0, WEIR_INPUT_SIZE};
static weir_area_ weir_output_ = {weir_output_0_, 0, WEIR_OUTPUT_SIZE};
static weir_area_ weir_scratch_ = {weir_scratch_0_, 0, WEIR_SCRATCH_SIZE};

/* Takes whole new pages for an area of at least room bytes; 0 when the memory
 * is at its limit. What the area held before is not used again. */
WEIR_FN_ int weir_grow_(weir_area_ *a, weir_u32 room) {
    if (room > (64u << 20)) return 0;
    if (room < a->room * 2) room = a->room * 2;
    weir_u32 pages = (room + 65535) >> 16;
    weir_u32 old = __builtin_wasm_memory_grow(0, pages);
    if (old == (weir_u32)-1) return 0;
    weir_byte *p = (weir_byte *)(old << 16);
    __builtin_memcpy(p, a->p, a->n);
    a->p = p;
    a->room = pages << 16;
    return 1;
}

/* Room for n more bytes at the end of an area; traps when there is none, which
 * the host takes for a failure of the guest. */
static inline weir_byte *weir_more_(weir_area_ *a, weir_u32 n) {
    if (n > a->room - a->n && !weir_grow_(a, a->n + n)) __builtin_trap();
    weir_byte *p = a->p + a->n;
    a->n += n;
    return p;
}

/* Room for n bytes until the hook returns. Unlike areas that records are built
 * in, it never moves: views of it are out there. */
WEIR_FN_ char *weir_room_(weir_u32 n) {
    if (n > weir_scratch_.room - weir_scratch_.n) {
        weir_scratch_.n = 0; /* nothing to copy: what was there stays where it is */
        if (!weir_grow_(&weir_scratch_, n)) __builtin_trap();
    }
    return (char *)weir_more_(&weir_scratch_, n);
}

/* ---- Text ---------------------------------------------------------------- */

static inline weir_view weir_span_(const void *p, weir_u32 n) { return (weir_view){(const char *)p, n}; }
static inline weir_view weir_cstr_(const char *s) {
    weir_u32 n = 0;
    while (s[n]) n++;
    return (weir_view){s, n};
}
static inline weir_view weir_same_(weir_view v) { return v; }
static inline weir_view weir_whole_(weir_json v) { return (weir_view){v.p, v.n}; }
#define weir_str(s) _Generic((s), weir_view: weir_same_, weir_json: weir_whole_, char *: weir_cstr_, const char *: weir_cstr_)(s)

static inline int weir_same_bytes_(const char *a, const char *b, weir_u32 n) {
    for (weir_u32 i = 0; i < n; i++)
        if (a[i] != b[i]) return 0;
    return 1;
}
static inline int weir_equal_(weir_view a, weir_view b) { return a.n == b.n && weir_same_bytes_(a.p, b.p, a.n); }
static inline int weir_prefix_(weir_view v, weir_view s) { return v.n >= s.n && weir_same_bytes_(v.p, s.p, s.n); }
static inline int weir_suffix_(weir_view v, weir_view s) { return v.n >= s.n && weir_same_bytes_(v.p + v.n - s.n, s.p, s.n); }
WEIR_FN_ int weir_contains_(weir_view v, weir_view s) {
    for (weir_u32 i = 0; i + s.n <= v.n; i++)
        if (weir_same_bytes_(v.p + i, s.p, s.n)) return 1;
    return 0;
}
WEIR_FN_ int weir_matches_(weir_view name, weir_view pattern) {
    weir_u32 p = 0, n = 0, star = (weir_u32)-1, mark = 0;
    while (n < name.n) {
        if (p < pattern.n && pattern.p[p] == '*') { star = p++; mark = n; }
        else if (p < pattern.n && pattern.p[p] == name.p[n]) { p++; n++; }
        else if (star != (weir_u32)-1) { p = star + 1; n = ++mark; }
        else return 0;
    }
    while (p < pattern.n && pattern.p[p] == '*') p++;
    return p == pattern.n;
}
WEIR_FN_ weir_view weir_cat_(const weir_view *parts, weir_u32 count) {
    weir_u32 n = 0;
    for (weir_u32 i = 0; i < count; i++) n += parts[i].n;
    char *to = weir_room_(n);
    weir_u32 at = 0;
    for (weir_u32 i = 0; i < count; i++) {
        __builtin_memcpy(to + at, parts[i].p, parts[i].n);
        at += parts[i].n;
    }
    return weir_span_(to, n);
}

#define weir_equal(a, b) weir_equal_(weir_str(a), weir_str(b))               /* the texts are the same */
#define weir_has_prefix(v, s) weir_prefix_(weir_str(v), weir_str(s))         /* v begins with s */
#define weir_has_suffix(v, s) weir_suffix_(weir_str(v), weir_str(s))         /* v ends with s */
#define weir_contains(v, s) weir_contains_(weir_str(v), weir_str(s))         /* s is a part of v */
#define weir_matches(v, pattern) weir_matches_(weir_str(v), weir_str(pattern)) /* * in the pattern stands for any characters */

/* One text of several views, made with weir_str where they are literals. */
#define weir_cat(...) weir_cat_((const weir_view[]){__VA_ARGS__}, sizeof((const weir_view[]){__VA_ARGS__}) / sizeof(weir_view))

WEIR_FN_ weir_view weir_decimal(weir_i64 v) {
    char *end = weir_room_(20) + 20, *p = end;
    weir_u64 u = v < 0 ? 0 - (weir_u64)v : (weir_u64)v;
    do *--p = (char)('0' + u % 10); while (u /= 10);
    if (v < 0) *--p = '-';
    return weir_span_(p, (weir_u32)(end - p));
}

/* A copy that stays. It takes memory for good: for weir_init. */
WEIR_FN_ weir_view weir_keep_(weir_view v) {
    static weir_byte room[256];
    static weir_area_ kept = {room, 0, sizeof room};
    if (v.n > kept.room - kept.n) {
        kept.n = 0;
        if (!weir_grow_(&kept, v.n)) __builtin_trap();
    }
    weir_byte *p = weir_more_(&kept, v.n);
    __builtin_memcpy(p, v.p, v.n);
    return weir_span_(p, v.n);
}
#define weir_keep(v) weir_keep_(weir_str(v))

/* ---- JSON ---------------------------------------------------------------- */

static inline int weir_is_space_(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
static inline int weir_is_end_(char c) {
    return weir_is_space_(c) || c == ',' || c == ':' || c == '"' || c == '{' || c == '}' || c == '[' || c == ']';
}
static inline const char *weir_space_(const char *p, const char *end) {
    while (p < end && weir_is_space_(*p)) p++;
    return p;
}

/* What follows the value that p begins with. */
WEIR_FN_ const char *weir_skip_(const char *p, const char *end) {
    for (int depth = 0; p < end;) {
        if (*p == '"') {
            for (p++; p < end && *p != '"'; p++)
                if (*p == '\\') p++;
            p = p < end ? p + 1 : end;
        } else if (*p == '{' || *p == '[') {
            depth++;
            p++;
        } else if (*p == '}' || *p == ']') {
            if (--depth < 0) return p;
            p++;
        } else {
            const char *from = p;
            while (p < end && !weir_is_end_(*p)) p++;
            if (p == from) {
                if (depth == 0) return p;
                p++;
                continue;
            }
        }
        if (depth == 0) return p;
    }
    return end;
}

static inline weir_json weir_trim_(weir_json v) {
    if (!v.n) return v;
    const char *end = v.p + v.n, *p = weir_space_(v.p, end);
    return (weir_json){p, (weir_u32)(end - p)};
}
static inline char weir_kind_(weir_json v) {
    v = weir_trim_(v);
    return v.n ? v.p[0] : 0;
}

static inline weir_json weir_parse_(weir_view v) { return (weir_json){v.p, v.n}; }
#define weir_parse(text) weir_parse_(weir_str(text)) /* JSON text that does not come from the input */

static inline int weir_exists(weir_json v) { return weir_trim_(v).n > 0; }
static inline int weir_is_null(weir_json v) { return weir_kind_(v) == 'n'; }
static inline int weir_is_true(weir_json v) { return weir_kind_(v) == 't'; }
static inline int weir_is_text(weir_json v) { return weir_kind_(v) == '"'; }
static inline int weir_is_array(weir_json v) { return weir_kind_(v) == '['; }
static inline int weir_is_object(weir_json v) { return weir_kind_(v) == '{'; }

static inline weir_u32 weir_hex_(const char *p, const char *end) {
    weir_u32 r = 0;
    if (end - p < 4) return 0xfffd;
    for (int i = 0; i < 4; i++) {
        char c = p[i] | 0x20;
        if (p[i] >= '0' && p[i] <= '9') r = r << 4 | (weir_u32)(p[i] - '0');
        else if (c >= 'a' && c <= 'f') r = r << 4 | (weir_u32)(c - 'a' + 10);
        else return 0xfffd;
    }
    return r;
}
WEIR_FN_ char *weir_rune_(char *to, weir_u32 r) {
    if (r >= 0xd800 && r < 0xe000) r = 0xfffd; /* half a pair */
    if (r < 0x80) { *to++ = (char)r; return to; }
    if (r < 0x800) { *to++ = (char)(0xc0 | r >> 6); }
    else {
        if (r < 0x10000) *to++ = (char)(0xe0 | r >> 12);
        else { *to++ = (char)(0xf0 | r >> 18); *to++ = (char)(0x80 | (r >> 12 & 0x3f)); }
        *to++ = (char)(0x80 | (r >> 6 & 0x3f));
    }
    *to++ = (char)(0x80 | (r & 0x3f));
    return to;
}

/* The text of a string; empty for anything else. */
WEIR_FN_ weir_view weir_text(weir_json v) {
    v = weir_trim_(v);
    if (!v.n || v.p[0] != '"') return weir_span_("", 0);
    const char *end = weir_skip_(v.p, v.p + v.n), *p = v.p + 1;
    if (end - v.p < 2 || end[-1] != '"') return weir_span_("", 0);
    end--;
    const char *q = p;
    while (q < end && *q != '\\') q++;
    if (q == end) return weir_span_(p, (weir_u32)(end - p));
    char *start = weir_room_((weir_u32)(end - p)), *to = start; /* text is never longer than it is written */
    for (; p < end; p++) {
        if (*p != '\\' || p + 1 == end) { *to++ = *p; continue; }
        switch (*++p) {
        case 'b': *to++ = '\b'; break;
        case 'f': *to++ = '\f'; break;
        case 'n': *to++ = '\n'; break;
        case 'r': *to++ = '\r'; break;
        case 't': *to++ = '\t'; break;
        case 'u': {
            weir_u32 r = weir_hex_(p + 1, end), low;
            p += end - p - 1 < 4 ? end - p - 1 : 4;
            if (r >= 0xd800 && r < 0xdc00 && end - p > 6 && p[1] == '\\' && p[2] == 'u' && (low = weir_hex_(p + 3, end)) >= 0xdc00 && low < 0xe000) {
                r = 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00);
                p += 6;
            }
            to = weir_rune_(to, r);
            break;
        }
        default: *to++ = *p;
        }
    }
    return weir_span_(start, (weir_u32)(to - start));
}
#define weir_is(v, s) (weir_is_text(v) && weir_equal_(weir_text(v), weir_str(s))) /* v is the string s */

/* The value of a number without fraction and exponent; ok says whether it is one. */
WEIR_FN_ weir_i64 weir_int(weir_json v, int *ok) {
    v = weir_trim_(v);
    const char *p = v.p, *end = v.n ? weir_skip_(v.p, v.p + v.n) : v.p;
    int minus = p < end && *p == '-';
    weir_u64 n = 0, most = 9223372036854775807ull + (weir_u64)minus;
    p += minus;
    *ok = p < end;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9' || n > (most - (weir_u64)(*p - '0')) / 10) { *ok = 0; return 0; }
        n = n * 10 + (weir_u64)(*p - '0');
    }
    return minus ? (weir_i64)(0 - n) : (weir_i64)n;
}

/* Goes to the next element of an array. Begin with element zeroed. */
WEIR_FN_ int weir_next(weir_json array, weir_json *element) {
    array = weir_trim_(array);
    const char *end = array.p + array.n, *p;
    if (!element->p) {
        if (!array.n || array.p[0] != '[') return 0;
        p = weir_space_(array.p + 1, end);
    } else {
        p = weir_space_(element->p + element->n, end);
        if (p < end && *p == ',') p = weir_space_(p + 1, end);
    }
    if (p >= end || *p == ']') return 0;
    const char *after = weir_skip_(p, end);
    *element = (weir_json){p, (weir_u32)(after - p)};
    return after > p;
}

/* Goes to the next member of an object. Begin with value zeroed. */
WEIR_FN_ int weir_next_member(weir_json object, weir_json *name, weir_json *value) {
    object = weir_trim_(object);
    const char *end = object.p + object.n, *p;
    if (!value->p) {
        if (!object.n || object.p[0] != '{') return 0;
        p = weir_space_(object.p + 1, end);
    } else {
        p = weir_space_(value->p + value->n, end);
        if (p < end && *p == ',') p = weir_space_(p + 1, end);
    }
    if (p >= end || *p != '"') return 0;
    const char *after = weir_skip_(p, end);
    *name = (weir_json){p, (weir_u32)(after - p)};
    p = weir_space_(after, end);
    if (p >= end || *p != ':') return 0;
    p = weir_space_(p + 1, end);
    after = weir_skip_(p, end);
    *value = (weir_json){p, (weir_u32)(after - p)};
    return after > p;
}

WEIR_FN_ weir_json weir_get_(weir_json object, weir_view name) {
    weir_json n = {0, 0}, v = {0, 0};
    while (weir_next_member(object, &n, &v))
        if (weir_equal_(weir_text(n), name)) return v;
    return (weir_json){0, 0};
}
#define weir_get(object, name) weir_get_(object, weir_str(name)) /* the member of an object */

/* The value behind a JSON pointer (RFC 6901). */
WEIR_FN_ weir_json weir_at_(weir_json v, weir_view pointer) {
    const weir_json none = {0, 0};
    const char *p = pointer.p, *end = pointer.p + pointer.n;
    while (p < end) {
        if (*p++ != '/') return none;
        const char *from = p;
        while (p < end && *p != '/') p++;
        weir_u32 n = (weir_u32)(p - from);
        if (weir_is_array(v)) {
            weir_u32 index = 0;
            if (!n || n > 9 || (n > 1 && *from == '0')) return none;
            for (const char *c = from; c < p; c++) {
                if (*c < '0' || *c > '9') return none;
                index = index * 10 + (weir_u32)(*c - '0');
            }
            weir_json e = {0, 0};
            do if (!weir_next(v, &e)) return none; while (index--);
            v = e;
            continue;
        }
        char *name = weir_room_(n), *to = name;
        for (const char *c = from; c < p; c++) {
            if (*c == '~' && c + 1 < p) *to++ = *++c == '1' ? '/' : '~';
            else *to++ = *c;
        }
        v = weir_get_(v, weir_span_(name, (weir_u32)(to - name)));
    }
    return v;
}
#define weir_at(v, pointer) weir_at_(v, weir_str(pointer))

/* The JSON text of a string. Bytes that are no UTF-8 become U+FFFD. */
WEIR_FN_ weir_view weir_quote_(weir_view s) {
    static const char hex[] = "0123456789abcdef";
    char *start = weir_room_(s.n * 6 + 2), *to = start;
    *to++ = '"';
    for (weir_u32 i = 0; i < s.n;) {
        weir_u32 c = (weir_byte)s.p[i], more = 0, r = 0, least = 0;
        if (c == '"' || c == '\\') { *to++ = '\\'; *to++ = (char)c; i++; continue; }
        if (c < ' ') { *to++ = '\\'; *to++ = 'u'; *to++ = '0'; *to++ = '0'; *to++ = hex[c >> 4]; *to++ = hex[c & 15]; i++; continue; }
        if (c < 0x80) { *to++ = (char)c; i++; continue; }
        if (c >= 0xc2 && c < 0xe0) { more = 1; r = c & 0x1f; least = 0x80; }
        else if (c >= 0xe0 && c < 0xf0) { more = 2; r = c & 0x0f; least = 0x800; }
        else if (c >= 0xf0 && c < 0xf5) { more = 3; r = c & 0x07; least = 0x10000; }
        int good = more && i + more < s.n;
        for (weir_u32 k = 1; good && k <= more; k++) {
            weir_u32 d = (weir_byte)s.p[i + k];
            good = (d & 0xc0) == 0x80;
            r = r << 6 | (d & 0x3f);
        }
        if (!good || r < least || r > 0x10ffff || (r >= 0xd800 && r < 0xe000)) { r = 0xfffd; more = 0; }
        to = weir_rune_(to, r);
        i += 1 + more;
    }
    *to++ = '"';
    return weir_span_(start, (weir_u32)(to - start));
}
#define weir_quote(s) weir_quote_(weir_str(s))

/* The result of a tool that says text, and of one that failed and says why. */
#define weir_text_result(s) weir_cat(weir_cstr_("{\"content\":[{\"type\":\"text\",\"text\":"), weir_quote(s), weir_cstr_("}]}"))
#define weir_error_result(s) weir_cat(weir_cstr_("{\"content\":[{\"type\":\"text\",\"text\":"), weir_quote(s), weir_cstr_("}],\"isError\":true}"))

/* ---- Records ------------------------------------------------------------- */

typedef struct { const weir_byte *p, *end; weir_u32 field; weir_u64 number; weir_view data; } weir_reader_;

static inline int weir_varint_(weir_reader_ *r, weir_u64 *v) {
    *v = 0;
    for (int shift = 0; r->p < r->end && shift < 64; shift += 7) {
        weir_byte c = *r->p++;
        *v |= (weir_u64)(c & 0x7f) << shift;
        if (c < 0x80) return 1;
    }
    return 0;
}

WEIR_FN_ int weir_field_slow_(weir_reader_ *r) {
    weir_u64 key, n;
    while (r->p < r->end && weir_varint_(r, &key)) {
        r->field = (weir_u32)(key >> 3);
        r->number = 0;
        r->data = weir_span_("", 0);
        switch (key & 7) {
        case 0: return weir_varint_(r, &r->number);
        case 2:
            if (!weir_varint_(r, &n) || n > (weir_u64)(r->end - r->p)) return 0;
            r->data = weir_span_(r->p, (weir_u32)n);
            r->p += n;
            return 1;
        case 1: n = 8; break;
        case 5: n = 4; break;
        default: return 0;
        }
        if (n > (weir_u64)(r->end - r->p)) return 0;
        r->p += n;
    }
    return 0;
}

/* Goes to the next field; 0 at the end, or where the record is malformed. Most
 * keys and lengths are one byte: those are read in place, and the reader stays
 * in locals of the caller. */
static inline int weir_field_(weir_reader_ *r) {
    const weir_byte *p = r->p;
    if (r->end - p > 1 && (p[0] & 0x87) == 2 && p[1] <= 0x7f && p[1] <= r->end - p - 2) {
        r->field = p[0] >> 3;
        r->number = 0;
        r->data = weir_span_(p + 2, p[1]);
        r->p = p + 2 + p[1];
        return 1;
    }
    weir_reader_ slow = *r;
    int more = weir_field_slow_(&slow);
    *r = slow;
    return more;
}
static inline weir_reader_ weir_read_(weir_view v) {
    return (weir_reader_){(const weir_byte *)v.p, (const weir_byte *)v.p + v.n, 0, 0, {0, 0}};
}

static inline weir_u32 weir_size_(weir_u64 v) {
    weir_u32 n = 1;
    while (v >>= 7) n++;
    return n;
}
static inline void weir_put_varint_(weir_area_ *a, weir_u64 v) {
    weir_byte *p = weir_more_(a, weir_size_(v));
    for (; v >= 0x80; v >>= 7) *p++ = (weir_byte)v | 0x80;
    *p = (weir_byte)v;
}
WEIR_FN_ void weir_put_(weir_area_ *a, weir_u32 field, weir_view v) {
    weir_put_varint_(a, field << 3 | 2);
    weir_put_varint_(a, v.n);
    __builtin_memcpy(weir_more_(a, v.n), v.p, v.n);
}
WEIR_FN_ void weir_put_number_(weir_area_ *a, weir_u32 field, weir_u64 v) {
    weir_put_varint_(a, field << 3);
    weir_put_varint_(a, v);
}

/* ---- The call under way -------------------------------------------------- */

#define WEIR_FIELDS_ 20

/* weir_call is what a hook is asked about. */
typedef struct {
    weir_view record, field[WEIR_FIELDS_];
    weir_u64 now, status;
    weir_u32 has_; /* a bit for each field that is there */
} weir_call;
_Static_assert(WEIR_FIELDS_ <= 32, "there are more fields than bits");

static weir_call weir_call_;

static inline weir_u64 weir_give_(weir_area_ *a) { return a->n ? (weir_u64)(weir_u32)a->p << 32 | a->n : 0; }

WEIR_FN_ weir_u64 weir_run_(void (*hook)(weir_call *), weir_u32 n) {
    weir_call *c = &weir_call_;
    c->record = weir_span_(weir_input_.p, n);
    weir_scratch_.n = weir_output_.n = 0;
    weir_reader_ r = weir_read_(c->record);
    while (weir_field_(&r)) {
        if (r.field == WEIR_NOW) c->now = r.number;
        else if (r.field == WEIR_STATUS) c->status = r.number;
        else if (r.field < WEIR_FIELDS_) {
            c->field[r.field] = r.data;
            c->has_ |= 1u << r.field;
        }
    }
    hook(c);
    /* The input is zeroed by the host, and what else was made of it here. */
    for (weir_u32 has = c->has_; has; has &= has - 1) c->field[__builtin_ctz(has)] = (weir_view){0, 0};
    c->record = (weir_view){0, 0};
    c->now = c->status = c->has_ = 0;
    if (weir_scratch_.n) __builtin_memset(weir_scratch_.p, 0, weir_scratch_.n);
    return weir_give_(&weir_output_);
}

#define WEIR_EXPORT_(name) __attribute__((used, visibility("default"), export_name(name)))

/* WEIR_HOOK(NAME, c) { … } is the function for a hook. */
#define WEIR_HOOK(name, c)                                                                                              \
    static void weir_user_##name(weir_call *);                                                                          \
    WEIR_EXPORT_("weir_" #name) weir_u64 weir_export_##name(weir_u32 n) { return weir_run_(weir_user_##name, n); }      \
    static void weir_user_##name(__attribute__((unused)) weir_call *c)

WEIR_EXPORT_("weir_abi") weir_u32 weir_export_abi(void) { return WEIR_ABI; }
WEIR_EXPORT_("weir_buf") void *weir_export_buf(weir_u32 min) {
    weir_input_.n = 0;
    return min <= weir_input_.room || weir_grow_(&weir_input_, min) ? weir_input_.p : 0;
}

/* ---- Setup --------------------------------------------------------------- */

/* weir_setup is what a guest is given when it starts. */
typedef struct { weir_view record, name; weir_json config; weir_u64 version; } weir_setup;

WEIR_FN_ int weir_granted_(const weir_setup *s, weir_view grant) {
    weir_reader_ r = weir_read_(s->record);
    while (weir_field_(&r))
        if (r.field == 2 && weir_equal_(r.data, grant)) return 1;
    return 0;
}
#define weir_granted(s, grant) weir_granted_(s, weir_str(grant)) /* random, kv, metrics, keys, identity, credentials, http, tools, events, claims */

#define WEIR_LIST(...) ((const char *const[]){__VA_ARGS__, 0})

/* weir_wants is which messages a hook is asked about, and what it sees. */
typedef struct {
    const char *const *methods, *const *tools, *const *backends; /* globs; none for all */
    const char *const *headers, *const *pointers;
    const char *const *claims; /* JSON pointers into the client's claims, of on_call_request and outgoing_auth; grant claims */
    weir_u64 fields; /* a bit for each: 1 << WEIR_TOOL | …; 0 for all */
    weir_u32 varies_by, inline_limit;
    weir_u32 cache_ms; /* how long an answer of outgoing_auth holds, at most an hour; the guest is told of the backend and of who varies_by says alone */
    int blocking;      /* it calls weir_fetch or weir_call_tool there */
} weir_wants;

WEIR_FN_ void weir_on_(weir_setup *s, const char *hook, weir_wants w) {
    (void)s;
    static weir_byte room[1024];
    weir_area_ sub = {room, 0, sizeof room};
    weir_put_(&sub, 1, weir_cstr_(hook));
    const char *const *lists[] = {w.methods, w.tools, w.backends, w.headers, w.pointers, w.claims};
    static const weir_byte numbers[] = {2, 3, 4, 6, 7, 13};
    for (int i = 0; i < 6; i++)
        for (const char *const *p = lists[i]; p && *p; p++) weir_put_(&sub, numbers[i], weir_cstr_(*p));
    for (weir_u32 f = 1; f < 64; f++)
        if (w.fields >> f & 1) weir_put_number_(&sub, 5, f);
    if (w.varies_by) weir_put_number_(&sub, 8, w.varies_by);
    if (w.inline_limit) weir_put_number_(&sub, 9, w.inline_limit);
    if (w.cache_ms) weir_put_number_(&sub, 10, w.cache_ms);
    if (w.blocking) weir_put_number_(&sub, 11, 1);
    weir_put_(&weir_output_, 1, weir_span_(sub.p, sub.n));
}

/* Asks to be asked: weir_on(s, WEIR_ON_CALL_REQUEST, .tools = WEIR_LIST("delete_*")). */
#define weir_on(s, hook, ...) weir_on_(s, hook, (weir_wants){__VA_ARGS__})

/* WEIR_INIT(s) { … return 0; } reads the configuration and says what the guest
 * wants to be asked. A text that it returns instead of 0 tells the operator why
 * the configuration cannot be used. */
#define WEIR_INIT(s)                                                                                                    \
    static const char *weir_user_init(weir_setup *);                                                                    \
    WEIR_EXPORT_("weir_init") weir_u64 weir_export_init(weir_u32 n) { return weir_start_(weir_user_init, n); }          \
    static const char *weir_user_init(__attribute__((unused)) weir_setup *s)

WEIR_FN_ weir_u64 weir_start_(const char *(*init)(weir_setup *), weir_u32 n) {
    weir_setup s = {weir_span_(weir_input_.p, n), {0, 0}, {0, 0}, 0};
    weir_scratch_.n = weir_output_.n = 0;
    weir_reader_ r = weir_read_(s.record);
    while (weir_field_(&r)) {
        if (r.field == 1) s.config = weir_parse_(r.data);
        else if (r.field == 3) s.name = r.data;
        else if (r.field == 4) s.version = r.number;
    }
    const char *wrong = init(&s);
    if (wrong) {
        weir_output_.n = 0;
        weir_put_(&weir_output_, 2, weir_cstr_(wrong));
    }
    return weir_give_(&weir_output_);
}

/* ---- Input: which of it there is depends on the hook ---------------------- */

static inline weir_view weir_tool(weir_call *c) { return c->field[WEIR_TOOL]; }       /* the name that the client uses */
static inline weir_view weir_backend(weir_call *c) { return c->field[WEIR_BACKEND]; }
static inline weir_view weir_session(weir_call *c) { return c->field[WEIR_SESSION]; } /* an opaque key, empty without one */
static inline weir_view weir_method(weir_call *c) { return c->field[WEIR_METHOD]; }
static inline weir_view weir_path(weir_call *c) { return c->field[WEIR_PATH]; }
static inline weir_view weir_issuer(weir_call *c) { return c->field[WEIR_ISSUER]; }
static inline weir_view weir_carried(weir_call *c) { return c->field[WEIR_CARRY]; }   /* what weir_carry left in the request */
static inline weir_u64 weir_now(weir_call *c) { return c->now; }                      /* milliseconds since 1970 UTC */
static inline weir_u32 weir_status(weir_call *c) { return (weir_u32)c->status; }
static inline weir_json weir_request_id(weir_call *c) { return weir_parse_(c->field[WEIR_REQUEST_ID]); }
static inline weir_json weir_arguments(weir_call *c) { return weir_parse_(c->field[WEIR_ARGUMENTS]); }
static inline weir_json weir_result(weir_call *c) { return weir_parse_(c->field[WEIR_RESULT]); }
static inline weir_json weir_error(weir_call *c) { return weir_parse_(c->field[WEIR_ERROR_OBJECT]); }
static inline weir_json weir_claims(weir_call *c) { return weir_parse_(c->field[WEIR_CLAIMS]); }
static inline weir_json weir_event(weir_call *c) { return weir_parse_(c->field[WEIR_EVENT]); }

/* The value at pointer i of the subscription. */
WEIR_FN_ weir_json weir_selected(weir_call *c, weir_u32 i) {
    weir_reader_ r = weir_read_(c->record);
    while (weir_field_(&r))
        if (r.field == WEIR_SELECTED && !i--) return weir_parse_(r.data);
    return (weir_json){0, 0};
}

WEIR_FN_ weir_view weir_first_(weir_view record, weir_u32 field) {
    weir_reader_ r = weir_read_(record);
    while (weir_field_(&r))
        if (r.field == field) return r.data;
    return weir_span_("", 0);
}

/* The first value of a header of the subscription, whose name is in small letters. */
WEIR_FN_ weir_view weir_header_(weir_call *c, weir_view name) {
    weir_reader_ r = weir_read_(c->record);
    while (weir_field_(&r))
        if (r.field == WEIR_HEADER && weir_equal_(weir_first_(r.data, 1), name)) return weir_first_(r.data, 2);
    return weir_span_("", 0);
}
#define weir_header(c, name) weir_header_(c, weir_str(name))

/* What a filter said of the client under a name, which no token can say. */
WEIR_FN_ weir_json weir_attr_(weir_call *c, weir_view name) {
    weir_reader_ r = weir_read_(c->record);
    while (weir_field_(&r))
        if (r.field == WEIR_ATTR && weir_equal_(weir_first_(r.data, 1), name)) return weir_parse_(weir_first_(r.data, 2));
    return (weir_json){0, 0};
}
#define weir_attr(c, name) weir_attr_(c, weir_str(name))

/* The claim of the client at pointer i of the subscription's claims. */
WEIR_FN_ weir_json weir_claim(weir_call *c, weir_u32 i) {
    weir_reader_ r = weir_read_(c->record);
    while (weir_field_(&r))
        if (r.field == WEIR_CLAIM && !i--) return weir_parse_(r.data);
    return (weir_json){0, 0};
}

WEIR_FN_ int weir_listed_(weir_call *c, weir_u32 field, weir_view name) {
    weir_reader_ r = weir_read_(c->field[WEIR_PRINCIPAL]);
    while (weir_field_(&r))
        if (r.field == field && weir_equal_(r.data, name)) return 1;
    return 0;
}
static inline weir_view weir_subject(weir_call *c) { return weir_first_(c->field[WEIR_PRINCIPAL], 1); }
static inline weir_view weir_tenant(weir_call *c) { return weir_first_(c->field[WEIR_PRINCIPAL], 2); }
#define weir_in_group(c, name) weir_listed_(c, 3, weir_str(name))
#define weir_has_role(c, name) weir_listed_(c, 4, weir_str(name))
#define weir_has_scope(c, name) weir_listed_(c, 5, weir_str(name))

/* Goes to the next group, role or scope. Begin with v zeroed. */
WEIR_FN_ int weir_next_listed_(weir_call *c, weir_u32 field, weir_view *v) {
    weir_reader_ r = weir_read_(c->field[WEIR_PRINCIPAL]);
    if (v->p) r.p = (const weir_byte *)v->p + v->n;
    while (weir_field_(&r))
        if (r.field == field) { *v = r.data; return 1; }
    return 0;
}
static inline int weir_next_group(weir_call *c, weir_view *v) { return weir_next_listed_(c, 3, v); }
static inline int weir_next_role(weir_call *c, weir_view *v) { return weir_next_listed_(c, 4, v); }
static inline int weir_next_scope(weir_call *c, weir_view *v) { return weir_next_listed_(c, 5, v); }

/* weir_item is a tool, prompt or resource of a backend. */
typedef struct { weir_view name, backend; weir_json json; weir_u32 index; const weir_byte *after_; } weir_item;

/* Goes to the next item. Begin with it zeroed. */
WEIR_FN_ int weir_next_item(weir_call *c, weir_item *it) {
    weir_reader_ r = weir_read_(c->record);
    weir_u32 index = it->after_ ? it->index + 1 : 0;
    if (it->after_) r.p = it->after_;
    while (weir_field_(&r))
        if (r.field == WEIR_ITEM) {
            *it = (weir_item){weir_first_(r.data, 1), weir_first_(r.data, 2), weir_parse_(weir_first_(r.data, 3)), index, r.p};
            return 1;
        }
    return 0;
}

/* ---- Operations: which of them a hook may use, ABI.md says ---------------- */

typedef struct { weir_view pointer, raw, name, text; weir_u64 code, index, item; } weir_arg_;

static inline weir_byte *weir_to_number_(weir_byte *p, weir_u64 v) {
    for (; v >= 0x80; v >>= 7) *p++ = (weir_byte)v | 0x80;
    *p++ = (weir_byte)v;
    return p;
}
static inline weir_byte *weir_to_four_(weir_byte *p, weir_u32 v) { /* a number in four bytes */
    for (int i = 0; i < 4; i++, v >>= 7) p[i] = (weir_byte)(i < 3 ? (v & 0x7f) | 0x80 : v);
    return p + 4;
}
static inline weir_byte *weir_to_text_(weir_byte *p, weir_u32 field, weir_view v) {
    if (!v.n) return p;
    *p++ = (weir_byte)(field << 3 | 2);
    p = weir_to_number_(p, v.n);
    const char *from = v.p, *end = v.p + v.n;
    if (v.n > 64) { /* for a few bytes, memory.copy costs more than to copy them */
        __builtin_memcpy(p, from, v.n);
        return p + v.n;
    }
    for (; end - from >= 8; from += 8, p += 8) __builtin_memcpy(p, from, 8);
    while (from < end) *p++ = (weir_byte)*from++;
    return p;
}
static inline weir_byte *weir_to_field_(weir_byte *p, weir_u32 field, weir_u64 v) {
    if (!v) return p;
    *p++ = (weir_byte)(field << 3);
    return weir_to_number_(p, v);
}

/* Writes an operation. The lengths of the two records around it come before what
 * they measure: four bytes are left for each, and filled in at last. */
WEIR_FN_ void weir_op_(weir_u32 op, weir_arg_ a) {
    weir_area_ *o = &weir_output_;
    const weir_u32 most = 1 + 4 + 2 + 4 + 4 * 6 + 3 * 11; /* bytes besides the texts */
    weir_u32 before = o->n;
    weir_byte *start = weir_more_(o, most + a.pointer.n + a.raw.n + a.name.n + a.text.n), *p = start;
    *p = 1 << 3 | 2;
    p = weir_to_number_(p + 5, op << 3 | 2);
    weir_byte *content = p + 4;
    p = weir_to_text_(content, 1, a.pointer);
    p = weir_to_text_(p, 2, a.raw);
    p = weir_to_text_(p, 3, a.name);
    p = weir_to_text_(p, 4, a.text);
    p = weir_to_field_(p, 5, a.code);
    p = weir_to_field_(p, 6, a.index);
    p = weir_to_field_(p, 7, a.item);
    weir_to_four_(content - 4, (weir_u32)(p - content));
    weir_to_four_(start + 1, (weir_u32)(p - start) - 5);
    o->n = before + (weir_u32)(p - start);
}

/* json is JSON text: a literal, weir_quote(…), weir_decimal(…), or a weir_json. */
#define weir_set(c, at, json) ((void)(c), weir_op_(1, (weir_arg_){.pointer = weir_str(at), .raw = weir_str(json)}))
#define weir_del(c, at) ((void)(c), weir_op_(2, (weir_arg_){.pointer = weir_str(at)}))
#define weir_set_arguments(c, json) ((void)(c), weir_op_(3, (weir_arg_){.raw = weir_str(json)}))
#define weir_set_tool(c, to) ((void)(c), weir_op_(4, (weir_arg_){.name = weir_str(to)}))
#define weir_set_backend(c, to) ((void)(c), weir_op_(5, (weir_arg_){.name = weir_str(to)}))
#define weir_set_header(c, header, value) ((void)(c), weir_op_(6, (weir_arg_){.name = weir_str(header), .text = weir_str(value)}))
#define weir_del_header(c, header) ((void)(c), weir_op_(7, (weir_arg_){.name = weir_str(header)}))
#define weir_respond(c, json) ((void)(c), weir_op_(8, (weir_arg_){.raw = weir_str(json)}))
#define weir_deny(c, why, what) ((void)(c), weir_op_(9, (weir_arg_){.code = (why), .text = weir_str(what)}))
#define weir_deny_with(c, why, what, json) ((void)(c), weir_op_(9, (weir_arg_){.code = (why), .text = weir_str(what), .raw = weir_str(json)}))
#define weir_set_attr(c, attr, json) ((void)(c), weir_op_(10, (weir_arg_){.name = weir_str(attr), .raw = weir_str(json)}))
#define weir_carry(c, bytes) ((void)(c), weir_op_(11, (weir_arg_){.raw = weir_str(bytes)}))
#define weir_log_field(c, key, value) ((void)(c), weir_op_(12, (weir_arg_){.name = weir_str(key), .text = weir_str(value)}))
#define weir_patch(c, at, json) ((void)(c), weir_op_(13, (weir_arg_){.pointer = weir_str(at), .raw = weir_str(json)}))
#define weir_drop_content(c, i) ((void)(c), weir_op_(14, (weir_arg_){.index = (i)}))
#define weir_redact(c, at, with) ((void)(c), weir_op_(15, (weir_arg_){.pointer = weir_str(at), .text = weir_str(with)}))
#define weir_rename(it, to) weir_op_(16, (weir_arg_){.item = (it)->index, .name = weir_str(to)})
#define weir_describe(it, as) weir_op_(17, (weir_arg_){.item = (it)->index, .text = weir_str(as)})
#define weir_hide(it) weir_op_(18, (weir_arg_){.item = (it)->index})
#define weir_annotate(it, key, json) weir_op_(19, (weir_arg_){.item = (it)->index, .name = weir_str(key), .raw = weir_str(json)})
#define weir_set_schema(it, json) weir_op_(20, (weir_arg_){.item = (it)->index, .raw = weir_str(json)})
#define weir_patch_item(it, at, json) weir_op_(26, (weir_arg_){.item = (it)->index, .pointer = weir_str(at), .raw = weir_str(json)})
#define weir_pin_arg(it, at, json) weir_op_(21, (weir_arg_){.item = (it)->index, .pointer = weir_str(at), .raw = weir_str(json)})
#define weir_hide_arg(it, at) weir_op_(22, (weir_arg_){.item = (it)->index, .pointer = weir_str(at)})
#define weir_use_credential(c, which) ((void)(c), weir_op_(23, (weir_arg_){.name = weir_str(which)}))
#define weir_challenge(c, value) ((void)(c), weir_op_(25, (weir_arg_){.text = weir_str(value)}))

/* weir_identity is who a client is said to be: begin, add, and say so. */
typedef struct { weir_area_ a; } weir_identity;

WEIR_FN_ weir_identity weir_identity_(weir_view subject) {
    static weir_byte room[1024];
    weir_identity who = {{room, 0, sizeof room}};
    weir_put_(&who.a, 1, subject);
    return who;
}
static inline void weir_add_(weir_identity *who, weir_u32 field, weir_view v) {
    if (v.n) weir_put_(&who->a, field, v);
}
#define weir_identity_of(subject) weir_identity_(weir_str(subject))
#define weir_add_tenant(who, v) weir_add_(who, 2, weir_str(v))
#define weir_add_group(who, v) weir_add_(who, 3, weir_str(v))
#define weir_add_role(who, v) weir_add_(who, 4, weir_str(v))
#define weir_add_scope(who, v) weir_add_(who, 5, weir_str(v))
#define weir_add_issuer(who, v) weir_add_(who, 6, weir_str(v))
#define weir_set_principal(c, who) ((void)(c), weir_op_(24, (weir_arg_){.raw = weir_span_((who)->a.p, (who)->a.n)}))

/* ---- The host ------------------------------------------------------------ */

#define WEIR_IMPORT_(name) __attribute__((import_module("weir_v1"), import_name(name))) extern
WEIR_IMPORT_("log") void weir_import_log(weir_u32 level, const void *p, weir_u32 n);
WEIR_IMPORT_("log_level") weir_u32 weir_import_log_level(void);
WEIR_IMPORT_("now_ms") weir_i64 weir_import_now_ms(void);
WEIR_IMPORT_("mono_ns") weir_i64 weir_import_mono_ns(void);
WEIR_IMPORT_("random") int weir_import_random(void *p, weir_u32 n);
WEIR_IMPORT_("sha256") int weir_import_sha256(const void *p, weir_u32 n, void *out);
WEIR_IMPORT_("hmac") weir_i64 weir_import_hmac(const void *key, weir_u32 key_n, const void *p, weir_u32 n, void *out);
WEIR_IMPORT_("kv_get") weir_i64 weir_import_kv_get(const void *key, weir_u32 key_n, void *out, weir_u32 cap);
WEIR_IMPORT_("kv_set") weir_i64 weir_import_kv_set(const void *key, weir_u32 key_n, const void *p, weir_u32 n, weir_i64 ttl);
WEIR_IMPORT_("kv_incr") weir_i64 weir_import_kv_incr(const void *key, weir_u32 key_n, weir_i64 delta, weir_i64 ttl);
WEIR_IMPORT_("metric") int weir_import_metric(const void *name, weir_u32 n, weir_u32 kind, weir_i64 delta);
WEIR_IMPORT_("http_call") weir_i64 weir_import_http_call(const void *p, weir_u32 n, void *out, weir_u32 cap);
WEIR_IMPORT_("call_tool") weir_i64 weir_import_call_tool(const void *p, weir_u32 n, void *out, weir_u32 cap);
WEIR_IMPORT_("answer") weir_i64 weir_import_answer(void *out, weir_u32 cap);
WEIR_IMPORT_("emit") int weir_import_emit(const void *name, weir_u32 name_n, const void *p, weir_u32 n);

static inline void weir_log_(weir_u32 level, weir_view v) { weir_import_log(level, v.p, v.n); }
#define weir_log(level, text) weir_log_(level, weir_str(text)) /* a line of the log */
_Noreturn static inline void weir_panic_(weir_view why, const char *file, int line) {
    weir_log_(WEIR_ERROR, weir_cat(why, weir_str(", "), weir_str(file), weir_str(":"), weir_decimal(line)));
    __builtin_trap();
}
/* weir_panic ends the guest, after a line of the log that says why and where. */
#define weir_panic(text) weir_panic_(weir_str(text), __FILE__, __LINE__)
static inline weir_u32 weir_log_level(void) { return weir_import_log_level(); }
static inline weir_i64 weir_now_ms(void) { return weir_import_now_ms(); }
static inline weir_i64 weir_mono_ns(void) { return weir_import_mono_ns(); }
static inline int weir_random(void *p, weir_u32 n) { return weir_import_random(p, n); } /* at most 4096; grant random */

static inline void weir_sha256_(weir_view v, weir_byte out[32]) { weir_import_sha256(v.p, v.n, out); }
#define weir_sha256(v, out) weir_sha256_(weir_str(v), out)
static inline weir_i64 weir_hmac_(weir_view key, weir_view v, weir_byte out[32]) { return weir_import_hmac(key.p, key.n, v.p, v.n, out); }
#define weir_hmac(key, v, out) weir_hmac_(weir_str(key), weir_str(v), out) /* under the secret of that name; grant keys */

/* The value of a key; below zero where there is none. Grant kv. */
WEIR_FN_ weir_i64 weir_kv_get_(weir_view key, weir_view *value) {
    for (weir_u32 cap = 256;;) {
        char *p = weir_room_(cap);
        weir_i64 n = weir_import_kv_get(key.p, key.n, p, cap);
        if (n < 0) return n;
        if (n <= cap) { *value = weir_span_(p, (weir_u32)n); return n; }
        cap = (weir_u32)n;
    }
}
#define weir_kv_get(key, value) weir_kv_get_(weir_str(key), value)
static inline weir_i64 weir_kv_set_(weir_view key, weir_view v, weir_i64 millis) { return weir_import_kv_set(key.p, key.n, v.p, v.n, millis); }
#define weir_kv_set(key, v, millis) weir_kv_set_(weir_str(key), weir_str(v), millis) /* at most 64 KiB and 24 hours */
static inline weir_i64 weir_kv_add_(weir_view key, weir_i64 n, weir_i64 millis) { return weir_import_kv_incr(key.p, key.n, n, millis); }
#define weir_kv_add(key, n, millis) weir_kv_add_(weir_str(key), n, millis) /* adds in one step; the sum */
static inline int weir_metric_(weir_view name, weir_u32 kind, weir_i64 v) { return weir_import_metric(name.p, name.n, kind, v); }
#define weir_count(name, delta) weir_metric_(weir_str(name), 0, delta) /* grant metrics */
#define weir_gauge(name, value) weir_metric_(weir_str(name), 1, value)

/* weir_request is an HTTP request to another party; weir_reply is the answer to
 * one, and what a tool answered: a result or the object of an error. */
typedef struct { weir_view name, value; } weir_line;
typedef struct {
    weir_view method, url, body; /* GET when there is no method */
    const weir_line *headers;    /* as many as lines says */
    weir_u32 lines, millis;      /* that it may take; 0 for the host's limit */
} weir_request;
typedef struct { weir_view record, body; weir_u32 status; weir_json result, error; } weir_reply;

/* Asks others, and fetches an answer that there was no room for. */
WEIR_FN_ weir_i64 weir_asked_(weir_i64 (*ask)(const void *, weir_u32, void *, weir_u32), weir_view question, weir_reply *a) {
    weir_u32 cap = 1024;
    char *p = weir_room_(cap);
    weir_i64 n = ask(question.p, question.n, p, cap);
    if (n > cap) {
        cap = (weir_u32)n;
        p = weir_room_(cap);
        n = weir_import_answer(p, cap);
    }
    a->record = weir_span_(p, n < 0 ? 0 : (weir_u32)n);
    return n < 0 ? n : 0;
}

/* Sends a request to a host that is granted, and waits for the answer; below zero
 * there is none. Redirects are not followed. Grant http, at a hook that is blocking. */
WEIR_FN_ weir_i64 weir_fetch(weir_request q, weir_reply *a) {
    weir_u32 room = 64 + q.method.n + q.url.n + q.body.n;
    for (weir_u32 i = 0; i < q.lines; i++) room += 32 + 2 * (q.headers[i].name.n + q.headers[i].value.n);
    weir_area_ to = {(weir_byte *)weir_room_(room), 0, room};
    if (q.method.n) weir_put_(&to, 1, q.method);
    weir_put_(&to, 2, q.url);
    for (weir_u32 i = 0; i < q.lines; i++) {
        weir_u32 n = 16 + q.headers[i].name.n + q.headers[i].value.n;
        weir_area_ line = {(weir_byte *)weir_room_(n), 0, n};
        weir_put_(&line, 1, q.headers[i].name);
        weir_put_(&line, 2, q.headers[i].value);
        weir_put_(&to, 3, weir_span_(line.p, line.n));
    }
    weir_put_(&to, 4, q.body);
    if (q.millis) weir_put_number_(&to, 5, q.millis);
    *a = (weir_reply){weir_span_("", 0), weir_span_("", 0), 0, {0, 0}, {0, 0}};
    weir_i64 n = weir_asked_(weir_import_http_call, weir_span_(to.p, to.n), a);
    weir_reader_ r = weir_read_(a->record);
    while (weir_field_(&r)) {
        if (r.field == 1) a->status = (weir_u32)r.number;
        else if (r.field == 3) a->body = r.data;
    }
    return n;
}

/* The first value of a header of an answer, whose name is in small letters. */
WEIR_FN_ weir_view weir_reply_header_(const weir_reply *a, weir_view name) {
    weir_reader_ r = weir_read_(a->record);
    while (weir_field_(&r))
        if (r.field == 2 && weir_equal_(weir_first_(r.data, 1), name)) return weir_first_(r.data, 2);
    return weir_span_("", 0);
}
#define weir_reply_header(a, name) weir_reply_header_(a, weir_str(name))

/* Calls a tool, by the name that clients see, for the client whose message the
 * guest is asked about; below zero there is no answer. Grant tools, at a hook that is blocking. */
WEIR_FN_ weir_i64 weir_call_tool_(weir_view name, weir_view arguments, weir_reply *a) {
    weir_u32 room = 32 + name.n + arguments.n;
    weir_area_ to = {(weir_byte *)weir_room_(room), 0, room};
    weir_put_(&to, 1, name);
    if (arguments.n) weir_put_(&to, 2, arguments);
    *a = (weir_reply){weir_span_("", 0), weir_span_("", 0), 0, {0, 0}, {0, 0}};
    weir_i64 n = weir_asked_(weir_import_call_tool, weir_span_(to.p, to.n), a);
    a->result = weir_parse_(weir_first_(a->record, 1));
    a->error = weir_parse_(weir_first_(a->record, 2));
    return n;
}
#define weir_call_tool(name, arguments, a) weir_call_tool_(weir_str(name), weir_str(arguments), a)

static inline int weir_emit_(weir_view name, weir_view data) { return weir_import_emit(name.p, name.n, data.p, data.n); }
#define weir_emit(name, data) weir_emit_(weir_str(name), weir_str(data)) /* tells of an event, JSON text of at most 4 KiB; grant events */

#endif
