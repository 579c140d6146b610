package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/checkup"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/source"
	"github.com/weir-edge/weir/edge/workload"
)

// plainFlags are the flags by which servers are named without a manifest.
type plainFlags struct {
	named  []string // NAME=URL
	bearer []string // names of backends
}

func (f *plainFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.named, "backend", nil, "an MCP server with a name of its own, `NAME=URL`; may be repeated")
	cmd.Flags().StringArrayVar(&f.bearer, "bearer", nil, "the MCP server `NAME` wants a bearer token, which is in WEIR_SECRET_<NAME>_TOKEN; may be repeated")
	mustRegister(cmd, "backend", nil)
	mustRegister(cmd, "bearer", nil)
}

// maxPlain is how many servers a command line may name.
const maxPlain = 100

// backends are the servers of a command line: urls, which are called by their
// hosts, and those of the flags.
func (f *plainFlags) backends(urls []string) ([]source.PlainBackend, error) {
	if n := len(urls) + len(f.named); n > maxPlain {
		return nil, usagef("%d servers are more than a command line should have: write them to a file, which `weir init` begins", n)
	}
	var all []source.PlainBackend
	taken := func(name string) bool {
		return slices.ContainsFunc(all, func(b source.PlainBackend) bool { return b.Name == name })
	}
	for _, text := range f.named {
		name, target, ok := strings.Cut(text, "=")
		if !ok {
			return nil, usagef("--backend %s: write NAME=URL, such as wiki=http://127.0.0.1:9000/mcp", brief(text))
		}
		if err := checkName(name); err != nil {
			return nil, usagef("--backend: %s", err)
		}
		if _, err := urlOf(target); err != nil {
			return nil, usagef("--backend: %s", err)
		}
		if taken(name) {
			return nil, usagef("--backend: %s: there are two servers of this name: give one of them another", name)
		}
		all = append(all, source.PlainBackend{Name: name, URL: target})
	}
	for _, text := range urls {
		u, err := urlOf(text)
		if err != nil {
			return nil, usagef("%s", err)
		}
		if i := slices.IndexFunc(all, func(b source.PlainBackend) bool { return b.URL == text }); i >= 0 {
			return nil, usagef("%s is named twice", brief(text))
		}
		name := nameOf(u)
		for n := 2; taken(name); n++ {
			name = nameOf(u) + "-" + strconv.Itoa(n)
		}
		all = append(all, source.PlainBackend{Name: name, URL: text})
	}
	for _, name := range f.bearer {
		i := slices.IndexFunc(all, func(b source.PlainBackend) bool { return b.Name == name })
		if i < 0 {
			return nil, usagef("--bearer %s: there is no such server: name one of %s", brief(name), strings.Join(namesOf(all), ", "))
		}
		all[i].Bearer = true
	}
	return all, nil
}

func namesOf(all []source.PlainBackend) (out []string) {
	for _, b := range all {
		out = append(out, b.Name)
	}
	return out
}

func checkName(name string) error {
	if !workload.IsName(name) {
		return fmt.Errorf("%s: use small letters, digits and -, at most 63, for the name of a server", brief(name))
	}
	return nil
}

// urlOf reads the URL of an MCP server, and says what else a word may be.
func urlOf(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
	case strings.Contains(text, "://"):
		return nil, fmt.Errorf("%s: weir speaks to MCP servers over http and https: write http://HOST:PORT/PATH", brief(text))
	case isFile(text):
		return nil, fmt.Errorf("%s is no URL: did you mean -c %s?", brief(text), edge.Brief(text))
	case hostAndPort.MatchString(text):
		return nil, fmt.Errorf("%s has no scheme: write http://%s, or https", brief(text), edge.Brief(text))
	default:
		return nil, fmt.Errorf("%s is no URL: name MCP servers by their URLs, such as http://127.0.0.1:9000/mcp. A server that a command starts speaks over its standard input: start it with its own option for streamable HTTP, and name its URL", brief(text))
	}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("the URL of %s holds a credential, which would be seen by others: use --bearer, or a manifest", brief(u.Host))
	case u.Fragment != "":
		return nil, fmt.Errorf("%s: a URL of a server has nothing behind #", brief(text))
	}
	return u, nil
}

var hostAndPort = regexp.MustCompile(`^([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}(/|$)`)

// isFile reports whether a word names a file, or would by its ending.
func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
}

// nameOf is what a server is called whose user gives it no name: by its host,
// without what most have, and by its port on this machine.
func nameOf(u *url.URL) string {
	host := strings.ToLower(u.Hostname())
	name := host
	switch labels := strings.Split(host, "."); {
	case host == "localhost" || strings.Trim(host, "0123456789.:abcdef[]") == "":
		name = strings.NewReplacer("127.0.0.1", "localhost", "::1", "localhost", ".", "-", ":", "-").Replace(host)
		if port := u.Port(); port != "" {
			name += "-" + port
		}
	case len(labels) > 2:
		for len(labels) > 2 && slices.Contains([]string{"mcp", "api", "www", "server"}, labels[0]) {
			labels = labels[1:]
		}
		name = labels[0]
	default:
		name = labels[0]
	}
	name = strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name), "-")
	name = strings.Trim(name[:min(len(name), 50)], "-")
	if name == "" {
		return "server"
	}
	return name
}

// welcome says how to use an edge before servers that the command line named.
func welcome(w io.Writer, s serve.Settings, addr string, all []source.PlainBackend) {
	endpoint, me := s.Endpoint(addr), self()
	at := ""
	if endpoint != homeURL() {
		at = " " + endpoint
	}
	fmt.Fprintf(w, `Weir serves %s on %s

See what is offered:
  %s tools%s

In the configuration of an MCP client:
  {"mcpServers":{"weir":{"type":"http","url":"%s"}}}

Ctrl-C ends it. %s init writes the same to a file, for all that it does not say.

`, strings.Join(namesOf(all), ", "), endpoint, me, at, endpoint, me)
}

// lookAt tells of each server that cannot be used as it is: what is in the way,
// and what to do.
func (a *app) lookAt(ctx context.Context, opened *source.Result, s serve.Settings, secrets edge.Secrets) {
	reach, _ := s.Reach() // the edge would not have begun
	look := checkup.Config{Timeout: 10 * time.Second, MaxMessage: s.MaxMessage, Version: thisBuild().Version, Secrets: secrets, Reach: reach}
	look.Step = func(ctx context.Context, step, subject string, f func(context.Context) edge.Finding) edge.Finding {
		ctx, cancel := context.WithTimeout(ctx, look.Timeout)
		defer cancel()
		c := f(ctx)
		c.Step, c.Subject = step, subject
		return c
	}
	for _, server := range opened.Plan.Servers {
		for _, c := range look.Server(ctx, server) {
			if ctx.Err() != nil {
				return // it is over
			}
			if c.Level != edge.LevelProblem && c.Level != edge.LevelWarning {
				continue
			}
			name, backend, of := strings.Cut(c.Subject, "/")
			if of { // what is of no backend is of the server
				name = backend
			}
			if c.Class == edge.ClassCredential && of {
				c.Next = fmt.Sprintf("put a token in %s, and add --bearer %s", secretVariable(name), name)
			}
			fmt.Fprintf(a.err, "%s: %s\n  %s\n", name, c.Cause, c.Next)
		}
	}
}

// plainOf is the server before backends that the command line named.
func plainOf(backends []source.PlainBackend) source.Plain {
	return source.Plain{Name: "weir", Backends: backends}
}

// secretVariable is the variable for the token of a backend.
func secretVariable(backend string) string { return secret.Variable(backend, "token") }
