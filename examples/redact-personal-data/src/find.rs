//! What is looked for. Each function says where something ends that begins at
//! a place of a text, if it begins there: after what is no part of a word.

fn word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c >= 0x80
}

fn starts(b: &[u8], at: usize) -> bool {
    at == 0 || !word(b[at - 1])
}

/// An e-mail address: a local part, @, and a host name with a dot.
pub fn email(text: &str, at: usize) -> Option<usize> {
    let b = text.as_bytes();
    let local = |c: u8| word(c) || b"._%+-".contains(&c);
    if at > 0 && local(b[at - 1]) || !word(b[at]) {
        return None;
    }
    let mut i = at;
    while i < b.len() && local(b[i]) {
        i += 1;
        if i - at > 64 {
            return None;
        }
    }
    if b.get(i) != Some(&b'@') {
        return None;
    }
    let host = i + 1;
    let (mut end, mut dot) = (host, false);
    i = host;
    while i < b.len() && (word(b[i]) || b[i] == b'-' || b[i] == b'.') {
        i += 1;
        if word(b[i - 1]) {
            end = i;
            dot = dot || b[host..i].contains(&b'.');
        }
    }
    (dot && end > host).then_some(end)
}

/// A card number: 13 to 19 digits, with spaces or - between some of them, that
/// pass the check of Luhn.
pub fn card(text: &str, at: usize) -> Option<usize> {
    let b = text.as_bytes();
    if !b[at].is_ascii_digit() || !starts(b, at) {
        return None;
    }
    let (mut digits, mut i, mut end) = (Vec::with_capacity(19), at, at);
    while i < b.len() {
        if b[i].is_ascii_digit() {
            digits.push(b[i] - b'0');
            end = i + 1;
        } else if !(b[i] == b' ' || b[i] == b'-') || i + 1 == b.len() || !b[i + 1].is_ascii_digit() {
            break;
        }
        i += 1;
        if digits.len() > 19 {
            return None;
        }
    }
    if digits.len() < 13 || end < b.len() && word(b[end]) {
        return None;
    }
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, d)| match (i % 2, u32::from(*d) * 2) {
            (0, twice) => twice / 2,
            (_, twice) => twice / 10 + twice % 10,
        })
        .sum();
    (sum % 10 == 0).then_some(end)
}

/// An IBAN (ISO 13616): two letters, two digits, 11 to 30 letters and digits,
/// with single spaces between some of them, whose rest by 97 is 1.
pub fn iban(text: &str, at: usize) -> Option<usize> {
    let b = text.as_bytes();
    if !starts(b, at) || b.len() < at + 4 || !b[at].is_ascii_uppercase() || !b[at + 1].is_ascii_uppercase() {
        return None;
    }
    let (mut all, mut i, mut found) = (Vec::with_capacity(34), at, None);
    while i < b.len() && all.len() < 34 {
        let c = b[i];
        if c.is_ascii_uppercase() || c.is_ascii_digit() {
            all.push(c);
            i += 1;
            if all.len() >= 15 && (i == b.len() || !word(b[i])) && checks(&all) {
                found = Some(i);
            }
        } else if c == b' ' && b[i - 1] != b' ' && i > at {
            i += 1;
        } else {
            break;
        }
    }
    found
}

fn checks(iban: &[u8]) -> bool {
    if !iban[2].is_ascii_digit() || !iban[3].is_ascii_digit() {
        return false;
    }
    let mut rest = 0u32;
    for c in iban[4..].iter().chain(&iban[..4]) {
        rest = match c {
            b'0'..=b'9' => rest * 10 + u32::from(c - b'0'),
            _ => rest * 100 + u32::from(c - b'A') + 10,
        } % 97;
    }
    rest == 1
}
