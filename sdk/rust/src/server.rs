//! MCP servers of functions, as programs that speak on standard input and output, one message
//! a line (2025-11-25, basic/transports, stdio): `cargo build --release --target wasm32-wasi`
//! makes a module of one that `weir run` starts.

use crate::json::{error_result, quote, text_result, Value};
use std::io::{self, BufRead, Write};

/// A function that clients may call.
pub struct Tool {
    pub name: &'static str,
    pub description: &'static str,
    /// The JSON Schema of its arguments, an object.
    pub schema: &'static str,
    /// Is called with the arguments as the client sent them. The error is for the model that
    /// asked: it may try again.
    pub call: fn(&Value) -> Result<String, String>,
}

/// An MCP server.
pub struct Server {
    pub name: &'static str,
    pub version: &'static str,
    pub tools: &'static [Tool],
}

const REVISION: &str = "2025-11-25";
const REVISIONS: [&str; 4] = [REVISION, "2025-06-18", "2025-03-26", "2024-11-05"];

#[cfg(target_os = "wasi")]
#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn fd_fdstat_set_flags(fd: u32, flags: u16) -> u16;
}

/// Has reads of standard input wait: that of an instance in Weir does not at first.
fn wait_for_input() {
    #[cfg(target_os = "wasi")]
    unsafe {
        fd_fdstat_set_flags(0, 0);
    }
}

impl Server {
    /// Serves standard input and output until their end.
    pub fn run(&self) -> io::Result<()> {
        wait_for_input();
        let out = io::stdout();
        self.serve(io::stdin().lock(), out.lock())
    }

    /// Serves one client on other streams.
    pub fn serve<R: BufRead, W: Write>(&self, mut input: R, mut out: W) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let text = String::from_utf8_lossy(&line);
            if text.trim().is_empty() {
                continue;
            }
            if let Some(answer) = self.answer(&text) {
                out.write_all(answer.as_bytes())?;
                out.write_all(b"\n")?;
                out.flush()?;
            }
        }
    }

    /// The answer to a message; none to a notification.
    fn answer(&self, text: &str) -> Option<String> {
        let m = Value::parse(text);
        if !m.is_object() {
            return Some(fault("null", -32700, "that is no JSON of a message"));
        }
        let id = m.get("id");
        let method = m.get("method").text();
        if !id.exists() || method.is_empty() {
            return None; // a notification, or an answer that nobody waits for
        }
        let id = id.json().trim();
        let params = m.get("params");
        let result = match method.as_ref() {
            "initialize" => {
                let asked = params.get("protocolVersion").text();
                let spoken = REVISIONS.iter().find(|r| **r == asked).unwrap_or(&REVISION);
                format!(
                    r#"{{"protocolVersion":"{}","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":{},"version":{}}}}}"#,
                    spoken,
                    quote(self.name),
                    quote(self.version)
                )
            }
            "ping" => "{}".to_string(),
            "tools/list" => {
                let tools: Vec<String> = self
                    .tools
                    .iter()
                    .map(|t| format!(r#"{{"name":{},"description":{},"inputSchema":{}}}"#, quote(t.name), quote(t.description), t.schema))
                    .collect();
                format!(r#"{{"tools":[{}]}}"#, tools.join(","))
            }
            "tools/call" => {
                let name = params.get("name").text();
                match self.tools.iter().find(|t| t.name == name) {
                    None => return Some(fault(id, -32602, &format!("there is no tool {}", name))),
                    Some(tool) => match (tool.call)(&params.get("arguments")) {
                        Ok(text) => text_result(&text),
                        Err(text) => error_result(&text),
                    },
                }
            }
            _ => return Some(fault(id, -32601, &format!("there is no method {}", method))),
        };
        Some(format!(r#"{{"jsonrpc":"2.0","id":{},"result":{}}}"#, id, result))
    }
}

fn fault(id: &str, code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{},"message":{}}}}}"#, id, code, quote(message))
}
