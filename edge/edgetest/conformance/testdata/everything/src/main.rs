//! The server that the conformance suite asks for, of 2025-11-25 and on standard streams: the
//! same program natively and in WebAssembly. It has one thread, which waits for the answers to
//! its own questions where it asks them.

use std::collections::VecDeque;
use std::io::{self, BufRead, Write};
use std::thread::sleep;
use std::time::Duration;
use weir::{quote, Value};

const IMAGE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";
const SOUND: &str = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=";

const OBJECT: &str = r#"{"type":"object"}"#;

/// The schema whose words the suite looks for in the list.
const SCHEMA: &str = r##"{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object",
"$defs":{"address":{"$anchor":"addressDef","type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}}}},
"properties":{"name":{"type":"string"},"address":{"$ref":"#/$defs/address"},"contactMethod":{"type":"string","enum":["phone","email"]},"phone":{"type":"string"},"email":{"type":"string"}},
"allOf":[{"anyOf":[{"required":["phone"]},{"required":["email"]}]}],
"if":{"properties":{"contactMethod":{"const":"phone"}},"required":["contactMethod"]},"then":{"required":["phone"]},"else":{"required":["email"]},"additionalProperties":false}"##;

const TOOLS: [(&str, &str); 13] = [
    ("test_simple_text", OBJECT),
    ("test_image_content", OBJECT),
    ("test_audio_content", OBJECT),
    ("test_embedded_resource", OBJECT),
    ("test_multiple_content_types", OBJECT),
    ("test_tool_with_logging", OBJECT),
    ("test_tool_with_progress", OBJECT),
    ("test_error_handling", OBJECT),
    ("test_sampling", r#"{"type":"object","properties":{"prompt":{"type":"string"}},"required":["prompt"]}"#),
    ("test_elicitation", r#"{"type":"object","properties":{"message":{"type":"string"}},"required":["message"]}"#),
    ("test_elicitation_sep1034_defaults", OBJECT),
    ("test_elicitation_sep1330_enums", OBJECT),
    ("json_schema_2020_12_tool", SCHEMA),
];

const NAME: &str = r#"{"type":"object","properties":{"username":{"type":"string","description":"Your preferred username"}},"required":["username"]}"#;
const DEFAULTS: &str = r#"{"type":"object","properties":{"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},"verified":{"type":"boolean","default":true}}}"#;
const ENUMS: &str = r#"{"type":"object","properties":{
"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]}}}}"#;

const PROMPTS: &str = r#"{"prompts":[{"name":"test_simple_prompt","description":"A simple prompt"},
{"name":"test_prompt_with_arguments","description":"A prompt with arguments","arguments":[{"name":"arg1","description":"First","required":true},{"name":"arg2","description":"Second","required":true}]},
{"name":"test_prompt_with_embedded_resource","description":"A prompt with a resource","arguments":[{"name":"resourceUri","description":"The resource","required":true}]},
{"name":"test_prompt_with_image","description":"A prompt with an image"}]}"#;

const RESOURCES: &str = r#"{"resources":[{"uri":"test://static-text","name":"text","description":"A text","mimeType":"text/plain"},
{"uri":"test://static-binary","name":"binary","description":"An image","mimeType":"image/png"},
{"uri":"test://watched-resource","name":"watched","description":"One to subscribe to","mimeType":"text/plain"}]}"#;

#[cfg(target_os = "wasi")]
#[link(wasm_import_module = "wasi_snapshot_preview1")]
extern "C" {
    fn fd_fdstat_set_flags(fd: u32, flags: u16) -> u16;
}

/// Its two streams, and what has come meanwhile while it waited for an answer.
struct Peer {
    input: io::StdinLock<'static>,
    waiting: VecDeque<String>,
    asked: u64,
}

impl Peer {
    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        match self.input.read_until(b'\n', &mut line) {
            Ok(n) if n > 0 => Some(String::from_utf8_lossy(&line).into_owned()),
            _ => None,
        }
    }

    fn say(&self, message: &str) {
        let mut out = io::stdout().lock();
        // A reader that has gone closes the input, too, which ends the program.
        let _ = out.write_all(message.replace('\n', "").as_bytes());
        let _ = out.write_all(b"\n");
        let _ = out.flush();
    }

    fn notify(&self, method: &str, params: &str) {
        self.say(&format!(r#"{{"jsonrpc":"2.0","method":"{}","params":{}}}"#, method, params));
    }

    /// Asks the client, and returns the text of its answer.
    fn ask(&mut self, method: &str, params: &str) -> String {
        self.asked += 1;
        let id = self.asked;
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}}"#, id, method, params));
        while let Some(line) = self.line() {
            let m = Value::parse(&line);
            if !m.get("method").exists() && m.get("id").int() == Some(id as i64) {
                return line;
            }
            self.waiting.push_back(line);
        }
        String::new()
    }

    /// Answers a message; a notification has none.
    fn answer(&mut self, line: &str) {
        let m = Value::parse(line);
        let id = m.get("id");
        let method = m.get("method").text().into_owned();
        if !id.exists() || method.is_empty() {
            return;
        }
        let result = self.result(&method, m.get("params"));
        let what = match result {
            Ok(r) => format!(r#""result":{}"#, r),
            Err((code, text)) => format!(r#""error":{{"code":{},"message":{}}}"#, code, quote(&text)),
        };
        self.say(&format!(r#"{{"jsonrpc":"2.0","id":{},{}}}"#, id.json().trim(), what));
    }

    fn result(&mut self, method: &str, params: Value) -> Result<String, (i32, String)> {
        Ok(match method {
            "initialize" => r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"prompts":{},"resources":{"subscribe":true},"logging":{},"completions":{}},"serverInfo":{"name":"everything","version":"1.0.0"}}"#.into(),
            "ping" | "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe" => "{}".into(),
            "completion/complete" => r#"{"completion":{"values":["paris","park"],"total":2,"hasMore":false}}"#.into(),
            "prompts/list" => PROMPTS.into(),
            "resources/list" => RESOURCES.into(),
            "resources/templates/list" => r#"{"resourceTemplates":[{"uriTemplate":"test://template/{id}/data","name":"template","description":"By id","mimeType":"application/json"}]}"#.into(),
            "tools/list" => {
                let all: Vec<String> = TOOLS.iter().map(|(name, schema)| format!(r#"{{"name":"{}","description":"{0}","inputSchema":{}}}"#, name, schema)).collect();
                format!(r#"{{"tools":[{}]}}"#, all.join(","))
            }
            "tools/call" => return self.tool(params),
            "prompts/get" => return prompt(params),
            "resources/read" => return resource(&params.get("uri").text()),
            _ => return Err((-32601, format!("there is no method {}", method))),
        })
    }

    fn tool(&mut self, params: Value) -> Result<String, (i32, String)> {
        let arguments = params.get("arguments");
        let picture = format!(r#"{{"type":"image","data":"{}","mimeType":"image/png"}}"#, IMAGE);
        let part = r#"{"type":"resource","resource":{"uri":"test://embedded-resource","mimeType":"text/plain","text":"This is an embedded resource"}}"#;
        let name = params.get("name").text().into_owned();
        let content = match name.as_str() {
            "test_simple_text" => text("This is a simple text response for testing."),
            "test_image_content" => picture,
            "test_audio_content" => format!(r#"{{"type":"audio","data":"{}","mimeType":"audio/wav"}}"#, SOUND),
            "test_embedded_resource" => part.into(),
            "test_multiple_content_types" => [text("This is text content"), picture, part.into()].join(","),
            "test_tool_with_logging" => {
                for what in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
                    self.notify("notifications/message", &format!(r#"{{"level":"info","data":"{}"}}"#, what));
                    sleep(Duration::from_millis(50));
                }
                text("Tool with logging executed successfully")
            }
            "test_tool_with_progress" => {
                let token = params.at("/_meta/progressToken");
                for progress in [0, 50, 100] {
                    if token.exists() {
                        self.notify("notifications/progress", &format!(r#"{{"progressToken":{},"progress":{},"total":100}}"#, token.json().trim(), progress));
                    }
                    sleep(Duration::from_millis(50));
                }
                text(token.json().trim())
            }
            "test_error_handling" => return Ok(format!(r#"{{"content":[{}],"isError":true}}"#, text("This tool intentionally returns an error for testing"))),
            "test_sampling" => {
                let said = self.ask("sampling/createMessage", &format!(r#"{{"messages":[{{"role":"user","content":{}}}],"maxTokens":100}}"#, text(&arguments.get("prompt").text())));
                text(&format!("LLM response: {}", Value::parse(&said).at("/result/content/text").text()))
            }
            "test_elicitation" => self.elicit(&arguments.get("message").text(), NAME),
            "test_elicitation_sep1034_defaults" => self.elicit("Test defaults for primitives", DEFAULTS),
            "test_elicitation_sep1330_enums" => self.elicit("Test enum schemas", ENUMS),
            "json_schema_2020_12_tool" => text(arguments.json()),
            _ => return Err((-32602, format!("there is no tool {}", name))),
        };
        Ok(format!(r#"{{"content":[{}]}}"#, content))
    }

    fn elicit(&mut self, message: &str, schema: &str) -> String {
        let said = self.ask("elicitation/create", &format!(r#"{{"message":{},"requestedSchema":{}}}"#, quote(message), schema));
        let m = Value::parse(&said);
        text(&format!("Elicitation result: action={}, content={}", m.at("/result/action").text(), m.at("/result/content").json()))
    }
}

fn text(s: &str) -> String {
    format!(r#"{{"type":"text","text":{}}}"#, quote(s))
}

fn prompt(params: Value) -> Result<String, (i32, String)> {
    let arguments = params.get("arguments");
    let argument = |name| arguments.get(name).text().into_owned();
    let name = params.get("name").text().into_owned();
    let contents = match name.as_str() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
        "test_prompt_with_arguments" => vec![text(&format!("Prompt with arguments: arg1='{}', arg2='{}'", argument("arg1"), argument("arg2")))],
        "test_prompt_with_embedded_resource" => vec![
            format!(r#"{{"type":"resource","resource":{{"uri":{},"mimeType":"text/plain","text":"Embedded resource content for testing."}}}}"#, quote(&argument("resourceUri"))),
            text("Please process the embedded resource above."),
        ],
        "test_prompt_with_image" => vec![format!(r#"{{"type":"image","data":"{}","mimeType":"image/png"}}"#, IMAGE), text("Please analyze the image above.")],
        _ => return Err((-32602, format!("there is no prompt {}", name))),
    };
    let messages: Vec<String> = contents.iter().map(|c| format!(r#"{{"role":"user","content":{}}}"#, c)).collect();
    Ok(format!(r#"{{"messages":[{}]}}"#, messages.join(",")))
}

fn resource(uri: &str) -> Result<String, (i32, String)> {
    let what = match uri {
        "test://static-text" => r#""mimeType":"text/plain","text":"This is the content of the static text resource.""#.into(),
        "test://static-binary" => format!(r#""mimeType":"image/png","blob":"{}""#, IMAGE),
        "test://watched-resource" => r#""mimeType":"text/plain","text":"Watched resource content""#.into(),
        _ => match uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data")) {
            Some(id) => format!(r#""mimeType":"application/json","text":{}"#, quote(&format!(r#"{{"id":"{}","templateTest":true,"data":"Data for ID: {0}"}}"#, id))),
            None => return Err((-32002, format!("there is no resource {}", uri))),
        },
    };
    Ok(format!(r#"{{"contents":[{{"uri":{},{}}}]}}"#, quote(uri), what))
}

fn main() {
    // Reads of standard input wait: those of an instance do not at first.
    #[cfg(target_os = "wasi")]
    unsafe {
        fd_fdstat_set_flags(0, 0);
    }
    let mut peer = Peer { input: io::stdin().lock(), waiting: VecDeque::new(), asked: 0 };
    while let Some(line) = peer.waiting.pop_front().or_else(|| peer.line()) {
        peer.answer(&line);
    }
}
