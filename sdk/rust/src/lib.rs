//! SDK for authors of guests: programs in WebAssembly that see the messages of
//! a Weir edge and answer with operations on them.
//!
//! ```ignore
//! use weir::{Code, Guest, Setup, Wants};
//!
//! weir::guest!(start);
//!
//! fn start(g: &mut Guest, _: &Setup) -> Result<(), String> {
//!     g.on_call(Wants::new().tools(&["delete_*"]), |c| {
//!         if !c.principal().in_group("admin") {
//!             c.deny(Code::Forbidden, "only admins delete");
//!         }
//!     });
//!     Ok(())
//! }
//! ```
//!
//! What a hook receives is borrowed: it cannot outlive the hook. It is zeroed
//! then, so that a message of one client never reaches the answer to another
//! unless the guest's own variables carry it. An instance runs one call at a
//! time.

mod hooks;
mod host;
mod json;
pub mod server;
mod wire;

pub use hooks::*;
pub use host::*;
pub use json::{error_result, quote, text_result, Elements, Members, Value};

use json::utf8;
use std::cell::{Cell, RefCell};
use wire::{bytes, number, Arg, Field, Reader};

const HOOKS: [&str; 17] = [
    "on_http_request",
    "authenticate",
    "map_identity",
    "override_tools",
    "override_prompts",
    "override_resources",
    "on_call_request",
    "outgoing_auth",
    "on_upstream_request",
    "on_call_response",
    "on_message",
    "on_http_response",
    "on_session_start",
    "on_session_end",
    "on_event",
    "on_notification",
    "on_question",
];

/// What the answer of a hook that is cached depends on, besides its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum By {
    Nothing,
    Tenant,
    Groups,
    Subject,
}

/// Which messages a function is asked about, and what it sees of them.
#[derive(Clone)]
pub struct Wants {
    tools: Vec<String>,
    backends: Vec<String>,
    methods: Vec<String>,
    headers: Vec<String>,
    pointers: Vec<String>,
    claims: Vec<String>,
    fields: u64,
    varies_by: By,
    inline_limit: u64,
    cache: u64,
    blocking: bool,
    hold: bool,
}

impl Default for Wants {
    fn default() -> Self {
        Wants::new()
    }
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| s.to_string()).collect()
}

impl Wants {
    /// Everything: all messages of the hook, and all that the host knows of them
    /// but headers.
    pub fn new() -> Self {
        Wants {
            tools: vec![],
            backends: vec![],
            methods: vec![],
            headers: vec![],
            pointers: vec![],
            claims: vec![],
            fields: 0,
            varies_by: By::Nothing,
            inline_limit: 0,
            cache: 0,
            blocking: false,
            hold: false,
        }
    }
    /// Only tools, by the names that clients see, that a glob matches.
    pub fn tools(mut self, globs: &[&str]) -> Self {
        self.tools = owned(globs);
        self
    }
    /// Only backends that a glob matches.
    pub fn backends(mut self, globs: &[&str]) -> Self {
        self.backends = owned(globs);
        self
    }
    /// Only methods that a glob matches. It is for on_message, on_notification and
    /// on_question.
    pub fn methods(mut self, globs: &[&str]) -> Self {
        self.methods = owned(globs);
        self
    }
    /// The headers that are seen, in lower case. There are no others.
    pub fn headers(mut self, names: &[&str]) -> Self {
        self.headers = owned(names);
        self
    }
    /// Values of the arguments or the result that are seen, by JSON pointers;
    /// selected gives them by their place.
    pub fn pointers(mut self, list: &[&str]) -> Self {
        self.pointers = owned(list);
        self
    }
    /// Claims of the client that are seen, by JSON pointers into its token's; claim
    /// gives them by their place. It is for on_call and on_outgoing, and needs the
    /// grant claims of every one.
    pub fn claims(mut self, list: &[&str]) -> Self {
        self.claims = owned(list);
        self
    }
    /// The fields that are read, by their numbers in ABI.md; all when there are
    /// none.
    pub fn fields(mut self, numbers: &[u32]) -> Self {
        for n in numbers {
            self.fields |= 1 << (n & 63);
        }
        self
    }
    /// The answer depends on who asks.
    pub fn varies_by(mut self, what: By) -> Self {
        self.varies_by = what;
        self
    }
    /// What on_outgoing answers is kept for a time, at most an hour, for all
    /// messages to the same backend from clients that varies_by puts together.
    /// The function is told of nothing else then.
    pub fn cache_for(mut self, millis: u64) -> Self {
        self.cache = millis;
        self
    }
    /// The function waits for others, with fetch or call_tool.
    pub fn blocking(mut self) -> Self {
        self.blocking = true;
        self
    }
    /// What a call tells before its answer, such as progress, waits until the function
    /// has judged the answer: of one that is denied the client hears nothing. It is for
    /// on_result and on_message. A question cannot wait: a guest that holds needs
    /// on_question, too.
    pub fn hold(mut self) -> Self {
        self.hold = true;
        self
    }
    /// Arguments of more than n bytes are left out.
    pub fn inline_limit(mut self, n: u64) -> Self {
        self.inline_limit = n;
        self
    }
}

/// What a guest is given when it starts.
pub struct Setup<'a> {
    pub name: &'a str,
    /// The configuration; does not exist where there is none.
    pub config: Value<'a>,
    /// Of the host's ABI: the major version in the upper 16 bits.
    pub version: u64,
    grants: Vec<&'a str>,
}

impl<'a> Setup<'a> {
    /// Says whether something is granted: random, kv, metrics, keys, identity,
    /// credentials, http, tools, events or claims.
    pub fn granted(&self, grant: &str) -> bool {
        self.grants.contains(&grant)
    }
}

type Run = Box<dyn for<'a> FnMut(&'a Exchange<'a>)>;

struct Handler {
    run: Run,
    wants: Wants,
    base: usize,
    claim_base: usize,
}

/// What a guest registered. There is one in an instance, which macro guest! makes.
#[derive(Default)]
pub struct Guest {
    handlers: Vec<Vec<Handler>>,
    input: Vec<u8>,
    output: RefCell<Vec<u8>>,
}

/// A call under way: its input, and its operations so far.
pub(crate) struct Exchange<'a> {
    record: &'a [u8],
    field: [&'a [u8]; 20],
    now: u64,
    status: u64,
    from: u64,
    out: &'a RefCell<Vec<u8>>,
    refused: Cell<bool>,
    base: Cell<usize>,
    pointers: Cell<usize>,
    claim_base: Cell<usize>,
    claims: Cell<usize>,
    globs: RefCell<Vec<String>>, // of the function, for the names of items
}

impl<'a> Exchange<'a> {
    fn text(&self, field: usize) -> &'a str {
        utf8(self.field[field])
    }
    fn json(&self, field: usize) -> Value<'a> {
        Value(self.field[field])
    }
    fn header(&self, name: &str) -> &'a str {
        for h in Reader(self.record).all(7) {
            if Reader(h).first(1) == name.as_bytes() {
                return utf8(Reader(h).first(2));
            }
        }
        ""
    }
    fn selected(&self, i: usize) -> Value<'a> {
        if i >= self.pointers.get() {
            return Value::default();
        }
        Reader(self.record).all(9).nth(self.base.get() + i).map(Value).unwrap_or_default()
    }
    fn attr(&self, name: &str) -> Value<'a> {
        for a in Reader(self.record).all(25) {
            if Reader(a).first(1) == name.as_bytes() {
                return Value(Reader(a).first(2));
            }
        }
        Value::default()
    }
    fn claim(&self, i: usize) -> Value<'a> {
        if i >= self.claims.get() {
            return Value::default();
        }
        Reader(self.record).all(26).nth(self.claim_base.get() + i).map(Value).unwrap_or_default()
    }
    fn op(&self, op: u32, a: Arg) {
        wire::op(&mut self.out.borrow_mut(), op, a)
    }
}

/// How many values a list of a subscription may hold.
const MOST: usize = 64;

impl Guest {
    pub(crate) fn on(&mut self, hook: usize, wants: Wants, run: Run) {
        self.handlers.resize_with(HOOKS.len(), Vec::new);
        self.handlers[hook].push(Handler { run, wants, base: 0, claim_base: 0 });
    }

    /// Is weir_buf.
    #[doc(hidden)]
    pub fn buffer(&mut self, min: usize) -> *mut u8 {
        if min > 32 << 20 {
            return std::ptr::null_mut();
        }
        if self.input.len() < min {
            self.input = vec![0; min];
        }
        self.input.as_mut_ptr()
    }

    fn give(&self) -> u64 {
        let out = self.output.borrow();
        match out.len() {
            0 => 0,
            n => (out.as_ptr() as usize as u64) << 32 | n as u64,
        }
    }

    /// Is weir_init.
    #[doc(hidden)]
    pub fn start(&mut self, n: usize, f: fn(&mut Guest, &Setup) -> Result<(), String>) -> u64 {
        // A panic ends the guest: its text and its place go to the log before.
        std::panic::set_hook(Box::new(|why| log(Level::Error, &why.to_string())));
        let record = self.input[..n].to_vec();
        let mut s = Setup { name: "", config: Value::default(), version: 0, grants: vec![] };
        for field in Reader(&record) {
            match field {
                (1, Field::Bytes(b)) => s.config = Value(b),
                (2, Field::Bytes(b)) => s.grants.push(utf8(b)),
                (3, Field::Bytes(b)) => s.name = utf8(b),
                (4, Field::Number(v)) => s.version = v,
                _ => {}
            }
        }
        let outcome = f(self, &s).and_then(|()| self.subscriptions());
        let mut out = self.output.borrow_mut();
        out.clear();
        match outcome {
            Ok(all) => out.extend_from_slice(&all),
            Err(wrong) => bytes(&mut out, 2, wrong.as_bytes()),
        }
        drop(out);
        self.give()
    }

    fn subscriptions(&mut self) -> Result<Vec<u8>, String> {
        let mut all = Vec::new();
        for (hook, handlers) in self.handlers.iter_mut().enumerate() {
            if !handlers.is_empty() {
                bytes(&mut all, 1, &subscription(HOOKS[hook], handlers)?);
            }
        }
        Ok(all)
    }

    /// Is weir_<hook>: asks the functions that the input is for. One that denies
    /// is the last.
    #[doc(hidden)]
    pub fn ask(&mut self, hook: usize, n: usize) -> u64 {
        self.output.borrow_mut().clear();
        let mut x = Exchange {
            record: &self.input[..n],
            field: [&[]; 20],
            now: 0,
            status: 0,
            from: 0,
            out: &self.output,
            refused: Cell::new(false),
            base: Cell::new(0),
            pointers: Cell::new(0),
            claim_base: Cell::new(0),
            claims: Cell::new(0),
            globs: RefCell::new(vec![]),
        };
        for (field, f) in Reader(x.record) {
            match f {
                Field::Number(v) if field == 10 => x.now = v,
                Field::Number(v) if field == 16 => x.status = v,
                Field::Number(v) if field == 20 => x.from = v,
                Field::Bytes(b) if field < 20 => x.field[field as usize] = b,
                _ => {}
            }
        }
        if let Some(handlers) = self.handlers.get_mut(hook) {
            for h in handlers {
                let w = &h.wants;
                if !one(&w.tools, x.field[1]) || !one(&w.backends, x.field[2]) || !one(&w.methods, x.field[4]) {
                    continue;
                }
                x.base.set(h.base);
                x.pointers.set(w.pointers.len());
                x.claim_base.set(h.claim_base);
                x.claims.set(w.claims.len());
                if (3..=5).contains(&hook) {
                    x.globs.replace(w.tools.clone());
                }
                (h.run)(&x);
                if x.refused.get() {
                    break;
                }
            }
        }
        // The input is zeroed by the host.
        self.give()
    }
}

/// The one subscription that covers all functions for a hook. With several of
/// them it may cover more than each asked for: ask looks again.
fn subscription(hook: &str, handlers: &mut [Handler]) -> Result<Vec<u8>, String> {
    let mut sub = Vec::new();
    let mut pointers = Vec::new();
    let mut claims = Vec::new();
    for h in handlers.iter_mut() {
        h.base = pointers.len();
        pointers.extend(h.wants.pointers.iter().cloned());
        h.claim_base = claims.len();
        claims.extend(h.wants.claims.iter().cloned());
    }
    let globs = |of: fn(&Wants) -> &Vec<String>| {
        let list = union(handlers.iter().map(|h| of(&h.wants)));
        if handlers.iter().any(|h| of(&h.wants).is_empty()) || list.len() > MOST {
            return vec![];
        }
        list
    };
    let headers = union(handlers.iter().map(|h| &h.wants.headers));
    if headers.len() > MOST || pointers.len() > MOST || claims.len() > MOST {
        return Err([hook, ": more than 64 headers, pointers or claims"].concat());
    }
    bytes(&mut sub, 1, hook.as_bytes());
    for (field, list) in [(2, globs(|w| &w.methods)), (3, globs(|w| &w.tools)), (4, globs(|w| &w.backends))] {
        for s in list {
            bytes(&mut sub, field, s.as_bytes());
        }
    }
    for s in &headers {
        bytes(&mut sub, 6, s.as_bytes());
    }
    for s in &pointers {
        bytes(&mut sub, 7, s.as_bytes());
    }
    for s in &claims {
        bytes(&mut sub, 13, s.as_bytes());
    }
    if handlers.iter().all(|h| h.wants.fields != 0) {
        // What ask itself reads, and what was asked for by name.
        let mut fields = 1 << 1 | 1 << 2 | 1 << 4;
        for h in handlers.iter() {
            fields |= h.wants.fields;
        }
        if !headers.is_empty() {
            fields |= 1 << 7;
        }
        if !pointers.is_empty() {
            fields |= 1 << 9;
        }
        if !claims.is_empty() {
            fields |= 1 << 26;
        }
        for f in (1..64).filter(|f| fields >> f & 1 == 1) {
            number(&mut sub, 5, f);
        }
    }
    let varies = handlers.iter().map(|h| h.wants.varies_by).max().unwrap_or(By::Nothing);
    if varies != By::Nothing {
        number(&mut sub, 8, varies as u64);
    }
    let limits = || handlers.iter().map(|h| h.wants.inline_limit);
    if limits().all(|n| n != 0) {
        number(&mut sub, 9, limits().max().unwrap_or(0));
    }
    let cache = handlers.iter().map(|h| h.wants.cache).min().unwrap_or(0);
    if cache != 0 {
        number(&mut sub, 10, cache);
    }
    if handlers.iter().any(|h| h.wants.blocking) {
        number(&mut sub, 11, 1);
    }
    if handlers.iter().any(|h| h.wants.hold) {
        number(&mut sub, 12, 1);
    }
    Ok(sub)
}

fn union<'a>(lists: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let mut all: Vec<String> = vec![];
    for s in lists.flatten() {
        if !all.contains(s) {
            all.push(s.clone());
        }
    }
    all
}

/// Says whether one of the globs matches a name. An input without such a name is
/// for every function: the host has none in that hook.
fn one(globs: &[String], name: &[u8]) -> bool {
    globs.is_empty() || name.is_empty() || globs.iter().any(|g| glob(g.as_bytes(), name))
}

/// Says whether a pattern, in which * stands for any characters, matches all of
/// a name.
pub fn matches(pattern: &str, name: &str) -> bool {
    glob(pattern.as_bytes(), name.as_bytes())
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n, mut star, mut mark) = (0, 0, None, 0);
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some(p);
            mark = n;
            p += 1;
        } else if p < pattern.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if let Some(s) = star {
            mark += 1;
            p = s + 1;
            n = mark;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

/// guest!(start) makes the exports of a guest. start is a function
/// fn(&mut Guest, &Setup) -> Result<(), String> that reads the configuration and
/// registers functions for hooks; the text of its error tells the operator why
/// the configuration cannot be used.
#[macro_export]
macro_rules! guest {
    ($start:ident) => {
        mod weir_exports {
            static mut GUEST: Option<$crate::Guest> = None;

            // An instance runs one call at a time, in one thread.
            #[allow(static_mut_refs, unknown_lints)]
            fn guest() -> &'static mut $crate::Guest {
                unsafe { GUEST.get_or_insert_with($crate::Guest::default) }
            }
            #[no_mangle]
            pub extern "C" fn weir_abi() -> u32 {
                1 << 16 | 1
            }
            #[no_mangle]
            pub extern "C" fn weir_buf(min: usize) -> *mut u8 {
                guest().buffer(min)
            }
            #[no_mangle]
            pub extern "C" fn weir_init(n: usize) -> u64 {
                guest().start(n, super::$start)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_http_request(n: usize) -> u64 {
                guest().ask(0, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_authenticate(n: usize) -> u64 {
                guest().ask(1, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_map_identity(n: usize) -> u64 {
                guest().ask(2, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_override_tools(n: usize) -> u64 {
                guest().ask(3, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_override_prompts(n: usize) -> u64 {
                guest().ask(4, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_override_resources(n: usize) -> u64 {
                guest().ask(5, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_call_request(n: usize) -> u64 {
                guest().ask(6, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_outgoing_auth(n: usize) -> u64 {
                guest().ask(7, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_upstream_request(n: usize) -> u64 {
                guest().ask(8, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_call_response(n: usize) -> u64 {
                guest().ask(9, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_message(n: usize) -> u64 {
                guest().ask(10, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_http_response(n: usize) -> u64 {
                guest().ask(11, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_session_start(n: usize) -> u64 {
                guest().ask(12, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_session_end(n: usize) -> u64 {
                guest().ask(13, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_event(n: usize) -> u64 {
                guest().ask(14, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_notification(n: usize) -> u64 {
                guest().ask(15, n)
            }
            #[no_mangle]
            pub extern "C" fn weir_on_question(n: usize) -> u64 {
                guest().ask(16, n)
            }
        }
    };
}
