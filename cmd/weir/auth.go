package main

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/cmd/weir/client"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/settings"
)

// Variables of logins. They are no settings of an edge.
const (
	authKeyVariable        = "WEIR_AUTH_KEY_FILE"
	clientMetadataVariable = "WEIR_CLIENT_METADATA_URL"
)

func (a *app) authCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "auth COMMAND",
		Short: "Log in to MCP servers that want it",
		Long: `Log in to MCP servers that want it (OAuth), once for all commands: what a login
gives is kept in the file credentials of your configuration folder, which you
alone can read, and renewed when it ends. "weir call --auth" and its like use it.

With --auth-key-file the file is sealed with a key of yours (AES-256-GCM).`,
		Example: `  weir auth login https://mcp.example.com/mcp
  weir call https://mcp.example.com/mcp search query=boats --auth
  weir auth list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return usagef("no such command %q%s", args[0], didYouMean(args[0], known, "`weir auth --help` lists them"))
		},
	}
	cmd.AddCommand(a.authLoginCommand(), a.authListCommand(), a.authLogoutCommand(), a.authTestCommand(), a.authKeygenCommand())
	return cmd
}

// access are the flags of whatever logs in, or uses a login.
type access struct {
	keyFile     string
	caBundle    string
	devLoopback bool
}

func (x *access) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&x.keyFile, "auth-key-file", "", "`FILE` of keys that seal what logins give, one a line (variable "+authKeyVariable+")")
	x.addCA(cmd)
	f.BoolVar(&x.devLoopback, "dev-loopback", false, "for development: URLs that others name may lead to this machine, also by http (variable WEIR_DEV_LOOPBACK)")
}

// addCA adds the flag for authorities alone.
func (x *access) addCA(cmd *cobra.Command) {
	cmd.Flags().StringVar(&x.caBundle, "ca-bundle", "", "`FILE` of authorities in PEM to trust beside those of the system (variable WEIR_CA_BUNDLE)")
}

// reach is what the flags allow, or else the variables of the settings of these names.
func (a *app) reach(cmd *cobra.Command, x *access) (edge.Reach, error) {
	s := settings.Settings{CABundle: x.caBundle, DevLoopback: x.devLoopback}
	if text, ok := lookup(a.environ, "WEIR_CA_BUNDLE"); ok && x.caBundle == "" {
		s.CABundle = text
	}
	if text, ok := lookup(a.environ, "WEIR_DEV_LOOPBACK"); ok && !cmd.Flags().Changed("dev-loopback") {
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return edge.Reach{}, fmt.Errorf("WEIR_DEV_LOOPBACK: %q is neither true nor false", edge.Brief(text))
		}
		s.DevLoopback = yes
	}
	return s.Reach()
}

// credentials is the file of logins.
func (a *app) credentials(x *access) (*login.Store, error) {
	dir, err := login.DefaultDir()
	if home, _ := a.lookup("WEIR_HOME"); home != "" { // it has all that is the user's
		paths, failed := a.paths()
		dir, err = paths.Config, failed
	}
	if err != nil {
		return nil, err
	}
	s := &login.Store{Dir: dir}
	path := x.keyFile
	if path == "" {
		path, _ = lookup(a.environ, authKeyVariable)
	}
	if path == "" {
		return s, nil
	}
	text, err := edge.ReadKeys(path)
	if err != nil {
		return nil, fmt.Errorf("--auth-key-file: %w: name a file with a key of 32 bytes in base64 on each line", err)
	}
	if s.Keys, err = secret.ParseStateKeys(path, text); err != nil {
		return nil, fmt.Errorf("--auth-key-file: %w", err)
	}
	return s, nil
}

// guarded is what asks authorization servers.
func (a *app) guarded(cmd *cobra.Command, x *access) (*oauth.Client, error) {
	reach, err := a.reach(cmd, x)
	if err != nil {
		return nil, err
	}
	if reach.DevLoopback {
		fmt.Fprintf(a.err, "%s: --dev-loopback: what strangers name may lead to this machine, unencrypted: for development alone\n", cmd.CommandPath())
	}
	return oauth.New(oauth.Options{Reach: reach, Timeout: 10 * time.Second})
}

// session is the login to a server: made with the options, or with those of the login that is
// kept where the options are nil.
func (a *app) session(cmd *cobra.Command, x *access, url string, o *login.Options, timeout time.Duration) (*login.Session, error) {
	store, err := a.credentials(x)
	if err != nil {
		return nil, err
	}
	client, err := a.guarded(cmd, x)
	if err != nil {
		return nil, err
	}
	if o == nil {
		kept, err := login.KeptOptions(store, url)
		if err != nil {
			return nil, err
		}
		o = &kept
		o.Timeout = timeout
	}
	if o.ClientMetadataURL == "" {
		o.ClientMetadataURL, _ = lookup(a.environ, clientMetadataVariable)
	}
	o.Say = func(line string) { fmt.Fprintln(a.err, line) }
	_, browser := lookup(a.environ, "BROWSER")
	return login.Open(*o, store, client, !browser && !terminal(a.in) && !terminal(a.err))
}

// authorized makes requests of a client with the login to a server. What the login may take is
// a little less than the server's silence.
func (a *app) authorized(cmd *cobra.Command, r *remote, target string, c *http.Client) error {
	timeout := 2 * time.Minute
	if r.timeout > 0 {
		timeout = min(timeout, r.timeout*9/10)
	}
	s, err := a.session(cmd, &r.access, target, nil, timeout)
	if err != nil {
		return err
	}
	c.Transport = &login.Transport{Session: s, Base: c.Transport}
	return nil
}

func (a *app) authLoginCommand() *cobra.Command {
	var x access
	var o login.Options
	var machine bool
	cmd := &cobra.Command{
		Use:   "login URL",
		Short: "Log in to an MCP server",
		Long: `Log in to an MCP server: a browser is opened, you agree there, and what the
authorization server gives is kept for "weir call --auth" and its like.

Who gives access is found out from the server. As whom Weir asks is, in this
order: the client that --client-id names; the document that --client-metadata-url
names, where the server takes such; a client that is registered on the spot. For
a server that registers nobody, register a client by hand, with the redirect URI
http://127.0.0.1:8666/callback.

Without a user: --client-credentials is a login of the client itself, with a
secret or a private key; --id-token-file has your company's identity provider
vouch for the user of an ID token (enterprise-managed authorization).

A server may have several logins, each with flags of its own: workloads of it
that ask for other scopes, or as another client, have theirs. "weir call --auth"
and its like use the one that this command made last.`,
		Example: `  weir auth login https://mcp.example.com/mcp
  weir auth login https://mcp.example.com/mcp --scopes files:read,files:write --skip-browser
  weir auth login https://mcp.example.com/mcp --client-id weir --client-secret-file secret.txt
  weir auth login https://example.com/mcp --client-credentials --client-id job --private-key-file k`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usagef("name the URL of an MCP server")
			case len(args) > 1:
				return usagef("%q is one word too many: one URL is enough", args[1])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.URL, o.Main = args[0], true
			switch {
			case machine && o.IDTokenFile != "":
				return usagef("--client-credentials and --id-token-file are two ways to log in: leave one out")
			case machine:
				o.Grant = login.ClientCredentials
			case o.IDTokenFile != "":
				o.Grant = login.Enterprise
			}
			if cmd.Flags().Changed("callback-port") && o.CallbackPort == 0 {
				o.CallbackPort = login.AnyPort
			}
			if o.Timeout <= 0 {
				return usagef("--timeout %s: give a positive duration, such as 2m", o.Timeout)
			}
			for _, path := range []*string{&o.ClientSecretFile, &o.PrivateKeyFile, &o.IDTokenFile, &o.IDPClientSecretFile} {
				if *path == "" {
					continue
				}
				var err error
				if *path, err = filepath.Abs(*path); err != nil {
					return err
				}
			}
			if err := o.Check(); err != nil {
				return wrongOptions(err)
			}
			s, err := a.session(cmd, &x, o.URL, &o, 0)
			if err != nil {
				return err
			}
			ctx, stop := untilSignal(cmd)
			defer stop()
			kept, err := s.Login(ctx)
			if err != nil {
				return interrupted(ctx, client.Unreachable(ctx, err))
			}
			_, err = fmt.Fprintf(a.out, "logged in to %s%s\n", edge.Clean(kept.URL), auth.Until(kept, time.Now()))
			return err
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.ClientID, "client-id", "", "`ID` of a client that the authorization server knows; without it one is registered")
	f.StringVar(&o.ClientSecretFile, "client-secret-file", "", "`FILE` with its secret; it is read whenever it is needed, and not kept")
	f.StringVar(&o.PrivateKeyFile, "private-key-file", "", "`FILE` with its private key (PEM or JWK), in place of a secret (private_key_jwt)")
	f.StringVar(&o.ClientMetadataURL, "client-metadata-url", "", "https `URL` of a document about this installation, its client id where servers take such (variable "+clientMetadataVariable+")")
	f.StringSliceVar(&o.Scopes, "scopes", nil, "`SCOPES` to ask for; without it those that the server names")
	f.StringVar(&o.Issuer, "issuer", "", "`URL` of the authorization server; without it the one that the server names")
	f.StringVar(&o.AuthorizeURL, "authorize-url", "", "authorization endpoint `URL`, for an authorization server without metadata")
	f.StringVar(&o.TokenURL, "token-url", "", "token endpoint `URL`, likewise")
	f.StringVar(&o.Resource, "resource", "", "`URI` by which the authorization server knows the MCP server (RFC 8707); without it the one that the server names")
	f.StringVar(&o.ScopeParam, "scope-param-name", "", "`NAME` of the parameter that carries the scopes, where it is not scope")
	f.IntVar(&o.CallbackPort, "callback-port", login.DefaultCallbackPort, "`PORT` of 127.0.0.1 that the browser comes back to; 0 for any")
	f.BoolVar(&o.SkipBrowser, "skip-browser", false, "open no browser: print the page to open")
	f.DurationVar(&o.Timeout, "timeout", 2*time.Minute, "`DURATION` that the login may take")
	f.BoolVar(&machine, "client-credentials", false, "log the client itself in, without a user")
	f.StringVar(&o.IDTokenFile, "id-token-file", "", "`FILE` with an ID token of the identity provider, whose user is logged in")
	f.StringVar(&o.IDPTokenURL, "idp-token-url", "", "token endpoint `URL` of that provider")
	f.StringVar(&o.IDPClientID, "idp-client-id", "", "`ID` of the client that it knows")
	f.StringVar(&o.IDPClientSecretFile, "idp-client-secret-file", "", "`FILE` with that client's secret")
	x.add(cmd)
	for _, name := range []string{"client-id", "client-metadata-url", "scopes", "issuer", "authorize-url", "token-url", "resource", "scope-param-name", "callback-port", "timeout", "idp-token-url", "idp-client-id"} {
		mustRegister(cmd, name, nil)
	}
	return cmd
}

// wrongOptions makes usage errors of what is wrong with the options of a login, which begin
// with the name of a flag.
func wrongOptions(err error) error {
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "URL:") {
			line = "--" + line
		}
		lines = append(lines, line)
	}
	return usagef("%s", strings.Join(lines, "\n"))
}

func (a *app) authListCommand() *cobra.Command {
	var x access
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the MCP servers that you are logged in to",
		Long: `List the MCP servers that you are logged in to: who gives the access, as which
client, with which scopes, and for how long. No token is shown.

A server may have several logins, which the flags tell apart that they were made
with. The first of them is the one that "weir call --auth" and its like use.

With --json there is a list of objects: url, issuer, resource, client, how (given,
document or registered), scopes, expires, renewable, since, flags, and used (by
"weir call --auth").`,
		Example: `  weir auth list
  weir auth list --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			store, err := a.credentials(&x)
			if err != nil {
				return err
			}
			all, err := store.List()
			if err != nil {
				return err
			}
			if asJSON {
				return auth.WriteJSON(a.out, all)
			}
			return auth.Write(a.out, all, time.Now())
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: a list of objects")
	cmd.Flags().StringVar(&x.keyFile, "auth-key-file", "", "`FILE` of keys that seal what logins give, one a line (variable "+authKeyVariable+")")
	return cmd
}

func (a *app) authLogoutCommand() *cobra.Command {
	var x access
	var all bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "logout URL",
		Short: "Forget the logins to an MCP server",
		Long: `Forget the logins to an MCP server, with whatever flags they were made, or with
--all every one: tokens, and the client that was registered. Before that, the
authorization server is asked to revoke the refresh token (RFC 7009), which ends
what it gave for it, too. Where that cannot be done, a line says why, the login is
forgotten all the same, and the exit code is 0. An access token without a refresh
token stays good there until it ends.`,
		Example: `  weir auth logout https://mcp.example.com/mcp
  weir auth logout --all --timeout 5s`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return usagef("--all and a URL are two ways to say which: leave one out")
			case !all && len(args) == 0:
				return usagef("name the URL of a server: `weir auth list` lists them, --all forgets every one")
			case len(args) > 1:
				return usagef("%q is one word too many: one URL is enough", args[1])
			case timeout <= 0:
				return usagef("--timeout %s: give a positive duration, such as 10s", timeout)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := a.credentials(&x)
			if err != nil {
				return err
			}
			client, err := a.guarded(cmd, &x)
			if err != nil {
				return err
			}
			defer client.Close()
			ctx, stop := untilSignal(cmd)
			defer stop()
			ended, known, err := auth.Logout(ctx, store, client, args, timeout)
			line, left := auth.Forgotten(ended)
			for _, one := range left {
				fmt.Fprintf(a.err, "%s: %s\n", cmd.CommandPath(), one)
			}
			switch {
			case err != nil:
				return interrupted(ctx, err)
			case len(ended) == 0 && len(args) > 0:
				url := login.Canonical(args[0])
				return errors.New("there is no login to " + edge.Brief(url) + didYouMean(url, known, "`weir auth list` lists them"))
			}
			_, err = fmt.Fprintln(a.out, line)
			return err
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "forget every login")
	cmd.Flags().DurationVar(&timeout, "timeout", 20*time.Second, "`DURATION` that revoking may take")
	x.add(cmd)
	mustRegister(cmd, "timeout", nil)
	return cmd
}
