package registry

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// What an entry may never set is refused by the name of the field (K02, V41), before
// anything else is said of it.
func TestK02Refused(t *testing.T) {
	oci := func(more string) string {
		return `"packages":[{"registryType":"oci","identifier":"a.example/x:1","transport":{"type":"stdio"}` + more + `}]`
	}
	arguments := func(words string) string { return `,"runtimeArguments":[` + words + `]` }
	variable := func(text string) string { return `,"environmentVariables":[` + text + `]` }
	extra := func(identifier, said string) string {
		return npm("") + `,"_meta":{"` + publisherMeta + `":{"` + publisher + `":{"` + identifier + `":` + said + `}}}`
	}
	image := func(identifier string) string {
		return `"packages":[{"registryType":"oci","identifier":"` + identifier + `","transport":{"type":"stdio"}}]`
	}
	remote := func(url string) string { return `"remotes":[{"type":"streamable-http","url":"` + url + `"}]` }
	for members, want := range map[string]string{
		// Options of what starts a server.
		oci(arguments(`{"type":"named","name":"--privileged"}`)):                                              "packages[0].runtimeArguments[0]: \"--privileged\": an entry may not say how its server is started",
		oci(arguments(`{"type":"named","name":"-v","value":"/:/host"}`)):                                      "packages[0].runtimeArguments[0]: \"-v /:/host\"",
		oci(arguments(`{"type":"named","name":"--mount","value":"type=bind,src={p},dst=/x"}`)):                "packages[0].runtimeArguments[0]: \"--mount type=bind,src={p},dst=/x\"",
		oci(arguments(`{"type":"positional","value":"--rm"},{"type":"positional","value":"--network=host"}`)): "packages[0].runtimeArguments[1]: \"--network=host\"",
		oci(arguments(`{"type":"named","name":"-e","value":"LD_PRELOAD=/x.so"}`)):                             "packages[0].runtimeArguments[0]: \"-e LD_PRELOAD=/x.so\"",
		npm(arguments(`{"type":"named","name":"--registry","value":"https://evil.example"}`)):                 "packages[0].runtimeArguments[0]: \"--registry https://evil.example\"",
		npm(arguments(`{"type":"named","name":"--image-verification","value":"disabled"}`)):                   "packages[0].runtimeArguments[0]: \"--image-verification disabled\"",
		npm(arguments(`{"type":"positional","valueHint":"x","isRequired":true}`)):                             "packages[0].runtimeArguments[0]: \"\"",
		npm(arguments(`{"type":"named","name":"-y","value":"--prefix=/"}`)):                                   "packages[0].runtimeArguments[0]: \"-y --prefix=/\"",

		// Variables.
		npm(variable(`{"name":"NODE_OPTIONS","value":"--require=/x.js"}`)):               "packages[0].environmentVariables[0]: NODE_OPTIONS: an entry may not have programs run code",
		npm(variable(`{"name":"A"},{"name":"LD_PRELOAD"}`)):                              "packages[0].environmentVariables[1]: LD_PRELOAD",
		npm(variable(`{"name":"ld_preload"}`)):                                           "packages[0].environmentVariables[0]: ld_preload",
		npm(variable(`{"name":"HTTPS_PROXY","value":"http://evil.example"}`)):            "packages[0].environmentVariables[0]: HTTPS_PROXY: an entry may not choose a proxy",
		npm(variable(`{"name":"no_proxy","default":"*"}`)):                               "packages[0].environmentVariables[0]: no_proxy: an entry may not choose a proxy",
		npm(variable(`{"name":"npm_config_registry","default":"https://evil.example"}`)): "packages[0].environmentVariables[0]: npm_config_registry: an entry may not say how its package is fetched",
		npm(variable(`{"name":"UV_INDEX_URL","value":"https://evil.example"}`)):          "packages[0].environmentVariables[0]: UV_INDEX_URL",
		npm(variable(`{"name":"PATH","value":"/tmp/x"}`)):                                "packages[0].environmentVariables[0]: PATH: an entry may not say where the programs",
		npm(variable(`{"name":"HOME","isRequired":true}`)):                               "packages[0].environmentVariables[0]: HOME: an entry may not say where the programs",
		npm(variable(`{"name":"node_extra_ca_certs","value":"/tmp/ca"}`)):                "packages[0].environmentVariables[0]: node_extra_ca_certs: an entry may not choose whom",
		npm(variable(`{"name":"A=B","value":"x"}`)):                                      "packages[0].environmentVariables[0]: \"A=B\" is no name of a variable",
		npm(variable(`{"name":"","value":"x"}`)):                                         "packages[0].environmentVariables[0]: \"\" is no name of a variable",

		// Permissions.
		extra("x-mcp", `{"permissions":{"privileged":true}}`):                                               "packages[0] permissions.privileged: an entry may not ask for privileges",
		extra("x-mcp", `{"permissions":{"network":{"inbound":{"allow_host":["evil.example"]}}}}`):           "packages[0] permissions.network.inbound.allow_host: an entry may not say under which names",
		extra("x-mcp", `{"permissions":{"network":{"outbound":{"allow_host":["10.0.0.5"]}}}}`):              "packages[0] permissions.network.outbound.allow_host[0]: \"10.0.0.5\": an entry may not lead its server to networks or private addresses",
		extra("x-mcp", `{"permissions":{"network":{"outbound":{"allow_host":["a.example","0.0.0.0/0"]}}}}`): "packages[0] permissions.network.outbound.allow_host[1]",
		extra("x-mcp", `{"permissions":{"network":{"mode":"host"}}}`):                                       "packages[0] permissions.network.mode: \"host\": an entry may not choose a network of the host",
		extra("x-mcp", `{"permissions":{"read":["/etc"]}}`):                                                 "packages[0] permissions.read[0]: \"/etc\": an entry may not mount what is of this machine",
		extra("x-mcp", `{"permissions":{"write":["volume://own:/data","/var/run/docker.sock"]}}`):           "packages[0] permissions.write[1]: \"/var/run/docker.sock\"",
		extra("x-mcp", `{"permissions":{"capabilities":["ALL"]}}`):                                          "packages[0] permissions: unknown field \"capabilities\"",

		// Packages.
		`"packages":[{"registryType":"npm","identifier":"--evil","transport":{"type":"stdio"}}]`:                                          "packages[0].identifier: \"--evil\" is no name of a package of npm",
		`"packages":[{"registryType":"npm","identifier":"x;rm -rf","transport":{"type":"stdio"}}]`:                                        "packages[0].identifier: \"x;rm -rf\"",
		`"packages":[{"registryType":"npm","identifier":"https://evil.example/x.tgz","transport":{"type":"stdio"}}]`:                      "packages[0].identifier",
		`"packages":[{"registryType":"npm","identifier":"../x","transport":{"type":"stdio"}}]`:                                            "packages[0].identifier",
		`"packages":[{"registryType":"npm","identifier":"x","version":"1 --registry=http://e","transport":{"type":"stdio"}}]`:             "packages[0].version",
		`"packages":[{"registryType":"npm","identifier":"x","version":"latest","transport":{"type":"stdio"}}]`:                            "packages[0].version: \"latest\" is no exact version",
		`"packages":[{"registryType":"npm","identifier":"x","version":"^1.0","transport":{"type":"stdio"}}]`:                              "packages[0].version: \"^1.0\" is no exact version",
		`"packages":[{"registryType":"npm","identifier":"x","registryBaseUrl":"https://evil.example","transport":{"type":"stdio"}}]`:      "packages[0].registryBaseUrl: \"https://evil.example\": an entry may not choose where packages come from",
		`"packages":[{"registryType":"pypi","identifier":"x @ git+https://evil.example/x","transport":{"type":"stdio"}}]`:                 "packages[0].identifier",
		`"packages":[{"registryType":"pypi","identifier":"--index-url=evil","transport":{"type":"stdio"}}]`:                               "packages[0].identifier",
		`"packages":[{"registryType":"oci","identifier":"-v","transport":{"type":"stdio"}}]`:                                              "packages[0].identifier: \"-v\" is no image",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://ghcr.io","identifier":"quay.io/a/x","transport":{"type":"stdio"}}]`: "packages[0].registryBaseUrl: \"https://ghcr.io\" is another registry than the one in the identifier \"quay.io/a/x\"",
		`"packages":[{"registryType":"oci","registryBaseUrl":"http://ghcr.io","identifier":"a/x","transport":{"type":"stdio"}}]`:          "packages[0].registryBaseUrl: \"http://ghcr.io\" is no https URL of a registry of images",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://ghcr.io/b","identifier":"a/x","transport":{"type":"stdio"}}]`:       "packages[0].registryBaseUrl: \"https://ghcr.io/b\" is no https URL",
		`"packages":[{"registryType":"mcpb","identifier":"https://a.example/x.mcpb","transport":{"type":"stdio"}}]`:                       "packages[0].registryType: \"mcpb\": Weir starts packages of npm, pypi and oci",
		`"packages":[{"registryType":"nuget","identifier":"X","transport":{"type":"stdio"}}]`:                                             "packages[0].registryType: \"nuget\"",
		`"packages":[{"registryType":"command","identifier":"/bin/sh","transport":{"type":"stdio"}}]`:                                     "packages[0].registryType: \"command\"",
		`"packages":[{"identifier":"x","transport":{"type":"stdio"}}]`:                                                                    "packages[0].registryType: it says no type",
		`"packages":[{"registryType":"npm","identifier":"x","transport":{"type":"websocket"}}]`:                                           "packages[0].transport.type: \"websocket\"",
		`"packages":[{"registryType":"npm","identifier":"x","transport":{"type":"sse"}}]`:                                                 "packages[0].transport.url",
		`"command":"sh","args":["-c","id"]`: "command: \"sh\": an entry may not name a program of this machine",
		`"title":"x"`:                       "names nothing to start",

		// Registries of images, which are on the public internet.
		image("127.0.0.1:8080/x"):   "packages[0].identifier: \"127.0.0.1:8080/x\": its registry is not of the public internet",
		image("192.168.1.10/x:1"):   "its registry is not of the public internet",
		image("localhost/x"):        "its registry is not of the public internet",
		image("localhost:5000/a/x"): "its registry is not of the public internet",
		image("intranet:5000/x"):    "its registry is not of the public internet",
		image("169.254.169.254/x"):  "packages[0].identifier: \"169.254.169.254/x\": 169.254.169.254 is a link-local address",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://10.0.0.1:5000","identifier":"a/x","transport":{"type":"stdio"}}]`: "packages[0].identifier: \"10.0.0.1:5000/a/x\": its registry is not",

		// URLs, which lead to the public internet by https.
		remote("http://mcp.example.com/mcp"):            "remotes[0].url: \"http://mcp.example.com/mcp\": its scheme is http",
		remote("https://127.0.0.1/mcp"):                 "remotes[0].url: \"https://127.0.0.1/mcp\": its host is not of the public internet",
		remote("https://[::1]/mcp"):                     "its host is not of the public internet",
		remote("https://localhost:8080/mcp"):            "its host is not of the public internet",
		remote("https://10.1.2.3/mcp"):                  "its host is not of the public internet",
		remote("https://[::ffff:192.168.1.1]/mcp"):      "its host is not of the public internet",
		remote("https://intranet/mcp"):                  "its host is not of the public internet",
		remote("https://169.254.169.254/latest"):        "169.254.169.254 is a link-local address",
		remote("https://user:pass@mcp.example.com/mcp"): "it holds user information",
		remote("file:///etc/passwd"):                    "its scheme is not https",
		remote("https://mcp.example.com/{path}#x"):      "it holds a fragment",
		remote("javascript:alert(1)"):                   "its scheme is not https",
		remote(""):                                      "its scheme is not https",
		`"remotes":[{"type":"sse","url":"https://a.example","headers":[{"name":"A"},{"name":"X-Forwarded-For","value":"x"}]}]`: "remotes[0].headers[1]: X-Forwarded-For is set by Weir itself",
		`"remotes":[{"type":"stdio","url":"https://a.example"}]`:                                                               "remotes[0].type: \"stdio\" is neither streamable-http nor sse",
		`"remotes":[{"type":"sse","url":"https://a.example","headers":[{"name":"A: b\r\nC"}]}]`:                                "remotes[0].headers[0]",
	} {
		_, err := entryOf(t, members).Choose(rules)
		e := new(Error)
		if !errors.As(err, &e) || e.Kind != Refused || !strings.Contains(e.Error(), want) {
			t.Errorf("%s\n%s\nwant %s", members, said(err), want)
		}
		if err != nil && strings.Contains(err.Error(), "user:pass") && !strings.Contains(members, "user:pass") {
			t.Errorf("a password is shown: %s", err)
		}
	}
}

// What is harmless is no reason to refuse, and what needs containers is said to be later.
func TestForms(t *testing.T) {
	for members, want := range map[string]string{
		npm(""): "npm npx -y x-mcp@1.0.0",
		npm(`,"registryBaseUrl":"https://registry.npmjs.org/","runtimeHint":"npx","runtimeArguments":[{"type":"positional","value":"-y"}]`): "npm npx -y x-mcp@1.0.0",
		npm(`,"environmentVariables":[{"name":"HTTPS_PROXY","description":"The user's own"}]`):                                              "npm npx -y x-mcp@1.0.0",
		`"packages":[{"registryType":"pypi","identifier":"x-mcp","version":"1.0.0","transport":{"type":"stdio"}}]`:                          "pypi uvx x-mcp@1.0.0",
		`"packages":[{"registryType":"npm","identifier":"@a/b","transport":{"type":"stdio"}}]`:                                              "npm npx -y @a/b",
		`"remotes":[{"type":"sse","url":"https://mcp.example.com/sse"}]`:                                                                    "remote https://mcp.example.com/sse",
		// Where the registry of an image stands apart, it is that one's image and no other's.
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://ghcr.io","identifier":"a/x","version":"1.0.0","transport":{"type":"stdio"}}]`:            "oci ghcr.io/a/x:1.0.0",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://ghcr.io/","identifier":"ghcr.io/a/x:2","version":"1.0.0","transport":{"type":"stdio"}}]`: "oci ghcr.io/a/x:2",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://docker.io","identifier":"a/x","version":"1.0.0","transport":{"type":"stdio"}}]`:          "oci a/x:1.0.0",
		`"packages":[{"registryType":"oci","registryBaseUrl":"https://docker.io","identifier":"index.docker.io/a/x","transport":{"type":"stdio"}}]`:            "oci index.docker.io/a/x",
		// The first that is started is taken.
		`"packages":[{"registryType":"oci","identifier":"a.example/x","transport":{"type":"stdio"}}],"remotes":[{"type":"sse","url":"https://mcp.example.com/sse"}]`: "oci a.example/x",
	} {
		f, err := entryOf(t, members).Choose(rules)
		if err != nil || f.Type+" "+f.Text != want {
			t.Errorf("%s: %+v, %v; want %s", members, f, err, want)
		}
	}
	// A digest of a package's file is compared with nothing: the next one is taken, and a package alone says so.
	for _, kind := range []string{"npm", "pypi", "oci"} {
		digested := `"packages":[{"registryType":"` + kind + `","identifier":"x","version":"1.0.0","fileSha256":"` + strings.Repeat("ab", 32) + `","transport":{"type":"stdio"}}]`
		if f, err := entryOf(t, digested+`,"remotes":[{"type":"sse","url":"https://mcp.example.com/sse"}]`).Choose(rules); err != nil || f.Type != "remote" {
			t.Errorf("%s: %+v, %v", kind, f, err)
		}
		_, err := entryOf(t, digested).Choose(rules)
		if e := new(Error); !errors.As(err, &e) || e.Kind != Later || !strings.Contains(e.Error(), "packages[0].fileSha256: not supported yet") || !strings.Contains(e.Next, "weir run -- COMMAND") {
			t.Errorf("%s: %s", kind, said(err))
		}
	}
	// Without a container engine the next one is taken, and an image alone says what is missing.
	without := rules
	without.Engine = func() error { return errors.New("no container engine answers") }
	const image = `"packages":[{"registryType":"oci","identifier":"a.example/x","version":"2","packageArguments":[{"type":"positional","value":"serve"}],"transport":{"type":"stdio"}}]`
	if f, err := entryOf(t, image+`,"remotes":[{"type":"sse","url":"https://mcp.example.com/sse"}]`).Choose(without); err != nil || f.Type != "remote" {
		t.Errorf("%+v, %v", f, err)
	}
	_, err := entryOf(t, image).Choose(without)
	if e := new(Error); !errors.As(err, &e) || e.Kind != Later || e.Error() != "a.example/x: packages[0]: a.example/x:2 is an image: no container engine answers" || !strings.Contains(e.Next, "weir run -- COMMAND") {
		t.Errorf("%s", said(err))
	}
	e := entryOf(t, image)
	f, err := e.Choose(rules)
	if err != nil {
		t.Fatal(err)
	}
	if s, missing, err := f.Fill(e, Given{}, nil, rules); err != nil || len(missing) > 0 || s.Image != "a.example/x:2" || !slices.Equal(s.Command, []string{"serve"}) {
		t.Errorf("%+v, %v, %v", s, missing, err)
	}
}

// A registry may be allowed to lead to private addresses, and leads to its own origin anyway.
func TestPrivateURLs(t *testing.T) {
	of := func(url string) *Entry { return entryOf(t, `"remotes":[{"type":"sse","url":"`+url+`"}]`) }
	open := rules
	open.Source.AllowPrivate = true
	own := rules
	own.Source.At = "http://127.0.0.1:9000"
	for _, c := range []struct {
		url     string
		rules   Rules
		started bool
	}{
		{"https://10.1.2.3/sse", rules, false}, {"https://10.1.2.3/sse", open, true}, {"http://10.1.2.3/sse", open, true}, {"http://localhost:1/sse", open, true},
		{"http://mcp.example.com/sse", open, false}, {"https://169.254.169.254/sse", open, false}, {"http://127.0.0.1:9000/sse", own, true},
		{"http://127.0.0.1:9001/sse", own, false}, {"https://127.0.0.1:9000/sse", own, false},
	} {
		f, err := of(c.url).Choose(c.rules)
		if (err == nil) != c.started {
			t.Errorf("%s from %+v: %v", c.url, c.rules.Source, err)
		}
		if err == nil {
			if s, _, err := f.Fill(of(c.url), Given{}, nil, c.rules); err != nil || !s.Private {
				t.Errorf("%s: %+v, %v", c.url, s, err)
			}
		}
	}
	// So does the registry of an image.
	image := func(identifier string) *Entry {
		return entryOf(t, `"packages":[{"registryType":"oci","identifier":"`+identifier+`","transport":{"type":"stdio"}}]`)
	}
	for _, c := range []struct {
		image   string
		rules   Rules
		started bool
	}{
		{"10.1.2.3/x", rules, false}, {"10.1.2.3/x", open, true}, {"localhost:5000/x", open, true}, {"169.254.169.254/x", open, false},
		{"127.0.0.1:9000/x", own, true}, {"127.0.0.1:9001/x", own, false}, {"localhost/x", own, false}, {"intranet/x", rules, true}, {"ghcr.io:443/x", rules, true},
	} {
		if _, err := image(c.image).Choose(c.rules); (err == nil) != c.started {
			t.Errorf("%s from %+v: %v", c.image, c.rules.Source, err)
		}
	}
	if f, err := of("https://mcp.example.com/sse").Choose(rules); err != nil {
		t.Error(err)
	} else if s, _, err := f.Fill(of("https://mcp.example.com/sse"), Given{}, nil, rules); err != nil || s.Private {
		t.Errorf("a public URL may lead to a private address: %+v, %v", s, err)
	}
}

// TestHostsOfAnEntry: a name that an entry lists never stands for a private address, unless
// the user has allowed that of its registry.
func TestHostsOfAnEntry(t *testing.T) {
	f := Form{Field: "packages[0]"}
	said := `{"network":{"outbound":{"allow_host":["a.example",".b.example","1.1.1.1"],"allow_port":[443]}}}`
	if err := f.permissions([]byte(said), Rules{}); err != nil || !strings.Contains(string(f.profile), `"allow_host":[".a.example",".b.example","1.1.1.1"],"allow_port":[443]`) {
		t.Errorf("%v: %s", err, f.profile)
	}
	if err := f.permissions([]byte(said), Rules{Source: Source{AllowPrivate: true}}); err != nil || string(f.profile) != said {
		t.Errorf("%v: %s", err, f.profile)
	}
}
