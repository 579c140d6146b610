//! The server in WebAssembly that is measured: it answers as the backend over HTTP does.

use weir::server::{Server, Tool};
use weir::Value;

const SERVER: Server = Server {
    name: "echo",
    version: "1.0.0",
    tools: &[Tool { name: "echo", description: "Says it again.", schema: r#"{"type":"object"}"#, call: echo }],
};

fn echo(arguments: &Value) -> Result<String, String> {
    Ok(format!("{} {}", arguments.get("text").text(), "x".repeat(100)))
}

fn main() {
    if let Err(e) = SERVER.run() {
        eprintln!("{}", e);
        std::process::exit(1);
    }
}
