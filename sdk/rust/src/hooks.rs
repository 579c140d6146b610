//! The hooks: what each is asked about, and the operations that it may use.

use crate::json::{utf8, Value};
use crate::wire::{bytes, Arg, Reader};
use crate::{one, Exchange, Guest, Wants};

/// Kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Forbidden,
    Unauthenticated,
    Invalid,
    Limited,
    NotFound,
}

/// Who a client is.
#[derive(Clone, Copy)]
pub struct Principal<'a>(&'a [u8]);

impl<'a> Principal<'a> {
    /// Says whether there is one: false for an anonymous client.
    pub fn known(&self) -> bool {
        !self.0.is_empty()
    }
    pub fn subject(&self) -> &'a str {
        utf8(Reader(self.0).first(1))
    }
    pub fn tenant(&self) -> &'a str {
        utf8(Reader(self.0).first(2))
    }
    pub fn issuer(&self) -> &'a str {
        utf8(Reader(self.0).first(6))
    }
    pub fn groups(&self) -> impl Iterator<Item = &'a str> {
        Reader(self.0).all(3).map(utf8)
    }
    pub fn roles(&self) -> impl Iterator<Item = &'a str> {
        Reader(self.0).all(4).map(utf8)
    }
    pub fn scopes(&self) -> impl Iterator<Item = &'a str> {
        Reader(self.0).all(5).map(utf8)
    }
    pub fn in_group(&self, name: &str) -> bool {
        Reader(self.0).all(3).any(|g| g == name.as_bytes())
    }
    pub fn has_role(&self, name: &str) -> bool {
        Reader(self.0).all(4).any(|r| r == name.as_bytes())
    }
    pub fn has_scope(&self, name: &str) -> bool {
        Reader(self.0).all(5).any(|s| s == name.as_bytes())
    }
}

/// Who a client is said to be.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    pub subject: String,
    pub tenant: String,
    pub issuer: String,
    pub groups: Vec<String>,
    pub roles: Vec<String>,
    pub scopes: Vec<String>,
}

impl Identity {
    fn record(&self) -> Vec<u8> {
        let mut b = Vec::new();
        for (field, s) in [(1, &self.subject), (2, &self.tenant), (6, &self.issuer)] {
            if !s.is_empty() {
                bytes(&mut b, field, s.as_bytes());
            }
        }
        for (field, list) in [(3, &self.groups), (4, &self.roles), (5, &self.scopes)] {
            for s in list {
                bytes(&mut b, field, s.as_bytes());
            }
        }
        b
    }
}

/// A tool, a prompt or a resource of a backend.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    x: &'a Exchange<'a>,
    record: &'a [u8],
    index: u64,
}

impl<'a> Item<'a> {
    fn op(&self, op: u32, a: Arg) {
        self.x.op(op, Arg { item: self.index, ..a })
    }
    /// The backend's name for it.
    pub fn name(&self) -> &'a str {
        utf8(Reader(self.record).first(1))
    }
    pub fn backend(&self) -> &'a str {
        utf8(Reader(self.record).first(2))
    }
    /// What the backend says of it: an object with name, description, inputSchema and so on.
    pub fn json(&self) -> Value<'a> {
        Value(Reader(self.record).first(3))
    }
    /// Offers it under another name.
    pub fn rename(&self, name: &str) {
        self.op(16, Arg { name, ..Arg::default() })
    }
    /// Replaces its description.
    pub fn describe(&self, text: &str) {
        self.op(17, Arg { text, ..Arg::default() })
    }
    /// Does not offer it. Whoever knows its name is not kept from it: deny calls,
    /// too, where that matters.
    pub fn hide(&self) {
        self.op(18, Arg::default())
    }
    /// Sets an annotation.
    pub fn annotate(&self, name: &str, json: &str) {
        self.op(19, Arg { name, raw: json.as_bytes(), ..Arg::default() })
    }
    /// Sets what the backend says of it behind a JSON pointer, such as /icons.
    /// Its name or URI stays.
    pub fn patch(&self, pointer: &str, json: &str) {
        self.op(26, Arg { pointer, raw: json.as_bytes(), ..Arg::default() })
    }
    /// Replaces the schema of its input.
    pub fn set_schema(&self, json: &str) {
        self.op(20, Arg { raw: json.as_bytes(), ..Arg::default() })
    }
    /// Gives an argument one value for good, and takes it out of the schema.
    pub fn pin_arg(&self, pointer: &str, json: &str) {
        self.op(21, Arg { pointer, raw: json.as_bytes(), ..Arg::default() })
    }
    /// Takes an argument out of the schema.
    pub fn hide_arg(&self, pointer: &str) {
        self.op(22, Arg { pointer, ..Arg::default() })
    }
}

/// A request before authentication.
pub struct HTTPRequest<'a>(&'a Exchange<'a>);

/// A credential that nothing else claimed.
pub struct Credential<'a>(&'a Exchange<'a>);

/// A token that was verified.
pub struct VerifiedToken<'a>(&'a Exchange<'a>);

/// What backends offer: tools, prompts or resources.
pub struct Catalog<'a>(&'a Exchange<'a>);

/// A call of a tool, before authorization.
pub struct Call<'a>(&'a Exchange<'a>);

/// A backend that a credential is chosen for.
pub struct Outgoing<'a>(&'a Exchange<'a>);

/// A request before it leaves for a backend.
pub struct BackendRequest<'a>(&'a Exchange<'a>);

/// The result, or the error, of a call.
pub struct CallResult<'a>(&'a Exchange<'a>);

/// A message that no other hook is for.
pub struct Message<'a>(&'a Exchange<'a>);

/// A response before its headers are sent.
pub struct HTTPResponse<'a>(&'a Exchange<'a>);

/// A session that begins or ends.
pub struct Session<'a>(&'a Exchange<'a>);

/// A copy of the record of a message.
pub struct Event<'a>(&'a Exchange<'a>);

/// What a client or a server tells, which nobody answers.
pub struct Notification<'a>(&'a Exchange<'a>);

/// What a server asks a client in the middle of a call, or what the client answers.
pub struct Question<'a>(&'a Exchange<'a>);

impl<'a> HTTPRequest<'a> {
    pub fn path(&self) -> &'a str { self.0.text(17) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    pub fn set_header(&self, name: &str, value: &str) { self.0.op(6, Arg { name, text: value, ..Arg::default() }) }
    pub fn del_header(&self, name: &str) { self.0.op(7, Arg { name, ..Arg::default() }) }
    /// Answers with a result, as JSON text.
    pub fn respond(&self, json: &str) { self.0.op(8, Arg { raw: json.as_bytes(), ..Arg::default() }) }
    /// Says something of the client, as JSON text, under a name of a-z, 0-9 and _:
    /// policies read it as principal.attr_NAME, and later filters see it.
    pub fn set_attr(&self, name: &str, json: &str) { self.0.op(10, Arg { name, raw: json.as_bytes(), ..Arg::default() }) }
}

impl<'a> Credential<'a> {
    pub fn path(&self) -> &'a str { self.0.text(17) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Says who the client is.
    pub fn set_principal(&self, who: &Identity) { self.0.op(24, Arg { raw: &who.record(), ..Arg::default() }) }
    /// Asks for a credential: the value of a WWW-Authenticate header.
    pub fn challenge(&self, text: &str) { self.0.op(25, Arg { text, ..Arg::default() }) }
}

impl<'a> VerifiedToken<'a> {
    pub fn path(&self) -> &'a str { self.0.text(17) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Says something of the client, as JSON text, under a name of a-z, 0-9 and _:
    /// policies read it as principal.attr_NAME, and later filters see it.
    pub fn set_attr(&self, name: &str, json: &str) { self.0.op(10, Arg { name, raw: json.as_bytes(), ..Arg::default() }) }
    /// Says who the client is.
    pub fn set_principal(&self, who: &Identity) { self.0.op(24, Arg { raw: &who.record(), ..Arg::default() }) }
    pub fn issuer(&self) -> &'a str { self.0.text(18) }
    /// The claims, an object.
    pub fn claims(&self) -> Value<'a> { self.0.json(14) }
}

impl<'a> Catalog<'a> {
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// What is offered, of that which the function is for: see Wants.tools.
    pub fn items(&self) -> impl Iterator<Item = Item<'a>> {
        let x = self.0;
        let all = Reader(x.record).all(13).enumerate().map(move |(index, record)| Item { x, record, index: index as u64 });
        all.filter(move |i| one(&x.globs.borrow(), i.name().as_bytes())) // another function may have asked for it
    }
}

impl<'a> Call<'a> {
    /// The claim of the client at pointer i of Wants.claims.
    pub fn claim(&self, i: usize) -> Value<'a> { self.0.claim(i) }
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    pub fn set_header(&self, name: &str, value: &str) { self.0.op(6, Arg { name, text: value, ..Arg::default() }) }
    pub fn del_header(&self, name: &str) { self.0.op(7, Arg { name, ..Arg::default() }) }
    /// Answers with a result, as JSON text.
    pub fn respond(&self, json: &str) { self.0.op(8, Arg { raw: json.as_bytes(), ..Arg::default() }) }
    /// Says something of the client, as JSON text, under a name of a-z, 0-9 and _:
    /// policies read it as principal.attr_NAME, and later filters see it.
    pub fn set_attr(&self, name: &str, json: &str) { self.0.op(10, Arg { name, raw: json.as_bytes(), ..Arg::default() }) }
    /// Notes a text in the record of the message.
    pub fn log_field(&self, name: &str, text: &str) { self.0.op(12, Arg { name, text, ..Arg::default() }) }
    /// The value at pointer i of those that were asked for.
    pub fn selected(&self, i: usize) -> Value<'a> { self.0.selected(i) }
    /// The arguments. They do not exist in an answer, or above the limit of inline_limit.
    pub fn arguments(&self) -> Value<'a> { self.0.json(8) }
    /// Sets the argument behind a JSON pointer to JSON text.
    pub fn set(&self, pointer: &str, json: &str) { self.0.op(1, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Removes the argument behind a JSON pointer.
    pub fn del(&self, pointer: &str) { self.0.op(2, Arg { pointer, ..Arg::default() }) }
    /// Replaces all arguments by those of an object.
    pub fn set_arguments(&self, json: &str) { self.0.op(3, Arg { raw: json.as_bytes(), ..Arg::default() }) }
    /// Calls another tool, by the name that clients see.
    pub fn set_tool(&self, name: &str) { self.0.op(4, Arg { name, ..Arg::default() }) }
    /// Calls another backend.
    pub fn set_backend(&self, name: &str) { self.0.op(5, Arg { name, ..Arg::default() }) }
    /// Leaves bytes for on_result to find.
    pub fn carry(&self, bytes: &[u8]) { self.0.op(11, Arg { raw: bytes, ..Arg::default() }) }
}

impl<'a> Outgoing<'a> {
    /// The claim of the client at pointer i of Wants.claims.
    pub fn claim(&self, i: usize) -> Value<'a> { self.0.claim(i) }
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    pub fn set_header(&self, name: &str, value: &str) { self.0.op(6, Arg { name, text: value, ..Arg::default() }) }
    pub fn del_header(&self, name: &str) { self.0.op(7, Arg { name, ..Arg::default() }) }
    /// Chooses a credential that was granted, by its name.
    pub fn use_credential(&self, name: &str) { self.0.op(23, Arg { name, ..Arg::default() }) }
}

impl<'a> BackendRequest<'a> {
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    pub fn set_header(&self, name: &str, value: &str) { self.0.op(6, Arg { name, text: value, ..Arg::default() }) }
    pub fn del_header(&self, name: &str) { self.0.op(7, Arg { name, ..Arg::default() }) }
}

impl<'a> CallResult<'a> {
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Answers with a result, as JSON text.
    pub fn respond(&self, json: &str) { self.0.op(8, Arg { raw: json.as_bytes(), ..Arg::default() }) }
    /// Notes a text in the record of the message.
    pub fn log_field(&self, name: &str, text: &str) { self.0.op(12, Arg { name, text, ..Arg::default() }) }
    /// The value at pointer i of those that were asked for.
    pub fn selected(&self, i: usize) -> Value<'a> { self.0.selected(i) }
    /// The result; does not exist when there is an error.
    pub fn result(&self) -> Value<'a> { self.0.json(11) }
    /// The error object; does not exist when there is a result.
    pub fn error(&self) -> Value<'a> { self.0.json(12) }
    /// Replaces the value of the result behind a JSON pointer by JSON text.
    pub fn patch(&self, pointer: &str, json: &str) { self.0.op(13, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Puts a text into the place of the value behind a JSON pointer.
    pub fn redact(&self, pointer: &str, text: &str) { self.0.op(15, Arg { pointer, text, ..Arg::default() }) }
    /// What carry left in the request.
    pub fn carried(&self) -> &'a [u8] { self.0.field[15] }
    /// Removes a block of the result's content, by its index.
    pub fn drop_content(&self, index: usize) { self.0.op(14, Arg { index: index as u64, ..Arg::default() }) }
}

impl<'a> Message<'a> {
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// The value at pointer i of those that were asked for.
    pub fn selected(&self, i: usize) -> Value<'a> { self.0.selected(i) }
    /// The result; does not exist when there is an error.
    pub fn result(&self) -> Value<'a> { self.0.json(11) }
    /// The error object; does not exist when there is a result.
    pub fn error(&self) -> Value<'a> { self.0.json(12) }
    /// Replaces the value of the result behind a JSON pointer by JSON text.
    pub fn patch(&self, pointer: &str, json: &str) { self.0.op(13, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Puts a text into the place of the value behind a JSON pointer.
    pub fn redact(&self, pointer: &str, text: &str) { self.0.op(15, Arg { pointer, text, ..Arg::default() }) }
    /// The arguments. They do not exist in an answer, or above the limit of inline_limit.
    pub fn arguments(&self) -> Value<'a> { self.0.json(8) }
}

impl<'a> HTTPResponse<'a> {
    pub fn path(&self) -> &'a str { self.0.text(17) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    pub fn set_header(&self, name: &str, value: &str) { self.0.op(6, Arg { name, text: value, ..Arg::default() }) }
    pub fn del_header(&self, name: &str) { self.0.op(7, Arg { name, ..Arg::default() }) }
    pub fn status(&self) -> u16 { self.0.status as u16 }
}

impl<'a> Session<'a> {
    /// The name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the message.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is; of a catalog somebody of those who see it.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses the message, with a text that the client sees. Functions after
    /// this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Says something of the client, as JSON text, under a name of a-z, 0-9 and _:
    /// policies read it as principal.attr_NAME, and later filters see it.
    pub fn set_attr(&self, name: &str, json: &str) { self.0.op(10, Arg { name, raw: json.as_bytes(), ..Arg::default() }) }
}

impl<'a> Event<'a> {
    /// The record, an object.
    pub fn record(&self) -> Value<'a> { self.0.json(19) }
}

impl<'a> Notification<'a> {
    /// The tool of the call that it belongs to, by the name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the call that it belongs to.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses it. Functions after this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Notes a text in the record of the message.
    pub fn log_field(&self, name: &str, text: &str) { self.0.op(12, Arg { name, text, ..Arg::default() }) }
    /// Sets the value of the params behind a JSON pointer to JSON text.
    pub fn set(&self, pointer: &str, json: &str) { self.0.op(1, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Removes the value of the params behind a JSON pointer.
    pub fn del(&self, pointer: &str) { self.0.op(2, Arg { pointer, ..Arg::default() }) }
    /// Puts a text into the place of the value of the params behind a JSON pointer.
    pub fn redact(&self, pointer: &str, text: &str) { self.0.op(15, Arg { pointer, text, ..Arg::default() }) }
    /// Says whether a server tells it, and not the client.
    pub fn from_server(&self) -> bool { self.0.from == 2 }
    pub fn params(&self) -> Value<'a> { self.0.json(8) }
    /// The value of the params at pointer i of those that were asked for.
    pub fn selected(&self, i: usize) -> Value<'a> { self.0.selected(i) }
}

impl<'a> Question<'a> {
    /// The tool of the call that it belongs to, by the name that the client uses.
    pub fn tool(&self) -> &'a str { self.0.text(1) }
    pub fn backend(&self) -> &'a str { self.0.text(2) }
    /// Id of the call that it belongs to.
    pub fn id(&self) -> Value<'a> { self.0.json(5) }
    /// An opaque key of the client's session, empty without one.
    pub fn session(&self) -> &'a str { self.0.text(3) }
    pub fn method(&self) -> &'a str { self.0.text(4) }
    /// The first value of a header that was asked for. The name is in lower case.
    pub fn header(&self, name: &str) -> &'a str { self.0.header(name) }
    /// What a filter said of the client under a name, which no token can say.
    pub fn attr(&self, name: &str) -> Value<'a> { self.0.attr(name) }
    /// The time, in milliseconds since 1970 UTC.
    pub fn now(&self) -> u64 { self.0.now }
    /// Who the client is.
    pub fn principal(&self) -> Principal<'a> { Principal(self.0.field[6]) }
    /// Refuses it. Functions after this one are not asked.
    pub fn deny(&self, code: Code, text: &str) { self.deny_with(code, text, "") }
    /// The same, with data, as JSON text, for the error's object.
    pub fn deny_with(&self, code: Code, text: &str, data: &str) {
        self.0.refused.set(true);
        self.0.op(9, Arg { code: code as u64, text, raw: data.as_bytes(), ..Arg::default() })
    }
    /// Notes a text in the record of the message.
    pub fn log_field(&self, name: &str, text: &str) { self.0.op(12, Arg { name, text, ..Arg::default() }) }
    /// Sets the value of the params behind a JSON pointer to JSON text.
    pub fn set(&self, pointer: &str, json: &str) { self.0.op(1, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Removes the value of the params behind a JSON pointer.
    pub fn del(&self, pointer: &str) { self.0.op(2, Arg { pointer, ..Arg::default() }) }
    /// Puts a text into the place of the value behind a JSON pointer, in the answer to a
    /// question as well.
    pub fn redact(&self, pointer: &str, text: &str) { self.0.op(15, Arg { pointer, text, ..Arg::default() }) }
    /// Replaces the value of the answer behind a JSON pointer by JSON text.
    pub fn patch(&self, pointer: &str, json: &str) { self.0.op(13, Arg { pointer, raw: json.as_bytes(), ..Arg::default() }) }
    /// Says whether it is the question, and not the answer of the client.
    pub fn from_server(&self) -> bool { self.0.from == 2 }
    /// The params of the question. With the answer of a client of the modern era they do
    /// not come, nor does the method.
    pub fn params(&self) -> Value<'a> { self.0.json(8) }
    /// What the client answers; exists in an answer only.
    pub fn result(&self) -> Value<'a> { self.0.json(11) }
    /// The error object that the client answers with; exists in an answer only.
    pub fn error(&self) -> Value<'a> { self.0.json(12) }
    /// The value at pointer i of those that were asked for: of the params of a question,
    /// of the result of an answer.
    pub fn selected(&self, i: usize) -> Value<'a> { self.0.selected(i) }
}

impl Guest {
    /// Registers a function for requests before authentication.
    pub fn on_http_request(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&HTTPRequest<'a>) + 'static) {
        self.on(0, wants, Box::new(move |x| f(&HTTPRequest(x))))
    }
    /// Registers a function for credentials that nothing else claimed; set_principal needs the grant identity.
    pub fn on_authenticate(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Credential<'a>) + 'static) {
        self.on(1, wants, Box::new(move |x| f(&Credential(x))))
    }
    /// Registers a function for verified tokens.
    pub fn on_identity(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&VerifiedToken<'a>) + 'static) {
        self.on(2, wants, Box::new(move |x| f(&VerifiedToken(x))))
    }
    /// Registers a function for how tools are offered; it is asked once for what a backend offers.
    pub fn on_tools(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Catalog<'a>) + 'static) {
        self.on(3, wants, Box::new(move |x| f(&Catalog(x))))
    }
    /// Registers a function for how prompts are offered.
    pub fn on_prompts(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Catalog<'a>) + 'static) {
        self.on(4, wants, Box::new(move |x| f(&Catalog(x))))
    }
    /// Registers a function for how resources are offered.
    pub fn on_resources(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Catalog<'a>) + 'static) {
        self.on(5, wants, Box::new(move |x| f(&Catalog(x))))
    }
    /// Registers a function for calls of tools.
    pub fn on_call(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Call<'a>) + 'static) {
        self.on(6, wants, Box::new(move |x| f(&Call(x))))
    }
    /// Registers a function for the choice of a credential for a backend.
    pub fn on_outgoing(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Outgoing<'a>) + 'static) {
        self.on(7, wants, Box::new(move |x| f(&Outgoing(x))))
    }
    /// Registers a function for requests that leave for a backend.
    pub fn on_backend_request(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&BackendRequest<'a>) + 'static) {
        self.on(8, wants, Box::new(move |x| f(&BackendRequest(x))))
    }
    /// Registers a function for results and errors of calls.
    pub fn on_result(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&CallResult<'a>) + 'static) {
        self.on(9, wants, Box::new(move |x| f(&CallResult(x))))
    }
    /// Registers a function for methods that no other hook is for.
    pub fn on_message(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Message<'a>) + 'static) {
        self.on(10, wants, Box::new(move |x| f(&Message(x))))
    }
    /// Registers a function for responses before their headers are sent.
    pub fn on_http_response(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&HTTPResponse<'a>) + 'static) {
        self.on(11, wants, Box::new(move |x| f(&HTTPResponse(x))))
    }
    /// Registers a function for sessions that begin.
    pub fn on_session_start(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Session<'a>) + 'static) {
        self.on(12, wants, Box::new(move |x| f(&Session(x))))
    }
    /// Registers a function for sessions that end.
    pub fn on_session_end(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Session<'a>) + 'static) {
        self.on(13, wants, Box::new(move |x| f(&Session(x))))
    }
    /// Registers a function for copies of the record of each message.
    pub fn on_event(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Event<'a>) + 'static) {
        self.on(14, wants, Box::new(move |x| f(&Event(x))))
    }
    /// Registers a function for what clients and servers tell: progress, log messages, changes.
    pub fn on_notification(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Notification<'a>) + 'static) {
        self.on(15, wants, Box::new(move |x| f(&Notification(x))))
    }
    /// Registers a function for what servers ask clients, and for what these answer.
    pub fn on_question(&mut self, wants: Wants, mut f: impl for<'a> FnMut(&Question<'a>) + 'static) {
        self.on(16, wants, Box::new(move |x| f(&Question(x))))
    }
}
