//! Functions of the host. What a guest does not call is not imported, so that
//! it needs no grant for it.

use crate::wire::{bytes, number, Field, Reader};
use crate::Value;

mod imports {
    #[link(wasm_import_module = "weir_v1")]
    extern "C" {
        pub fn log(level: u32, p: *const u8, n: usize);
        pub fn log_level() -> u32;
        pub fn now_ms() -> i64;
        pub fn mono_ns() -> i64;
        pub fn random(p: *mut u8, n: usize) -> i32;
        pub fn sha256(p: *const u8, n: usize, out: *mut u8) -> i32;
        pub fn hmac(key: *const u8, key_n: usize, p: *const u8, n: usize, out: *mut u8) -> i64;
        pub fn kv_get(key: *const u8, key_n: usize, out: *mut u8, cap: usize) -> i64;
        pub fn kv_set(key: *const u8, key_n: usize, p: *const u8, n: usize, ttl: i64) -> i64;
        pub fn kv_incr(key: *const u8, key_n: usize, delta: i64, ttl: i64) -> i64;
        pub fn metric(name: *const u8, n: usize, kind: u32, delta: i64) -> i32;
        pub fn http_call(p: *const u8, n: usize, out: *mut u8, cap: usize) -> i64;
        pub fn call_tool(p: *const u8, n: usize, out: *mut u8, cap: usize) -> i64;
        pub fn answer(out: *mut u8, cap: usize) -> i64;
        pub fn emit(name: *const u8, name_n: usize, p: *const u8, n: usize) -> i32;
    }
}

/// What the host answers when it cannot do what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    NotFound,
    Denied,
    Limit,
    Argument,
    Unavailable,
    /// Of fetch: why there is no answer, this and the next three.
    Timeout,
    Refused,
    Name,
    Tls,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Failure::NotFound => "not found",
            Failure::Denied => "not granted",
            Failure::Limit => "above the limit",
            Failure::Argument => "bad argument",
            Failure::Unavailable => "not available",
            Failure::Timeout => "no answer in time",
            Failure::Refused => "connection refused",
            Failure::Name => "no such host",
            Failure::Tls => "TLS failed",
        })
    }
}

impl std::error::Error for Failure {}

fn checked(n: i64) -> Result<i64, Failure> {
    match n {
        0.. => Ok(n),
        -1 => Err(Failure::NotFound),
        -2 => Err(Failure::Denied),
        -3 => Err(Failure::Limit),
        -4 => Err(Failure::Argument),
        -6 => Err(Failure::Timeout),
        -7 => Err(Failure::Refused),
        -8 => Err(Failure::Name),
        -9 => Err(Failure::Tls),
        _ => Err(Failure::Unavailable),
    }
}

/// Levels of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

/// Writes a line of the log, of at most 4 KiB.
pub fn log(level: Level, text: &str) {
    unsafe { imports::log(level as u32, text.as_ptr(), text.len()) }
}

/// The least level that is written.
pub fn log_level() -> Level {
    match unsafe { imports::log_level() } {
        0 => Level::Debug,
        1 => Level::Info,
        2 => Level::Warn,
        _ => Level::Error,
    }
}

/// The time, in milliseconds since 1970 UTC.
pub fn now_millis() -> i64 {
    unsafe { imports::now_ms() }
}

/// A time in nanoseconds that never goes backwards.
pub fn monotonic() -> i64 {
    unsafe { imports::mono_ns() }
}

/// Fills bytes, at most 4096, at random. Grant random.
pub fn random(to: &mut [u8]) -> Result<(), Failure> {
    checked(i64::from(unsafe { imports::random(to.as_mut_ptr(), to.len()) })).map(|_| ())
}

/// The SHA-256 of bytes. The host computes it.
pub fn sha256(b: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    unsafe { imports::sha256(b.as_ptr(), b.len(), sum.as_mut_ptr()) };
    sum
}

/// HMAC-SHA256 under the secret that the operator granted by the name key. The
/// guest never sees the secret. Grant keys.
pub fn hmac(key: &str, b: &[u8]) -> Result<[u8; 32], Failure> {
    let mut sum = [0; 32];
    checked(unsafe { imports::hmac(key.as_ptr(), key.len(), b.as_ptr(), b.len(), sum.as_mut_ptr()) }).map(|_| sum)
}

/// The value of a key. Grant kv.
pub fn kv_get(key: &str) -> Result<Vec<u8>, Failure> {
    let mut value = vec![0; 256];
    loop {
        let n = checked(unsafe { imports::kv_get(key.as_ptr(), key.len(), value.as_mut_ptr(), value.len()) })? as usize;
        let fits = n <= value.len();
        value.resize(n, 0);
        if fits {
            return Ok(value);
        }
    }
}

/// Sets the value of a key, at most 64 KiB, for at most 24 hours. Grant kv.
pub fn kv_set(key: &str, value: &[u8], millis: i64) -> Result<(), Failure> {
    checked(unsafe { imports::kv_set(key.as_ptr(), key.len(), value.as_ptr(), value.len(), millis) }).map(|_| ())
}

/// Adds to a number in one step; returns the sum. Grant kv.
pub fn kv_add(key: &str, n: i64, millis: i64) -> Result<i64, Failure> {
    checked(unsafe { imports::kv_incr(key.as_ptr(), key.len(), n, millis) })
}

/// Adds to a counter. Grant metrics.
pub fn count(name: &str, delta: i64) -> Result<(), Failure> {
    checked(i64::from(unsafe { imports::metric(name.as_ptr(), name.len(), 0, delta) })).map(|_| ())
}

/// Sets a gauge. Grant metrics.
pub fn gauge(name: &str, value: i64) -> Result<(), Failure> {
    checked(i64::from(unsafe { imports::metric(name.as_ptr(), name.len(), 1, value) })).map(|_| ())
}

/// An HTTP request to another party: Fetch { url: "…", ..Fetch::default() }.
#[derive(Clone, Copy, Default)]
pub struct Fetch<'a> {
    /// GET when empty.
    pub method: &'a str,
    pub url: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// Milliseconds that it may take; 0 for the host's limit.
    pub millis: u64,
}

/// The answer to one.
#[derive(Clone, Debug, Default)]
pub struct Fetched {
    pub status: u64,
    /// Names, in small letters, and values.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Fetched {
    /// The first value of a header, whose name is in small letters.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|h| h.0 == name).map_or("", |h| &h.1)
    }
}

/// What a tool answered: a result, or the object of an error.
#[derive(Clone, Debug, Default)]
pub struct ToolAnswer {
    record: Vec<u8>,
}

impl ToolAnswer {
    /// Does not exist when there is an error.
    pub fn result(&self) -> Value<'_> {
        Value(Reader(&self.record).first(1))
    }
    /// Does not exist when there is a result.
    pub fn error(&self) -> Value<'_> {
        Value(Reader(&self.record).first(2))
    }
}

type Ask = unsafe extern "C" fn(*const u8, usize, *mut u8, usize) -> i64;

/// Asks others, and fetches an answer that there was no room for.
fn asked(ask: Ask, question: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = vec![0; 1024];
    let mut n = checked(unsafe { ask(question.as_ptr(), question.len(), out.as_mut_ptr(), out.len()) })? as usize;
    if n > out.len() {
        out.resize(n, 0);
        n = checked(unsafe { imports::answer(out.as_mut_ptr(), out.len()) })? as usize;
    }
    out.truncate(n);
    Ok(out)
}

fn text(b: &[u8]) -> String {
    String::from_utf8_lossy(b).into_owned()
}

/// Sends a request to a host that is granted, and waits for the answer. Redirects
/// are not followed. Grant http, and a function that is blocking.
pub fn fetch(q: &Fetch) -> Result<Fetched, Failure> {
    let mut question = Vec::with_capacity(64 + q.url.len() + q.body.len());
    if !q.method.is_empty() {
        bytes(&mut question, 1, q.method.as_bytes());
    }
    bytes(&mut question, 2, q.url.as_bytes());
    for (name, value) in q.headers {
        let mut line = Vec::new();
        bytes(&mut line, 1, name.as_bytes());
        bytes(&mut line, 2, value.as_bytes());
        bytes(&mut question, 3, &line);
    }
    bytes(&mut question, 4, q.body);
    if q.millis != 0 {
        number(&mut question, 5, q.millis);
    }
    let record = asked(imports::http_call, &question)?;
    let mut a = Fetched::default();
    for (field, f) in Reader(&record) {
        match (field, f) {
            (1, Field::Number(n)) => a.status = n,
            (2, Field::Bytes(h)) => a.headers.push((text(Reader(h).first(1)), text(Reader(h).first(2)))),
            (3, Field::Bytes(b)) => a.body = b.to_vec(),
            _ => {}
        }
    }
    Ok(a)
}

/// Calls a tool, by the name that clients see, for the client whose message the
/// function is asked about; json is an object. Grant tools, and a function that is
/// blocking.
pub fn call_tool(name: &str, json: &str) -> Result<ToolAnswer, Failure> {
    let mut question = Vec::new();
    bytes(&mut question, 1, name.as_bytes());
    if !json.is_empty() {
        bytes(&mut question, 2, json.as_bytes());
    }
    asked(imports::call_tool, &question).map(|record| ToolAnswer { record })
}

/// Tells of an event, with JSON text of at most 4 KiB. Grant events.
pub fn emit(name: &str, json: &str) -> Result<(), Failure> {
    checked(i64::from(unsafe { imports::emit(name.as_ptr(), name.len(), json.as_ptr(), json.len()) })).map(|_| ())
}
