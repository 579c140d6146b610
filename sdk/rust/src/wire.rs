//! Records: the wire format of Protocol Buffers.

/// Reads the fields of a record: their numbers, and what they hold.
#[derive(Clone)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

pub(crate) enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut v = 0;
        for shift in (0..64).step_by(7) {
            let (c, rest) = self.0.split_first()?;
            self.0 = rest;
            v |= u64::from(c & 0x7f) << shift;
            if *c < 0x80 {
                return Some(v);
            }
        }
        None
    }

    fn take(&mut self, n: u64) -> Option<&'a [u8]> {
        if n > self.0.len() as u64 {
            return None;
        }
        let (b, rest) = self.0.split_at(n as usize);
        self.0 = rest;
        Some(b)
    }

    /// The first field of a number, empty where there is none.
    pub fn first(self, field: u32) -> &'a [u8] {
        for (n, f) in self {
            if let (true, Field::Bytes(b)) = (n == field, f) {
                return b;
            }
        }
        &[]
    }

    /// All fields of a number.
    pub fn all(self, field: u32) -> impl Iterator<Item = &'a [u8]> {
        self.filter_map(move |(n, f)| match f {
            Field::Bytes(b) if n == field => Some(b),
            _ => None,
        })
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = (u32, Field<'a>);
    #[inline(never)]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Most keys and lengths are one byte: those are read here.
            if let [key, n, rest @ ..] = self.0 {
                if key & 0x87 == 2 && *n < 0x80 && rest.len() >= usize::from(*n) {
                    let (b, rest) = rest.split_at(usize::from(*n));
                    self.0 = rest;
                    return Some((u32::from(key >> 3), Field::Bytes(b)));
                }
            }
            let key = self.varint()?;
            let field = (key >> 3) as u32;
            match key & 7 {
                0 => return Some((field, Field::Number(self.varint()?))),
                2 => {
                    let n = self.varint()?;
                    return Some((field, Field::Bytes(self.take(n)?)));
                }
                1 => self.take(8)?,
                5 => self.take(4)?,
                _ => return None,
            };
        }
    }
}

pub(crate) fn varint(to: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        to.push(v as u8 | 0x80);
        v >>= 7;
    }
    to.push(v as u8);
}

pub(crate) fn bytes(to: &mut Vec<u8>, field: u32, b: &[u8]) {
    varint(to, u64::from(field << 3 | 2));
    varint(to, b.len() as u64);
    to.extend_from_slice(b);
}

pub(crate) fn number(to: &mut Vec<u8>, field: u32, v: u64) {
    varint(to, u64::from(field << 3));
    varint(to, v);
}

/// What an operation holds. What is empty is left out, which reads the same.
#[derive(Default)]
pub(crate) struct Arg<'a> {
    pub pointer: &'a str,
    pub raw: &'a [u8],
    pub name: &'a str,
    pub text: &'a str,
    pub code: u64,
    pub index: u64,
    pub item: u64,
}

/// Writes an operation. The lengths of the two records around it come before
/// what they measure: four bytes are left for each, and filled in at last.
pub(crate) fn op(to: &mut Vec<u8>, op: u32, a: Arg) {
    to.reserve(64 + a.pointer.len() + a.raw.len() + a.name.len() + a.text.len());
    let start = to.len();
    to.extend_from_slice(&[1 << 3 | 2, 0, 0, 0, 0]);
    varint(to, u64::from(op << 3 | 2));
    to.extend_from_slice(&[0; 4]);
    let content = to.len();
    for (field, b) in [(1, a.pointer.as_bytes()), (2, a.raw), (3, a.name.as_bytes()), (4, a.text.as_bytes())] {
        if !b.is_empty() {
            bytes(to, field, b);
        }
    }
    for (field, v) in [(5, a.code), (6, a.index), (7, a.item)] {
        if v != 0 {
            number(to, field, v);
        }
    }
    let end = to.len();
    four(&mut to[start + 1..], end - start - 5);
    four(&mut to[content - 4..], end - content);
}

/// Writes a number in four bytes.
fn four(to: &mut [u8], n: usize) {
    for (i, b) in to[..4].iter_mut().enumerate() {
        *b = (n >> (7 * i)) as u8 & 0x7f | if i < 3 { 0x80 } else { 0 };
    }
}
