package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/cmd/weir/script"
	"github.com/weir-edge/weir/cmd/weir/show"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/mcp"
	"github.com/weir-edge/weir/edge/serve"
)

// remote holds the flags of a command that calls an MCP server.
type remote struct {
	headers   []string
	tokenFile string
	ca        string
	era       string
	timeout   time.Duration
	auth      bool
	workload  string // in place of a URL; "" for none
	access    access
	cas       []byte // PEM certificates of --ca-bundle
}

const remoteHelp = `URL is the endpoint of any MCP server over HTTP. Without it the command talks to
the edge that "weir serve" starts on this machine, or with -w NAME to a workload.`

func (a *app) addRemoteFlags(cmd *cobra.Command) *remote {
	r := addAccessFlags(cmd)
	f := cmd.Flags()
	f.StringVarP(&r.workload, "workload", "w", "", "talk to workload `NAME`, in place of a URL: \"weir list\" shows them")
	if err := cmd.RegisterFlagCompletionFunc("workload", a.workloads().Complete(true)); err != nil {
		panic(err) // the flag was added in the line before
	}
	f.StringVar(&r.era, "era", string(client.Auto), "`ERA` of the protocol to speak: auto, legacy (up to 2025-11-25) or modern (2026-07-28)")
	f.BoolVar(&r.auth, "auth", false, "use the login to the server, which \"weir auth login\" made; it is renewed, and made where there is none")
	r.access.add(cmd)
	f.DurationVar(&r.timeout, "timeout", time.Minute, "`DURATION` for which the server may be silent; 0 for no limit")
	mustRegister(cmd, "era", []string{string(client.Auto), string(client.Legacy), string(client.Modern)})
	mustRegister(cmd, "timeout", nil)
	return r
}

// addAccessFlags adds the flags for credentials and trusted authorities.
func addAccessFlags(cmd *cobra.Command) *remote {
	r := &remote{era: string(client.Auto)}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&r.headers, "header", nil, "`HEADER` of every request, as \"NAME: VALUE\"; may be repeated")
	f.StringVar(&r.tokenFile, "bearer-token-file", "", "`FILE` with a token, sent as Authorization: Bearer")
	f.StringVar(&r.ca, "ca", "", "`FILE` of certificate authorities in PEM to trust in addition to those of the system")
	f.BoolP("verbose", "v", false, "when the server refuses, also print what it said")
	mustRegister(cmd, "header", nil)
	return r
}

// isURL reports whether s is a URL or meant as one, and not the name of a tool.
func isURL(s string) bool {
	if strings.Contains(s, "://") {
		return true
	}
	address, _, _ := strings.Cut(s, "/")
	_, port, err := net.SplitHostPort(address)
	_, notNumber := strconv.ParseUint(port, 10, 16)
	return err == nil && notNumber == nil
}

// homeURL is the endpoint of the edge that "weir serve" starts.
func homeURL() string { return "http://" + serve.Defaults().Listen + "/mcp" }

// options turns the flags into the options of the client. Its errors are usage
// errors.
func (r *remote) options(target string) (client.Options, []string, error) {
	o := client.Options{URL: target, Era: client.Era(r.era), Name: "weir", Version: thisBuild().Version, Silence: r.timeout, Header: http.Header{}}
	var warnings []string
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		if !strings.Contains(target, "://") {
			return o, nil, usagef("%q is not a URL: did you mean http://%s?", target, target)
		}
		return o, nil, usagef("%q is not a URL: write http://HOST:PORT/PATH, or https", target)
	}
	if !slices.Contains([]client.Era{client.Auto, client.Legacy, client.Modern}, o.Era) {
		return o, nil, usagef("--era %q: give auto, legacy or modern", r.era)
	}
	if r.timeout < 0 {
		return o, nil, usagef("--timeout %s: give a duration such as 30s, or 0 to wait for ever", r.timeout)
	}
	for _, h := range r.headers {
		name, value, ok := strings.Cut(h, ":")
		value = strings.TrimSpace(value)
		if !ok || !headerName(name) || value != edge.Clean(value) || strings.Contains(value, "\n") {
			return o, nil, usagef(`--header: write "NAME: VALUE", such as --header "X-Team: blue"`)
		}
		o.Header.Add(name, value)
	}
	if r.tokenFile != "" {
		if o.Header.Get("Authorization") != "" {
			return o, nil, usagef("--bearer-token-file and --header Authorization are two ways to say one thing: leave one out")
		}
		token, err := readToken(r.tokenFile)
		if err != nil {
			return o, nil, err
		}
		o.Header.Set("Authorization", "Bearer "+token)
	}
	if r.auth && o.Header.Get("Authorization") != "" {
		return o, nil, usagef("--auth and another credential are two ways to say one thing: leave one out")
	}
	if u.Scheme == "http" && (r.auth || o.Header.Get("Authorization") != "") && !onThisMachine(u.Hostname()) {
		warnings = append(warnings, fmt.Sprintf("the credential travels to %s unencrypted: use https", u.Host))
	}
	transport := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		ForceAttemptHTTP2:     true,
	}
	if r.ca != "" || len(r.cas) > 0 {
		pool, err := authorities(r.ca, r.cas)
		if err != nil {
			return o, nil, err
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	o.HTTP = &http.Client{
		Transport: transport,
		// A header that was meant for one place must not follow to another.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return o, warnings, nil
}

func headerName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return name != ""
}

func readToken(path string) (string, error) {
	text, err := edge.ReadKeys(path)
	if err != nil {
		return "", fmt.Errorf("--bearer-token-file: %w: name a file with a token in it", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return "", fmt.Errorf("--bearer-token-file: %s: holds no token: write it as one line without spaces", path)
	}
	return token, nil
}

// authorities are those of the system, of a file ("" for none) and of a bundle.
func authorities(path string, bundle []byte) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(bundle)
	if path == "" {
		return pool, nil
	}
	text, err := edge.ReadKeys(path)
	if err != nil {
		return nil, fmt.Errorf("--ca: %w: name a file with certificates in PEM", err)
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--ca: %s: holds no certificate in PEM", path)
	}
	return pool, nil
}

func onThisMachine(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// with connects to a server and hands the connection to f. An interrupt ends
// both; a second one ends the process.
func (a *app) with(cmd *cobra.Command, r *remote, target string, f func(context.Context, *client.Client) error) error {
	if cmd.Flags().Changed("workload") {
		return a.withWorkload(cmd, r, target, f)
	}
	return a.withURL(cmd, r, target, f)
}

// withURL is with for a server that is named by its URL.
func (a *app) withURL(cmd *cobra.Command, r *remote, target string, f func(context.Context, *client.Client) error) error {
	reach, err := a.reach(cmd, &r.access)
	if err != nil {
		return err
	}
	r.cas = reach.CAs
	o, warnings, err := r.options(target)
	if err != nil {
		return err
	}
	if r.auth {
		if err := a.authorized(cmd, r, target, o.HTTP); err != nil {
			return err
		}
	}
	for _, w := range warnings {
		fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), w)
	}
	ctx, stop := untilSignal(cmd)
	defer stop()
	var typed *bufio.Reader
	if terminal(a.in) {
		typed = bufio.NewReader(a.in)
	}
	questions := client.NewQuestions(a.err, typed)
	o.Notify = a.notified
	o.Ask = func(ctx context.Context, params []byte) ([]byte, error) { return questions.Ask(ctx, params) }
	c, err := client.Connect(ctx, o)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer o.HTTP.CloseIdleConnections()
	defer c.Close()
	return interrupted(ctx, f(ctx, c))
}

// notified prints a notification of the server during a call.
func (a *app) notified(m *mcp.Message) {
	switch m.Method {
	case "notifications/progress":
		if trace := m.Meta(script.Trace); trace.OK() {
			fmt.Fprintln(a.err, script.Traced(trace.Of(m.Raw)))
			return
		}
		line := string(m.Get("progress").Of(m.Raw))
		if total := m.Get("total"); total.OK() {
			line += "/" + string(total.Of(m.Raw))
		}
		fmt.Fprintf(a.err, "%s\n", strings.TrimSpace(line+" "+show.FirstLine(m.Text("message"))))
	case "notifications/message":
		what := m.Text("data")
		if what == "" {
			what = string(m.Get("data").Of(m.Raw))
		}
		fmt.Fprintf(a.err, "%s: %s\n", show.FirstLine(m.Text("level")), edge.Clean(what))
	}
}

// destination divides the words of a command into a URL, or the home URL, and
// the rest.
func destination(args []string) (target string, rest []string) {
	if len(args) > 0 && isURL(args[0]) {
		return args[0], args[1:]
	}
	return homeURL(), args
}

// listing makes a command that prints what a server lists: list fetches the
// pages, and show prints them for people.
func (a *app) listing(cmd *cobra.Command, list func(*client.Client, context.Context) ([][]byte, error), show func(*client.Client, [][]byte) error) *cobra.Command {
	var asJSON bool
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("%q is one word too many: one URL is enough", args[1])
		}
		return nil
	}
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	r := a.addRemoteFlags(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the results as the server sent them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target := homeURL()
		if len(args) == 1 {
			target = args[0]
		}
		return a.with(cmd, r, target, func(ctx context.Context, c *client.Client) error {
			pages, err := list(c, ctx)
			if err != nil {
				return err
			}
			if !asJSON {
				return show(c, pages)
			}
			for _, page := range pages {
				if _, err := fmt.Fprintf(a.out, "%s\n", page); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}

// table prints rows about things, the name of each first, or that the server
// offers none.
func (a *app) table(rows [][]string, things string) error {
	if rows == nil {
		_, err := fmt.Fprintf(a.err, "The server offers no %s.\n", things)
		return err
	}
	for _, row := range rows {
		row[0] = a.paint(a.out, bold, row[0])
	}
	return show.Table(a.out, rows)
}

// listed returns what pages of a list hold in a member, and the texts by which
// each of them is known.
func listed(pages [][]byte, kind, name string) (things [][]byte, names []string) {
	for _, page := range pages {
		for _, thing := range mcp.Elements(mcp.Lookup(page, kind)) {
			things = append(things, thing)
			names = append(names, mcp.String(mcp.Lookup(thing, name)))
		}
	}
	return things, names
}

// at is what names the workload in a command about the same server; "" for one at a URL.
func (r *remote) at() string {
	if r.workload == "" {
		return ""
	}
	return " -w " + r.workload
}

// unknown adds the nearest name to an error about one that the server does not
// list.
func (r *remote) unknown(ctx context.Context, err error, name string, list func(context.Context) ([][]byte, error), kind, member string) error {
	refused := new(client.ProtocolError)
	if !errors.As(err, &refused) || refused.Code != mcp.CodeInvalidParams && refused.Code != mcp.CodeResourceNotFound {
		return err
	}
	pages, failed := list(ctx)
	_, known := listed(pages, kind, member)
	if failed != nil || slices.Contains(known, name) {
		return err
	}
	return fmt.Errorf("%w%s", err, didYouMean(name, known, beyond(name, known, "`weir "+kind+r.at()+"` lists what there is")))
}
