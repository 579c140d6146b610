package workloads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/egress"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
)

// Egress is `weir egress`.
func (a *Commands) Egress() *cobra.Command {
	var o aloneFlags
	cmd := &cobra.Command{
		Use:   "egress",
		Short: "Say where a workload is let out to, or let others out by a profile",
		Long: `Say where a workload is let out to: what the egress proxy would answer its server.
The rules are those of its permission profile, and of --egress-port and
--allow-container-gateway of "weir run".

With --profile and --listen it is that proxy by itself, for programs that Weir does not
start: it answers CONNECT and requests of plain HTTP, by the rules of the profile, until a
signal ends it. It answers the addresses in the file of --peers, one or a CIDR on each line,
which is read again when it changes, and without it programs of this machine alone. Where it
lets out to, and where not, is a line on stderr, once a minute for each destination.`,
		Example: `  weir egress test files api.example.com:443
  weir egress test --permission-profile profile.json api.example.com:443
  weir egress --profile profile.json --listen 127.0.0.1:3128
  weir egress --profile profile.json --listen 0.0.0.0:3128 --peers peers.txt`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o == (aloneFlags{}) {
				return cmd.Help()
			}
			return a.letOut(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profile, "profile", "", "`PROFILE` by which others are let out: none, network, or a file of JSON")
	f.StringVar(&o.listen, "listen", "", "`ADDRESS` at which the proxy listens, such as 127.0.0.1:3128")
	f.StringVar(&o.peers, "peers", "", "`FILE` with the addresses that are answered")
	cli.MustRegister(cmd, "profile", []string{v1beta1.ProfileNone, v1beta1.ProfileAnywhere})
	cmd.AddCommand(a.egressTestCommand())
	return cmd
}

// aloneFlags are those of the proxy by itself.
type aloneFlags struct{ profile, listen, peers string }

// letOut is the egress proxy by itself.
func (a *Commands) letOut(cmd *cobra.Command, o aloneFlags) error {
	switch "" {
	case o.profile:
		return cli.Usagef("--profile: by which one? Give none, network, or a file of JSON")
	case o.listen:
		return cli.Usagef("--listen: where? Give an address, such as 127.0.0.1:3128")
	}
	profile, err := readProfile("--profile", o.profile)
	if err != nil {
		return err
	}
	rules, err := egress.NewRules(profile, egress.Options{})
	if err != nil {
		return err
	}
	peers := egress.LoopbackPeers()
	if o.peers != "" {
		if peers, err = egress.ReadPeers(o.peers); err != nil {
			return cli.Usagef("--peers: %s", err)
		}
	}
	ctx, stop := cli.UntilSignal(cmd)
	defer stop()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return cli.Usagef("--listen: %s", err)
	}
	log := slog.New(slog.NewTextHandler(a.Err, nil))
	log.Info("letting out", "address", ln.Addr().String(), "profile", rules.Name(), "peers", cmp.Or(o.peers, "this machine"))
	proxy := egress.New(egress.Config{Workload: "egress", Rules: rules, Log: log, LogAll: true})
	return (&egress.Alone{Proxy: proxy, Peers: peers, Log: log}).Serve(ctx, ln)
}

func (a *Commands) egressTestCommand() *cobra.Command {
	var profile string
	cmd := &cobra.Command{
		Use:   "test [NAME] HOST:PORT",
		Short: "Say whether a workload is let out to a host, and by which rule",
		Long: `Say whether a workload is let out to a host at a port, and by which rule of its
permission profile, or else why not and what would allow it. The name is resolved on this
machine, as it is when the server connects; nothing is connected to. With
--permission-profile a profile is asked, and no workload.

Exit codes: 0 it is let out, 2 no host and port, 5 the name stands for no address here,
6 no such workload, 9 it is not let out.`,
		Example: `  weir egress test files api.example.com:443
  weir egress test files 10.1.2.3:5432
  weir egress test --permission-profile network registry.npmjs.org:443`,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case profile == "" && len(args) != 2:
				return cli.Usagef("give the name of a workload, and HOST:PORT; or --permission-profile, and HOST:PORT")
			case profile != "" && len(args) != 1:
				return cli.Usagef("give HOST:PORT alone beside --permission-profile: no workload is asked")
			case profile == "":
				return CheckName(args[0])
			}
			return nil
		},
		ValidArgsFunction: a.Complete(false),
	}
	cmd.Flags().StringVar(&profile, "permission-profile", "", "`PROFILE` to ask in place of a workload: none, network, or a file of JSON")
	cli.MustRegister(cmd, "permission-profile", []string{v1beta1.ProfileNone, v1beta1.ProfileAnywhere})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target := args[len(args)-1]
		host, port, err := egress.ParseTarget(target, 0)
		if err != nil {
			return cli.Usagef("%s: %s: write HOST:PORT, such as api.example.com:443", cli.Brief(target), err)
		}
		ctx, stop := cli.UntilSignal(cmd)
		defer stop()
		w := &compile.Workload{Name: "a workload", Isolate: true, Asked: true}
		held := "bwrap"
		if profile != "" {
			p, err := readProfile("--permission-profile", profile)
			if err != nil {
				return err
			}
			w.Profile = *p
		} else {
			d, err := a.Detail(ctx, args[0])
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if w, err = workloadOf(d); err != nil {
				return err
			}
			if d.Sandbox != "" {
				held = d.Sandbox
			}
		}
		return a.testEgress(ctx, w, held, host, port)
	}
	return cmd
}

// workloadOf is how a workload is started, by its manifest.
func workloadOf(d *workload.Detail) (*compile.Workload, error) {
	plan, _, err := workload.Check([]byte(d.Manifest))
	if err != nil {
		return nil, err
	}
	w := plan.Servers[0].Backends[0].Workload
	if w == nil {
		return nil, cli.Usagef("%s is a server at a URL: Weir does not start it, and lets it out to nothing", cli.Brief(d.Name))
	}
	return w, nil
}

// testEgress says what a workload is let out to, of one host and port.
func (a *Commands) testEgress(ctx context.Context, w *compile.Workload, held string, host egress.Host, port int) error {
	target := net.JoinHostPort(host.String(), strconv.Itoa(port))
	say := func(format string, args ...any) {
		fmt.Fprintln(a.Out, edge.Clean(fmt.Sprintf(format, args...)))
	}
	profile := w.Profile.Name
	if profile == "" {
		profile = "(unnamed)"
	}
	switch isolated, open := local.LetsOut(w); {
	case open:
		say("allowed: %s: the network of %s is not isolated, and it reaches what this machine does", target, w.Name)
		return nil
	case !isolated:
		say("refused: %s: nothing is let out (profile %s, network %s)", target, profile, orNone(w.Network))
		return cli.Said(cli.ExitRefused)
	}
	rules, err := egress.NewRules(&w.Profile, w.Egress())
	if err != nil {
		return err
	}
	d, addrs, err := egress.New(egress.Config{Workload: w.Name, Rules: rules}).Check(ctx, host, port)
	var no *egress.Refusal
	switch {
	case errors.As(err, &no):
		no.Next = "" // it is said by itself
		next := nextOf(no, &w.Profile)
		say("refused: %s (profile %s)", no, profile)
		if next != "" {
			say("next: %s", next)
		}
		if no.Reason == egress.NotResolved {
			return cli.Said(cli.ExitConnection)
		}
		return cli.Said(cli.ExitRefused)
	case err != nil:
		return cli.Interrupted(ctx, err)
	}
	say("allowed: %s by %q of profile %s", target, d.Rule, profile)
	for _, addr := range addrs {
		if addr.String() != host.String() {
			say("  at %s", addr)
		}
	}
	if held != "bwrap" && held != "container" {
		say("not held: the sandbox of %s is %s, and it reaches everything else, too", w.Name, held)
	}
	return nil
}

func orNone(network string) string {
	if network == "" {
		return "isolated"
	}
	return network
}

// nextOf is what would allow what a profile refused.
func nextOf(no *egress.Refusal, p *v1beta1.Profile) string {
	switch no.Reason {
	case egress.UnlistedHost:
		if addr, err := netip.ParseAddr(no.Host); err == nil {
			if class, _ := egress.Classify(addr); class == egress.Never {
				return "" // a profile that names it is refused
			}
		}
		if no.Host == "localhost" || strings.HasSuffix(no.Host, ".localhost") {
			return "" // it stands for this host, whatever a profile names
		}
		return "add " + strconv.Quote(no.Host) + " to allow_host of the profile, and run the workload with it"
	case egress.UnlistedPort:
		flag := "run the workload with --egress-port " + strconv.Itoa(no.Port)
		if len(p.Network.Outbound.AllowPort) == 0 {
			return flag // a list of that port alone would close 80 and 443
		}
		return "add " + strconv.Itoa(no.Port) + " to allow_port of the profile, or " + flag
	case egress.PrivateAddress:
		return "add its network to allow_host of the profile, such as \"10.1.2.0/24\""
	case egress.Gateway:
		return "run the workload with --allow-container-gateway"
	}
	return ""
}

// maxProfile is how large a file with a profile is read, in bytes; more is too large anyway.
const maxProfile = 1 << 20

// readProfile reads a profile that a flag names: a built-in one, or one in a file.
func readProfile(flag, name string) (*v1beta1.Profile, error) {
	if p, ok := v1beta1.BuiltinProfile(name); ok {
		return p, nil
	}
	f, err := edge.OpenFile(name)
	if err != nil {
		return nil, cli.Usagef("%s: %s: give none, network, or a file of JSON", flag, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxProfile))
	if err != nil {
		return nil, cli.Usagef("%s: %s", flag, err)
	}
	p, err := v1beta1.ParseProfile(text)
	if err == nil {
		_, err = egress.NewRules(p, egress.Options{})
	}
	if err != nil {
		return nil, cli.Usagef("%s: %s: %s", flag, cli.Brief(name), err)
	}
	return p, nil
}

// PrintProfile prints a profile as JSON, to be kept in a file and changed.
func (a *Commands) PrintProfile(name string) error {
	if name == "" {
		name = v1beta1.ProfileAnywhere
	}
	p, err := readProfile("--permission-profile", name)
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(a.Out, "%s\n", text); err != nil {
		return err
	}
	if p.Network.Outbound.InsecureAllowAll {
		fmt.Fprintln(a.Err, `weir run: private addresses are not let out to by insecure_allow_all: name their networks beside it, "allow_host": ["10.1.2.0/24"]`)
	}
	return nil
}
