//! Functions of the host. What a guest does not call is not imported, so that
//! it needs no grant for it.

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
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            Failure::NotFound => "not found",
            Failure::Denied => "not granted",
            Failure::Limit => "above the limit",
            Failure::Argument => "bad argument",
            Failure::Unavailable => "not available",
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
