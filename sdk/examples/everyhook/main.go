// Command everyhook is a guest with a function for every hook, and every
// operation in one of them. It is what the SDK of each language has as its
// example.
package main

import (
	"errors"

	weir "github.com/weir-edge/weir/sdk"
)

func main() {}

// group is who may delete, of the configuration {"group":"NAME"}.
var group string

func init() {
	weir.OnInit(func(s *weir.Setup) error {
		if group = s.Config.Get("group").Text(); group == "" {
			return errors.New("group is missing: name the group that may delete")
		}
		weir.Info(s.Name + " is ready")
		if s.Granted("claims") {
			weir.OnCall(whoami, weir.Tools("whoami"), weir.Claims("/department"))
		}
		return nil
	})
	weir.OnHTTPRequest(httpRequest, weir.Headers("x-key"))
	weir.OnAuthenticate(authenticate, weir.Headers("x-api-key"))
	weir.OnIdentity(identity)
	weir.OnTools(tools, weir.VariesBy(weir.ByTenant))
	weir.OnPrompts(prompts)
	weir.OnPrompts(oldPrompts, weir.Tools("old_*"))
	weir.OnResources(resources)
	weir.OnCall(deletes, weir.Tools("delete_*"))
	weir.OnCall(reads, weir.Tools("read_*"), weir.Pointers("/path", "/verbose"))
	weir.OnCall(moves, weir.Tools("old"), weir.Backends("b1"))
	weir.OnOutgoing(outgoing, weir.VariesBy(weir.ByTenant), weir.CacheFor(60_000))
	weir.OnBackendRequest(backendRequest)
	weir.OnResult(result, weir.Pointers("/content/0/text"), weir.Hold())
	weir.OnMessage(message, weir.Methods("resources/*", "prompts/get"))
	weir.OnHTTPResponse(httpResponse)
	weir.OnSessionStart(sessionStart)
	weir.OnSessionEnd(sessionEnd)
	weir.OnEvent(event)
	weir.OnNotification(notification, weir.Methods("notifications/*"))
	weir.OnQuestion(question, weir.Pointers("/message"))
}

func httpRequest(r *weir.HTTPRequest) {
	switch {
	case r.Path().HasPrefix("/health"):
		r.Respond(`{"ok":true}`)
	case r.Path().HasPrefix("/private") && r.Header("x-key").Empty():
		r.Deny(weir.Unauthenticated, "a key is wanted")
	default:
		r.SetHeader("x-seen", r.Path().String())
		r.DelHeader("x-debug")
		r.SetAttr("path", weir.Text(r.Path().String()))
	}
}

func authenticate(c *weir.Credential) {
	switch key := c.Header("x-api-key"); {
	case key.Empty():
		c.Challenge(`Key realm="demo"`)
	case key.Is("open sesame"):
		c.SetPrincipal(weir.Identity{
			Subject: "robot", Tenant: "acme", Issuer: "urn:keys",
			Groups: []string{"machines", "night"}, Roles: []string{"reader"}, Scopes: []string{"tools:read"},
		})
	default:
		c.Deny(weir.Unauthenticated, "no such key")
	}
}

func identity(t *weir.VerifiedToken) {
	subject := t.Claims().At("/sub").Text()
	if subject == "" {
		t.Deny(weir.Unauthenticated, "a token without a subject")
		return
	}
	who := weir.Identity{Subject: subject, Tenant: t.Claims().At("/tenant").Text(), Issuer: t.Issuer().String()}
	for role := range t.Claims().At("/realm_access/roles").Array() {
		who.Groups = append(who.Groups, role.Text())
	}
	t.SetPrincipal(who)
	t.SetAttr("issuer", weir.Text(who.Issuer))
}

func tools(c *weir.Catalog) {
	for tool := range c.Items() {
		properties := tool.JSON().At("/inputSchema/properties")
		switch {
		case tool.Name().HasPrefix("internal_"):
			tool.Hide()
			continue
		case tool.Name().Is("raw"):
			tool.SetSchema(`{"type":"object"}`)
			tool.Patch("/icons", "[]")
		}
		tool.Rename(tool.Backend().String() + "_" + tool.Name().String())
		tool.Describe("Of " + tool.Backend().String() + ": " + tool.JSON().Get("description").Text())
		if tool.Name().HasPrefix("get_") {
			tool.Annotate("readOnlyHint", weir.True)
		}
		if properties.Get("region").Exists() {
			tool.PinArg("/region", weir.Text("eu-"+c.Principal().Tenant().String()))
		}
		if properties.Get("debug").Exists() {
			tool.HideArg("/debug")
		}
	}
}

func prompts(c *weir.Catalog) {
	for prompt := range c.Items() {
		prompt.Rename("p_" + prompt.Name().String())
	}
}

func oldPrompts(c *weir.Catalog) {
	for prompt := range c.Items() {
		prompt.Hide()
	}
}

func resources(c *weir.Catalog) {
	for resource := range c.Items() {
		resource.Describe("At " + resource.JSON().Get("uri").Text())
	}
}

func deletes(c *weir.Call) {
	if !c.Principal().InGroup(group) {
		c.DenyWith(weir.Forbidden, "only "+group+" may delete", `{"tool":`+weir.Text(c.Tool().String())+`}`)
		return
	}
	subject := c.Principal().Subject().String()
	c.Set("/dry_run", weir.True)
	c.SetHeader("x-user", subject)
	c.DelHeader("x-debug")
	c.SetAttr("deleting", weir.Text(c.Tool().String()))
	c.LogField("session", c.Session().String())
	c.Carry(subject)
}

func whoami(c *weir.Call) {
	c.Respond(weir.TextResult(c.Claim(0).Text() + " in " + c.Attr("team").Text()))
}

func reads(c *weir.Call) {
	path, verbose := c.Selected(0), c.Selected(1)
	if path.Is("/etc/passwd") {
		c.Respond(weir.TextResult(`"no"`))
		return
	}
	if path.IsText() {
		c.Set("/path", weir.Text("/srv"+path.Text()))
	}
	if verbose.Exists() {
		c.Del("/verbose")
	}
}

func moves(c *weir.Call) {
	c.SetTool("new")
	c.SetBackend("b2")
	c.SetArguments(`{"was":` + c.Arguments().JSON() + `}`)
}

func outgoing(o *weir.Outgoing) {
	tenant := o.Principal().Tenant()
	if tenant.Empty() {
		o.Deny(weir.Forbidden, "no tenant")
		return
	}
	o.UseCredential(o.Backend().String() + "-" + tenant.String())
	o.SetHeader("x-tenant", tenant.String())
}

func backendRequest(r *weir.BackendRequest) {
	r.SetHeader("x-request-id", string(r.ID().JSON()))
	r.DelHeader("x-internal")
}

func result(r *weir.CallResult) {
	if r.Error().Exists() {
		r.LogField("failed", r.Error().Get("message").Text())
		r.Respond(weir.ErrorResult("try again later"))
		return
	}
	if text := r.Selected(0); text.View().Contains("secret") {
		r.Redact("/content/0/text", "[redacted]")
	}
	index := 0
	for block := range r.Result().Get("content").Array() {
		if block.Get("type").Is("image") {
			r.DropContent(index)
		}
		index++
	}
	if !r.Carried().Empty() {
		r.Patch("/_meta/for", weir.Text(r.Carried().String()))
	}
}

func message(m *weir.Message) {
	if m.Arguments().Get("uri").View().HasPrefix(`"file:`) {
		m.Deny(weir.NotFound, "there are no files")
	}
	if m.Result().Exists() {
		m.Patch("/ttl", weir.Int(-60))
		m.Redact("/token", "")
	}
}

func httpResponse(r *weir.HTTPResponse) {
	if r.Status() >= 500 {
		r.SetHeader("retry-after", "1")
		r.DelHeader("server")
	}
}

func sessionStart(s *weir.Session) {
	if s.Principal().Tenant().Is("late") {
		s.Deny(weir.Limited, "come back tomorrow")
		return
	}
	s.SetAttr("since", weir.Int(int64(s.Now())))
}

func sessionEnd(s *weir.Session) { s.SetAttr("ended", weir.True) }

func event(e *weir.Event) { weir.Info("seen: " + e.Record().Get("method").Text()) }

func notification(n *weir.Notification) {
	switch {
	case !n.FromServer():
		n.Set("/_meta", `{"by":`+weir.Text(n.Principal().Subject().String())+`}`)
	case n.Params().Get("level").Is("debug"):
		n.Deny(weir.Forbidden, "too much")
	case n.Params().Get("message").View().Contains("secret"):
		n.Redact("/message", "[redacted]")
		n.LogField("during", n.Tool().String())
	default:
		n.Del("/_meta")
	}
}

func question(q *weir.Question) {
	switch {
	case q.FromServer() && q.Selected(0).View().Contains("password"):
		q.Deny(weir.Forbidden, "no passwords")
	case q.FromServer():
		q.Set("/_meta", `{"from":`+weir.Text(q.Backend().String())+`}`)
	case q.Error().Exists():
		q.LogField("refused", q.Params().Get("message").Text())
	case q.Result().Get("action").Is("accept"):
		q.Redact("/content/card", "[redacted]")
		q.Patch("/content/checked", weir.True)
	}
}
