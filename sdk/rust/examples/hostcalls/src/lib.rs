//! A guest that calls every function of the host.

use weir::{Failure, Fetch, Guest, Level, Setup, Wants};

weir::guest!(start);

const MINUTE: i64 = 60_000;
const JUDGE: &str = "https://api.example/judge?x=1";

fn start(g: &mut Guest, s: &Setup) -> Result<(), String> {
    for grant in ["random", "kv", "metrics", "keys", "http", "tools", "events"] {
        if !s.granted(grant) {
            return Err([grant, " is not granted"].concat());
        }
    }
    g.on_call(Wants::new().pointers(&["/text"]).blocking(), |c| {
        let said = answer(c.tool(), &c.selected(0).text()).unwrap_or_else(|e| ["error: ", &e].concat());
        c.respond(&weir::text_result(&said));
    });
    Ok(())
}

fn hex(sum: [u8; 32]) -> String {
    sum.iter().flat_map(|b| [b >> 4, b & 15]).map(|d| b"0123456789abcdef"[d as usize] as char).collect()
}

fn answer(tool: &str, text: &str) -> Result<String, String> {
    said(tool, text).unwrap_or_else(|| Err("no such tool".into()))
}

fn said(tool: &str, text: &str) -> Option<Result<String, String>> {
    let nothing = |r: Result<(), Failure>| r.map(|()| String::new());
    let got = match tool {
        "give up" => panic!("given up on {}", text),
        "count" => weir::kv_add("calls", 1, MINUTE).map(|n| n.to_string()),
        "remember" => nothing(weir::kv_set("note", text.as_bytes(), MINUTE)),
        "recall" => weir::kv_get("note").map(|b| String::from_utf8_lossy(&b).into_owned()),
        "forever" => nothing(weir::kv_set("note", b"", 365 * 24 * 60 * MINUTE)),
        "digest" => Ok(hex(weir::sha256(text.as_bytes()))),
        "sign" => weir::hmac("sign", text.as_bytes()).map(hex),
        "sign with another" => weir::hmac("other", b"").map(hex),
        "random" => {
            let (mut one, mut two) = ([0; 32], [0; 32]);
            weir::random(&mut one).and_then(|()| weir::random(&mut two)).map(|()| (one != two).to_string())
        }
        "too random" => nothing(weir::random(&mut [0; 5000])),
        "measure" => nothing(weir::gauge("level", 7).and_then(|()| weir::count("asked", 2))),
        "measure badly" => nothing(weir::count("Asked!", 2)),
        "time" => {
            let before = weir::monotonic();
            Ok((weir::now_millis() > 1_600_000_000_000 && weir::monotonic() >= before).to_string())
        }
        "log" => {
            for (level, mark) in [(Level::Debug, "d "), (Level::Info, "i "), (Level::Warn, "w "), (Level::Error, "e ")] {
                weir::log(level, &[mark, text].concat());
            }
            Ok((weir::log_level() as u32).to_string())
        }
        "fetch" => {
            let q = Fetch { method: "POST", url: JUDGE, headers: &[("x-say", "hello")], body: text.as_bytes(), millis: 2000 };
            weir::fetch(&q).map(|a| [&a.status.to_string(), " ", a.header("x-kind"), " ", &String::from_utf8_lossy(&a.body)].concat())
        }
        "fetch size" => weir::fetch(&Fetch { method: "POST", url: JUDGE, ..Fetch::default() }).map(|a| a.body.len().to_string()),
        "fetch elsewhere" => weir::fetch(&Fetch { url: "https://elsewhere.example/", ..Fetch::default() }).map(|a| a.status.to_string()),
        "tool" => weir::call_tool(text, "{\"deep\":true}").map(|a| {
            if a.error().exists() {
                return ["failed: ", &a.error().get("message").text()].concat();
            }
            a.result().at("/content/0/text").text().into_owned()
        }),
        "emit" => nothing(weir::emit("seen", &["{\"text\":", &weir::quote(text), "}"].concat())),
        "emit badly" => nothing(weir::emit("Seen!", "")),
        _ => return None,
    };
    Some(got.map_err(|e| e.to_string()))
}
