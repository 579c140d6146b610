//! JSON of the input, read in place.

use std::borrow::Cow;

/// JSON text that is read in place: nothing is decoded before it is asked for.
/// One that does not exist answers every question with nothing.
#[derive(Clone, Copy, Default)]
pub struct Value<'a>(pub(crate) &'a [u8]);

impl<'a> Value<'a> {
    /// Reads JSON text that does not come from the input.
    pub fn parse(text: &'a str) -> Value<'a> {
        Value(text.as_bytes())
    }

    /// Says whether there is a value; null is one.
    pub fn exists(&self) -> bool {
        !space(self.0).is_empty()
    }

    /// The JSON text.
    pub fn json(&self) -> &'a str {
        utf8(self.0)
    }

    fn first(&self) -> u8 {
        space(self.0).first().copied().unwrap_or(0)
    }

    pub fn is_null(&self) -> bool {
        self.first() == b'n'
    }
    pub fn is_true(&self) -> bool {
        self.first() == b't'
    }
    pub fn is_text(&self) -> bool {
        self.first() == b'"'
    }
    pub fn is_array(&self) -> bool {
        self.first() == b'['
    }
    pub fn is_object(&self) -> bool {
        self.first() == b'{'
    }

    /// What stands between the quotes of a string.
    fn body(&self) -> Option<&'a [u8]> {
        let b = space(self.0);
        if b.first() != Some(&b'"') {
            return None;
        }
        let n = b.len() - skip(b).len();
        if n < 2 || b[n - 1] != b'"' {
            return None;
        }
        Some(&b[1..n - 1])
    }

    /// The text of a string; "" for anything else.
    pub fn text(&self) -> Cow<'a, str> {
        match self.body() {
            None => Cow::Borrowed(""),
            Some(body) if !body.contains(&b'\\') => Cow::Borrowed(utf8(body)),
            Some(body) => Cow::Owned(unescape(body)),
        }
    }

    /// Says whether it is the string s.
    pub fn is(&self, s: &str) -> bool {
        match self.body() {
            None => false,
            Some(body) if !body.contains(&b'\\') => body == s.as_bytes(),
            Some(_) => self.text() == s,
        }
    }

    fn digits(&self) -> Option<&'a str> {
        let b = space(self.0);
        match b.first() {
            Some(b'-') | Some(b'0'..=b'9') => Some(utf8(&b[..b.len() - skip(b).len()])),
            _ => None,
        }
    }

    /// The value of a number without fraction and exponent.
    pub fn int(&self) -> Option<i64> {
        self.digits()?.parse().ok()
    }

    /// The value of a number.
    pub fn number(&self) -> Option<f64> {
        self.digits()?.parse().ok()
    }

    /// Goes over the elements of an array.
    pub fn array(&self) -> Elements<'a> {
        let b = space(self.0);
        Elements(match b.first() {
            Some(b'[') => space(&b[1..]),
            _ => &[],
        })
    }

    /// Goes over the members of an object: their names, as strings, and values.
    pub fn object(&self) -> Members<'a> {
        let b = space(self.0);
        Members(match b.first() {
            Some(b'{') => space(&b[1..]),
            _ => &[],
        })
    }

    /// The member of an object with a name, or a value that does not exist.
    pub fn get(&self, name: &str) -> Value<'a> {
        self.object().find(|(n, _)| n.is(name)).map(|(_, v)| v).unwrap_or_default()
    }

    /// The value behind a JSON pointer (RFC 6901), or one that does not exist.
    pub fn at(&self, pointer: &str) -> Value<'a> {
        if pointer.is_empty() {
            return *self;
        }
        if !pointer.starts_with('/') {
            return Value::default();
        }
        let mut v = *self;
        for token in pointer[1..].split('/') {
            v = if v.is_array() {
                v.element(token)
            } else if token.contains('~') {
                v.get(&token.replace("~1", "/").replace("~0", "~"))
            } else {
                v.get(token)
            };
        }
        v
    }

    fn element(&self, token: &str) -> Value<'a> {
        if token.starts_with('+') || token.len() > 1 && token.starts_with('0') {
            return Value::default();
        }
        match token.parse::<usize>() {
            Ok(index) => self.array().nth(index).unwrap_or_default(),
            Err(_) => Value::default(),
        }
    }
}

/// The elements of an array.
pub struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;
    fn next(&mut self) -> Option<Value<'a>> {
        let b = self.0;
        if b.is_empty() || b[0] == b']' {
            return None;
        }
        let rest = skip(b);
        if rest.len() == b.len() {
            return None;
        }
        self.0 = comma(rest);
        Some(Value(&b[..b.len() - rest.len()]))
    }
}

/// The members of an object.
pub struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = (Value<'a>, Value<'a>);
    fn next(&mut self) -> Option<Self::Item> {
        let b = self.0;
        if b.first() != Some(&b'"') {
            return None;
        }
        let rest = skip(b);
        let name = Value(&b[..b.len() - rest.len()]);
        let rest = space(rest);
        if rest.first() != Some(&b':') {
            return None;
        }
        let b = space(&rest[1..]);
        let rest = skip(b);
        if rest.len() == b.len() {
            return None;
        }
        self.0 = comma(rest);
        Some((name, Value(&b[..b.len() - rest.len()])))
    }
}

pub(crate) fn utf8(b: &[u8]) -> &str {
    std::str::from_utf8(b).unwrap_or("")
}

fn comma(b: &[u8]) -> &[u8] {
    let b = space(b);
    match b.first() {
        Some(b',') => space(&b[1..]),
        _ => b,
    }
}

fn space(mut b: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = b {
        b = rest;
    }
    b
}

/// What follows the value that b begins with.
fn skip(b: &[u8]) -> &[u8] {
    let (mut i, mut depth) = (0, 0usize);
    while i < b.len() {
        match b[i] {
            b'"' => {
                i += 1;
                while i < b.len() && b[i] != b'"' {
                    i += if b[i] == b'\\' { 2 } else { 1 };
                }
                i = (i + 1).min(b.len());
            }
            b'{' | b'[' => {
                depth += 1;
                i += 1;
            }
            b'}' | b']' => {
                if depth == 0 {
                    return &b[i..];
                }
                depth -= 1;
                i += 1;
            }
            _ => {
                let from = i;
                while i < b.len() && !ends(b[i]) {
                    i += 1;
                }
                if i == from {
                    if depth == 0 {
                        return &b[i..];
                    }
                    i += 1;
                    continue;
                }
            }
        }
        if depth == 0 {
            return &b[i..];
        }
    }
    &[]
}

/// Says whether a number, true, false or null ends before c.
fn ends(c: u8) -> bool {
    matches!(c, b' ' | b'\n' | b'\t' | b'\r' | b',' | b':' | b'"' | b'{' | b'}' | b'[' | b']')
}

fn unescape(body: &[u8]) -> String {
    let mut out = Vec::with_capacity(body.len());
    let mut i = 0;
    while i < body.len() {
        let c = body[i];
        i += 1;
        if c != b'\\' || i == body.len() {
            out.push(c);
            continue;
        }
        let c = body[i];
        i += 1;
        out.push(match c {
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut r = hex4(&body[i..]);
                i = (i + 4).min(body.len());
                if (0xd800..0xdc00).contains(&r) && body[i..].starts_with(b"\\u") {
                    let low = hex4(&body[i + 2..]);
                    if (0xdc00..0xe000).contains(&low) {
                        r = 0x10000 + ((r - 0xd800) << 10) + low - 0xdc00;
                        i += 6;
                    }
                }
                let c = char::from_u32(r).unwrap_or('\u{fffd}');
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                continue;
            }
            c => c,
        });
    }
    String::from_utf8(out).unwrap_or_default()
}

fn hex4(b: &[u8]) -> u32 {
    b.get(..4).and_then(|h| u32::from_str_radix(utf8(h), 16).ok()).unwrap_or(0xfffd)
}

/// The JSON text of a string.
pub fn quote(s: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c < ' ' => {
                out.push_str("\\u00");
                out.push(HEX[c as usize >> 4] as char);
                out.push(HEX[c as usize & 15] as char);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The result of a tool that says text.
pub fn text_result(s: &str) -> String {
    ["{\"content\":[{\"type\":\"text\",\"text\":", &quote(s), "}]}"].concat()
}

/// The result of a tool that failed, and says why.
pub fn error_result(s: &str) -> String {
    ["{\"content\":[{\"type\":\"text\",\"text\":", &quote(s), "}],\"isError\":true}"].concat()
}
