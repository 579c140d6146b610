//! A guest that takes e-mail addresses, card numbers and IBANs out of what servers
//! say: out of texts and every string of structured content, in results and in what
//! precedes them, progress, log messages and questions.

mod find;

use std::rc::Rc;

use weir::{count, quote, CallResult, Guest, Message, Notification, Pattern, Question, Setup, Value, Wants};

weir::guest!(start);

/// What of a text is replaced: by which word, where the host looks for it, and how
/// it is found there. The pattern finds no less than the function.
struct Rule {
    name: &'static str,
    pattern: &'static str,
    find: fn(&str, usize) -> Option<usize>,
}

const RULES: [Rule; 3] = [
    Rule { name: "email", pattern: r"[0-9A-Za-z\x{80}-\x{10ffff}._%+-]+@[0-9A-Za-z\x{80}-\x{10ffff}.-]+", find: find::email },
    Rule { name: "card", pattern: r"\d(?:[ -]?\d){12,}", find: find::card },
    Rule { name: "iban", pattern: "[A-Z]{2}(?: ?[A-Z0-9]){13,}", find: find::iban },
];

/// How deep a result is searched. What is deeper is taken out as a whole.
const DEPTH: usize = 32;

fn start(g: &mut Guest, s: &Setup) -> Result<(), String> {
    let list = s.config.get("kinds");
    let mut names: Vec<&'static Rule> = vec![];
    for kind in list.array() {
        match RULES.iter().find(|r| kind.is(r.name)) {
            Some(r) => names.push(r),
            None => return Err(["kinds: there is no ", kind.json(), ": email, card or iban"].concat()),
        }
    }
    if !list.exists() {
        names.extend(RULES.iter());
    }
    let mut rules = vec![];
    for rule in names {
        let pattern = Pattern::new(rule.pattern).map_err(|e| [rule.name, ": ", &e.to_string()].concat())?;
        rules.push((rule, pattern));
    }
    let clean = Rc::new(Cleaner { rules, counted: s.granted("metrics") });
    let all = clean.clone();
    g.on_result(Wants::new(), move |r| all.walk(r, r.result()));
    let all = clean.clone();
    g.on_message(Wants::new().methods(&["resources/read", "prompts/get"]), move |m| all.walk(m, m.result()));
    let all = clean.clone();
    g.on_notification(Wants::new(), move |n| {
        if n.from_server() {
            all.walk(n, n.params());
        }
    });
    g.on_question(Wants::new(), move |q| {
        if q.from_server() {
            clean.walk(q, q.params());
        }
    });
    Ok(())
}

/// What is told to a client and can be changed: a result, or what precedes one.
trait Told {
    /// Puts JSON text into the place of the value behind a JSON pointer.
    fn put(&self, pointer: &str, json: &str);
    /// Puts a text there.
    fn hide(&self, pointer: &str, text: &str);
    /// Says whether the client knows the value behind a pointer already, and
    /// needs it as it is to know what the message is about.
    fn known(&self, _pointer: &str) -> bool {
        false
    }
}

impl Told for CallResult<'_> {
    fn put(&self, pointer: &str, json: &str) { self.patch(pointer, json) }
    fn hide(&self, pointer: &str, text: &str) { self.redact(pointer, text) }
}

impl Told for Message<'_> {
    fn put(&self, pointer: &str, json: &str) { self.patch(pointer, json) }
    fn hide(&self, pointer: &str, text: &str) { self.redact(pointer, text) }
}

impl Told for Notification<'_> {
    fn put(&self, pointer: &str, json: &str) { self.set(pointer, json) }
    fn hide(&self, pointer: &str, text: &str) { self.redact(pointer, text) }
    fn known(&self, pointer: &str) -> bool {
        pointer == "/progressToken" || pointer == "/uri" || pointer.starts_with("/_meta/io.modelcontextprotocol~1")
    }
}

impl Told for Question<'_> {
    fn put(&self, pointer: &str, json: &str) { self.set(pointer, json) }
    fn hide(&self, pointer: &str, text: &str) { self.redact(pointer, text) }
}

struct Cleaner {
    rules: Vec<(&'static Rule, Pattern)>,
    counted: bool,
}

impl Cleaner {
    fn walk<'a>(&self, told: &dyn Told, v: Value<'a>) {
        let mut w = Walk { told, rules: &self.rules, pointer: String::new(), found: 0 };
        w.value(v, 0);
        if self.counted && w.found > 0 {
            let _ = count("redacted", w.found); // a name that is right
        }
    }
}

/// Walk goes through what is told and keeps the JSON pointer to where it is.
struct Walk<'w> {
    told: &'w dyn Told,
    rules: &'w [(&'static Rule, Pattern)],
    pointer: String,
    found: i64,
}

impl Walk<'_> {
    fn value(&mut self, v: Value, depth: usize) {
        if v.is_text() {
            if let Some(clean) = self.clean(&v.text()) {
                self.told.put(&self.pointer, &quote(&clean));
            }
            return;
        }
        if depth == DEPTH {
            if v.is_array() || v.is_object() {
                self.told.hide(&self.pointer, "[too deep to be looked through]");
            }
            return;
        }
        let here = self.pointer.len();
        for (i, e) in v.array().enumerate() {
            self.pointer.push('/');
            self.pointer.push_str(&i.to_string());
            self.value(e, depth + 1);
            self.pointer.truncate(here);
        }
        for (name, member) in v.object() {
            // Binary data is no text, and its letters may look like some.
            if depth > 0 && (name.is("data") || name.is("blob")) && v.get("mimeType").exists() {
                continue;
            }
            self.pointer.push('/');
            self.pointer.push_str(&name.text().replace('~', "~0").replace('/', "~1"));
            if !self.told.known(&self.pointer) {
                self.value(member, depth + 1);
            }
            self.pointer.truncate(here);
        }
    }

    /// The text without what must not be in it; None when there is nothing.
    fn clean(&mut self, text: &str) -> Option<String> {
        let mut clean = None;
        for (rule, pattern) in self.rules {
            let before = clean.as_deref().unwrap_or(text);
            if let Some(after) = replaced(before, rule, *pattern, &mut self.found) {
                clean = Some(after);
            }
        }
        clean
    }
}

/// The text with the name of a rule in the place of what it finds; None when there
/// is nothing.
fn replaced(text: &str, rule: &Rule, pattern: Pattern, found: &mut i64) -> Option<String> {
    let mut out = String::new();
    let mut kept = 0;
    for place in pattern.find(text) {
        let mut at = place.start.max(kept);
        while at < place.end {
            if let Some(end) = (rule.find)(text, at) {
                out.push_str(&text[kept..at]);
                out.push_str(&["[", rule.name, "]"].concat());
                *found += 1;
                at = end;
                kept = end;
            } else {
                at += text[at..].chars().next().map_or(1, char::len_utf8);
            }
        }
    }
    if kept == 0 {
        return None;
    }
    out.push_str(&text[kept..]);
    Some(out)
}
