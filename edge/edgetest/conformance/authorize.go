package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weir-edge/weir/edge/edgetest/peers"
)

// authCommand is this program as the suite starts it for scenarios about authorization: as a
// client that is `weir call --auth`.
const authCommand = "authorized-client"

// isAuth reports whether a scenario is about authorization.
func isAuth(s scenario) bool { return strings.HasPrefix(s.name, "auth/") }

// extensions of authorization that have to pass, though the suite scores none.
var wanted = []string{"auth/client-credentials-jwt", "auth/client-credentials-basic", "auth/enterprise-managed-authorization"}

// authorized measures the scenarios for clients that are about authorization. The client is
// weir itself, which signs in; there is no edge before it.
func (h *harness) authorized(ctx context.Context, r *run) error {
	required, err := h.requirements(r.cell.set)
	if err != nil {
		return err
	}
	var scenarios []scenario
	for _, s := range required.client {
		if isAuth(s) {
			s.scored = s.scored || slices.Contains(wanted, s.name)
			scenarios = append(scenarios, s)
		}
	}
	if r.scenarios, err = h.pick(scenarios); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	dir := filepath.Join(h.output, r.cell.set+"-authorized")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	r.direct, err = h.suite.clients(ctx, r.cell.set, fmt.Sprintf("'%s' %s --weir '%s'", self, authCommand, h.weir), dir, r.scenarios)
	return err
}

// beAuthorized is the client under test. Its last argument is the URL of the suite's server;
// the environment says which scenario is on, at which revision, and with which credentials.
func beAuthorized(ctx context.Context, args []string, stderr io.Writer) (err error) {
	var weir string
	f := flag.NewFlagSet(authCommand, flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&weir, "weir", "", "program of weir")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return fmt.Errorf("%s: one URL is wanted", authCommand)
	}
	url := f.Arg(0)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "conformance-home-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	run := func(args ...string) error {
		cmd := peers.Command(ctx, weir, append(args, "--dev-loopback")...)
		cmd.Env = append(cmd.Env, "BROWSER="+self, "XDG_CONFIG_HOME="+home, "HOME="+home)
		out, err := peers.Run(cmd)
		_, writeErr := stderr.Write(out)
		return errors.Join(err, writeErr)
	}

	// 1. A login, where the scenario says as whom.
	flags, err := credentials(os.Getenv("MCP_CONFORMANCE_SCENARIO"), os.Getenv("MCP_CONFORMANCE_CONTEXT"), home)
	if err != nil {
		return err
	}
	if flags != nil {
		if err := run(append([]string{"auth", "login", url}, flags...)...); err != nil {
			return err
		}
	}

	// 2. The call, which logs in where it has to.
	era := "auto"
	if os.Getenv("MCP_CONFORMANCE_PROTOCOL_VERSION") == legacySet {
		era = "legacy"
	}
	return run("call", url, "test-tool", "--args", "{}", "--auth", "--era", era) // listed or not
}

// credentials are the flags of `weir auth login` for a scenario; nil where the call is to do
// all. Secrets are put into files of a folder.
func credentials(scenario, text, dir string) ([]string, error) {
	if scenario == "auth/basic-cimd" {
		// The suite's name for the document; nobody fetches it.
		return []string{"--client-metadata-url", "https://conformance-test.local/client-metadata.json"}, nil
	}
	var given map[string]any
	if text != "" {
		if err := json.Unmarshal([]byte(text), &given); err != nil {
			return nil, fmt.Errorf("MCP_CONFORMANCE_CONTEXT: %w", err)
		}
	}
	var flags []string
	for _, one := range []struct {
		member, flag string
		file         bool
	}{
		{"client_id", "client-id", false}, {"client_secret", "client-secret-file", true}, {"private_key_pem", "private-key-file", true},
		{"idp_id_token", "id-token-file", true}, {"idp_client_id", "idp-client-id", false}, {"idp_token_endpoint", "idp-token-url", false},
	} {
		value, ok := given[one.member].(string)
		if !ok {
			continue
		}
		if one.file {
			path := filepath.Join(dir, one.flag)
			if err := os.WriteFile(path, []byte(value), 0o600); err != nil {
				return nil, err
			}
			value = path
		}
		flags = append(flags, "--"+one.flag, value)
	}
	if strings.HasPrefix(scenario, "auth/client-credentials-") {
		flags = append(flags, "--client-credentials")
	}
	if strings.HasPrefix(scenario, "auth/wif-") || strings.HasPrefix(scenario, "auth/dpop") {
		return nil, nil // which weir does not have
	}
	return flags, nil
}

// beBrowser is the browser of a user who agrees to everything: it opens a page, and follows
// where that leads.
func beBrowser(ctx context.Context, url string) error {
	jar, err := cookiejar.New(nil)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := (&http.Client{Jar: jar}).Do(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}
