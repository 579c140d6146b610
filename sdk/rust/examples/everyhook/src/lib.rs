//! A guest with a function for every hook, and every operation in one of them.

use weir::{error_result, log, quote, text_result, By, Code, Guest, Identity, Level, Setup, Wants};

weir::guest!(start);

fn start(g: &mut Guest, s: &Setup) -> Result<(), String> {
    // Who may delete, of the configuration {"group":"NAME"}.
    let group = s.config.get("group").text().into_owned();
    if group.is_empty() {
        return Err("group is missing: name the group that may delete".into());
    }
    log(Level::Info, &[s.name, " is ready"].concat());

    g.on_http_request(Wants::new().headers(&["x-key"]), |r| {
        if r.path().starts_with("/health") {
            r.respond(r#"{"ok":true}"#);
        } else if r.path().starts_with("/private") && r.header("x-key").is_empty() {
            r.deny(Code::Unauthenticated, "a key is wanted");
        } else {
            r.set_header("x-seen", r.path());
            r.del_header("x-debug");
            r.set_attr("path", &quote(r.path()));
        }
    });

    g.on_authenticate(Wants::new().headers(&["x-api-key"]), |c| match c.header("x-api-key") {
        "" => c.challenge(r#"Key realm="demo""#),
        "open sesame" => c.set_principal(&Identity {
            subject: "robot".into(),
            tenant: "acme".into(),
            issuer: "urn:keys".into(),
            groups: vec!["machines".into(), "night".into()],
            roles: vec!["reader".into()],
            scopes: vec!["tools:read".into()],
        }),
        _ => c.deny(Code::Unauthenticated, "no such key"),
    });

    g.on_identity(Wants::new(), |t| {
        let subject = t.claims().at("/sub").text();
        if subject.is_empty() {
            t.deny(Code::Unauthenticated, "a token without a subject");
            return;
        }
        t.set_principal(&Identity {
            subject: subject.into(),
            tenant: t.claims().at("/tenant").text().into(),
            issuer: t.issuer().into(),
            groups: t.claims().at("/realm_access/roles").array().map(|r| r.text().into()).collect(),
            ..Identity::default()
        });
        t.set_attr("issuer", &quote(t.issuer()));
    });

    g.on_tools(Wants::new().varies_by(By::Tenant), |c| {
        for tool in c.items() {
            let properties = tool.json().at("/inputSchema/properties");
            if tool.name().starts_with("internal_") {
                tool.hide();
                continue;
            }
            if tool.name() == "raw" {
                tool.set_schema(r#"{"type":"object"}"#);
                tool.patch("/icons", "[]");
            }
            tool.rename(&[tool.backend(), "_", tool.name()].concat());
            tool.describe(&["Of ", tool.backend(), ": ", &tool.json().get("description").text()].concat());
            if tool.name().starts_with("get_") {
                tool.annotate("readOnlyHint", "true");
            }
            if properties.get("region").exists() {
                tool.pin_arg("/region", &quote(&["eu-", c.principal().tenant()].concat()));
            }
            if properties.get("debug").exists() {
                tool.hide_arg("/debug");
            }
        }
    });

    g.on_prompts(Wants::new(), |c| c.items().for_each(|p| p.rename(&["p_", p.name()].concat())));
    g.on_prompts(Wants::new().tools(&["old_*"]), |c| c.items().for_each(|p| p.hide()));

    g.on_resources(Wants::new(), |c| {
        c.items().for_each(|r| r.describe(&["At ", &r.json().get("uri").text()].concat()))
    });

    g.on_call(Wants::new().tools(&["delete_*"]), move |c| {
        if !c.principal().in_group(&group) {
            let data = ["{\"tool\":", &quote(c.tool()), "}"].concat();
            c.deny_with(Code::Forbidden, &["only ", &group, " may delete"].concat(), &data);
            return;
        }
        let subject = c.principal().subject();
        c.set("/dry_run", "true");
        c.set_header("x-user", subject);
        c.del_header("x-debug");
        c.set_attr("deleting", &quote(c.tool()));
        c.log_field("session", c.session());
        c.carry(subject.as_bytes());
    });

    g.on_call(Wants::new().tools(&["read_*"]).pointers(&["/path", "/verbose"]), |c| {
        let (path, verbose) = (c.selected(0), c.selected(1));
        if path.is("/etc/passwd") {
            c.respond(&text_result("\"no\""));
            return;
        }
        if path.is_text() {
            c.set("/path", &quote(&["/srv", &path.text()].concat()));
        }
        if verbose.exists() {
            c.del("/verbose");
        }
    });

    g.on_call(Wants::new().tools(&["old"]).backends(&["b1"]), |c| {
        c.set_tool("new");
        c.set_backend("b2");
        c.set_arguments(&["{\"was\":", c.arguments().json(), "}"].concat());
    });

    if s.granted("claims") {
        g.on_call(Wants::new().tools(&["whoami"]).claims(&["/department"]), |c| {
            let says = [&c.claim(0).text(), " in ", &c.attr("team").text()].concat();
            c.respond(&text_result(&says));
        });
    }

    g.on_outgoing(Wants::new().varies_by(By::Tenant).cache_for(60_000), |o| {
        let tenant = o.principal().tenant();
        if tenant.is_empty() {
            o.deny(Code::Forbidden, "no tenant");
            return;
        }
        o.use_credential(&[o.backend(), "-", tenant].concat());
        o.set_header("x-tenant", tenant);
    });

    g.on_backend_request(Wants::new(), |r| {
        r.set_header("x-request-id", r.id().json());
        r.del_header("x-internal");
    });

    g.on_result(Wants::new().pointers(&["/content/0/text"]).hold(), |r| {
        if r.error().exists() {
            r.log_field("failed", &r.error().get("message").text());
            r.respond(&error_result("try again later"));
            return;
        }
        if r.selected(0).text().contains("secret") {
            r.redact("/content/0/text", "[redacted]");
        }
        for (index, block) in r.result().get("content").array().enumerate() {
            if block.get("type").is("image") {
                r.drop_content(index);
            }
        }
        if !r.carried().is_empty() {
            r.patch("/_meta/for", &quote(&String::from_utf8_lossy(r.carried())));
        }
    });

    g.on_message(Wants::new().methods(&["resources/*", "prompts/get"]), |m| {
        if m.arguments().get("uri").text().starts_with("file:") {
            m.deny(Code::NotFound, "there are no files");
        }
        if m.result().exists() {
            m.patch("/ttl", "-60");
            m.redact("/token", "");
        }
    });

    g.on_http_response(Wants::new(), |r| {
        if r.status() >= 500 {
            r.set_header("retry-after", "1");
            r.del_header("server");
        }
    });

    g.on_session_start(Wants::new(), |s| {
        if s.principal().tenant() == "late" {
            s.deny(Code::Limited, "come back tomorrow");
            return;
        }
        s.set_attr("since", &s.now().to_string());
    });

    g.on_session_end(Wants::new(), |s| s.set_attr("ended", "true"));

    g.on_event(Wants::new(), |e| log(Level::Info, &["seen: ", &e.record().get("method").text()].concat()));

    g.on_notification(Wants::new().methods(&["notifications/*"]), |n| {
        if !n.from_server() {
            n.set("/_meta", &["{\"by\":", &quote(n.principal().subject()), "}"].concat());
        } else if n.params().get("level").is("debug") {
            n.deny(Code::Forbidden, "too much");
        } else if n.params().get("message").text().contains("secret") {
            n.redact("/message", "[redacted]");
            n.log_field("during", n.tool());
        } else {
            n.del("/_meta");
        }
    });

    g.on_question(Wants::new().pointers(&["/message"]), |q| {
        if q.from_server() && q.selected(0).text().contains("password") {
            q.deny(Code::Forbidden, "no passwords");
        } else if q.from_server() {
            q.set("/_meta", &["{\"from\":", &quote(q.backend()), "}"].concat());
        } else if q.error().exists() {
            q.log_field("refused", &q.params().get("message").text());
        } else if q.result().get("action").is("accept") {
            q.redact("/content/card", "[redacted]");
            q.patch("/content/checked", "true");
        }
    });
    Ok(())
}
