//! A guest that takes e-mail addresses, card numbers and IBANs out of results:
//! out of texts, and out of every string of structured content.

mod find;

use weir::{count, quote, CallResult, Guest, Setup, Value, Wants};

weir::guest!(start);

/// What of a text is replaced: by which words, and how it is found.
struct Rule {
    name: &'static str,
    find: fn(&str, usize) -> Option<usize>,
}

const RULES: [Rule; 3] = [
    Rule { name: "email", find: find::email },
    Rule { name: "card", find: find::card },
    Rule { name: "iban", find: find::iban },
];

/// How deep a result is searched. What is deeper is taken out as a whole.
const DEPTH: usize = 32;

fn start(g: &mut Guest, s: &Setup) -> Result<(), String> {
    let list = s.config.get("kinds");
    let mut rules: Vec<&'static Rule> = vec![];
    for kind in list.array() {
        match RULES.iter().find(|r| kind.is(r.name)) {
            Some(r) => rules.push(r),
            None => return Err(["kinds: there is no ", kind.json(), ": email, card or iban"].concat()),
        }
    }
    if !list.exists() {
        rules.extend(RULES.iter());
    }
    let counted = s.granted("metrics");
    g.on_result(Wants::new(), move |r| {
        let mut w = Walk { r, rules: &rules, pointer: String::new(), found: 0 };
        w.value(r.result(), 0);
        if counted && w.found > 0 {
            let _ = count("redacted", w.found); // a name that is right
        }
    });
    Ok(())
}

/// Walk goes through a result and keeps the JSON pointer to where it is.
struct Walk<'w, 'a> {
    r: &'w CallResult<'a>,
    rules: &'w [&'static Rule],
    pointer: String,
    found: i64,
}

impl<'w, 'a> Walk<'w, 'a> {
    fn value(&mut self, v: Value<'a>, depth: usize) {
        if v.is_text() {
            if let Some(clean) = self.clean(&v.text()) {
                self.r.patch(&self.pointer, &quote(&clean));
            }
            return;
        }
        if depth == DEPTH {
            if v.is_array() || v.is_object() {
                self.r.redact(&self.pointer, "[too deep to be looked through]");
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
            self.value(member, depth + 1);
            self.pointer.truncate(here);
        }
    }

    /// The text without what must not be in it; None when there is nothing.
    fn clean(&mut self, text: &str) -> Option<String> {
        let mut out = String::new();
        let (mut at, mut kept) = (0, 0);
        while at < text.len() {
            let hit = self.rules.iter().find_map(|r| (r.find)(text, at).map(|end| (r.name, end)));
            match hit {
                Some((name, end)) => {
                    out.push_str(&text[kept..at]);
                    out.push_str(&["[", name, "]"].concat());
                    self.found += 1;
                    at = end;
                    kept = end;
                }
                None => at += text[at..].chars().next().map_or(1, char::len_utf8),
            }
        }
        if kept == 0 {
            return None;
        }
        out.push_str(&text[kept..]);
        Some(out)
    }
}
