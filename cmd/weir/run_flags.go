package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weir-edge/weir/cmd/weir/clients"
	"github.com/weir-edge/weir/cmd/weir/local"
	"github.com/weir-edge/weir/cmd/weir/workloads"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/container"
	"github.com/weir-edge/weir/edge/workload"
)

// runFlags are the flags of `weir run`: those that a manifest is made of, and those about the
// run itself.
type runFlags struct {
	workload.Options
	foreground bool
	fromConfig string
	dryRun     bool
	printed    bool // of the profile
	wait       time.Duration
}

// ownRunFlags are the flags that go with --from-config.
var ownRunFlags = []string{"foreground", "from-config", "debug", "wait", "format", "dry-run", "help"}

// add adds the flags to a command.
func (x *runFlags) add(a *app, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVarP(&x.foreground, "foreground", "f", false, "keep the workload as long as this command runs, and then remove it")
	f.StringVar(&x.fromConfig, "from-config", "", "`FILE` in YAML or JSON that \"weir export\" wrote, or the reference")
	f.DurationVar(&x.wait, "wait", workloads.StartWait, "`DURATION` that the server may take until it has introduced itself; a package runner has 5m")
	f.BoolVar(&x.dryRun, "dry-run", false, "print the manifest and the steps, and do nothing")
	f.BoolVar(&x.printed, "print-profile", false, "print the permission profile as JSON, and do nothing")
	x.Options = workload.DefaultOptions()
	for _, flag := range workload.Flags() {
		bindRunFlag(f, flag, flag.Of(&x.Options))
		if flag.Name == "group" {
			a.workloads().CompleteGroups(cmd, "group")
		} else if flag.Name == "permission-profile" {
			if err := cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(flagWords(flag.Name), cobra.ShellCompDirectiveDefault)); err != nil { // or a file
				panic(err) // it was added in the line before
			}
		} else if !strings.Contains(flag.Value, "FILE") && !strings.Contains(flag.Value, "DIR") {
			mustRegister(cmd, flag.Name, flagWords(flag.Name))
		}
	}
	mustRegister(cmd, "wait", nil)
	addFormat(cmd, "text", "json")
}

// bindRunFlag adds a flag whose value goes to an address. Its default is what is there.
func bindRunFlag(f *pflag.FlagSet, flag workload.Flag, at any) {
	help := flag.Help
	if flag.Value != "" {
		help = "`" + flag.Value + "`: " + help
	}
	if flag.Later != "" {
		help += " (not supported yet)"
	}
	switch to := at.(type) {
	case *string:
		f.StringVarP(to, flag.Name, flag.Short, *to, help)
	case *[]string:
		f.StringArrayVarP(to, flag.Name, flag.Short, *to, help)
	case *bool:
		f.BoolVarP(to, flag.Name, flag.Short, *to, help)
	case *int:
		f.IntVarP(to, flag.Name, flag.Short, *to, help)
	case *[]int:
		f.IntSliceVarP(to, flag.Name, flag.Short, *to, help)
	case *float64:
		f.Float64VarP(to, flag.Name, flag.Short, *to, help)
	case *time.Duration:
		f.DurationVarP(to, flag.Name, flag.Short, *to, help)
	default:
		panic(fmt.Sprintf("--%s: no flag has a value of %T", flag.Name, at))
	}
}

// flagWords are the words that a flag takes; nil for any.
func flagWords(flag string) []string {
	switch flag {
	case "transport":
		return []string{"stdio", "streamable-http", "sse"}
	case "proxy-mode":
		return []string{"streamable-http", "sse"}
	case "client":
		return clients.Names()
	case "permission-profile":
		return []string{"none", "network"}
	case "network":
		return []string{"host", "none"}
	case "processes":
		return []string{"session", "shared"}
	case "restart":
		return []string{"on-failure", "always", "no"}
	case "sandbox":
		return []string{"auto", "bwrap", "landlock", "off"}
	case "image-verification":
		return []string{"warn", "enabled", "disabled"}
	case "token-exchange-subject-token-type":
		return []string{"access_token", "id_token"}
	}
	return nil
}

// read fills in what the flags do not say: the server, and where this is.
func (x *runFlags) read(a *app, cmd *cobra.Command, args []string) error {
	before, after := args, []string(nil)
	if at := cmd.ArgsLenAtDash(); at >= 0 {
		before, after = args[:at], args[at:]
	}
	if len(before) > 1 {
		return usagef("%s is one word too many: the arguments of a server stand after --, and so does a command of this machine: weir run -- %s", brief(before[1]), edge.Brief(strings.Join(append(slices.Clone(before), after...), " ")))
	}
	if len(before) == 1 {
		x.Server = before[0]
	}
	x.Args, x.Given, x.Look, x.HasImage = after, map[string]bool{}, a.program, a.hasImage
	cmd.Flags().Visit(func(f *pflag.Flag) { x.Given[f.Name] = true })
	if secret, ok := a.lookup("WEIR_OIDC_CLIENT_SECRET"); ok && x.OIDCClientSecret == "" && (x.OIDCIssuer != "" || x.OIDCIntrospectionURL != "") {
		x.OIDCClientSecret = secret
	}
	defaults, err := local.OfUser(a.paths)
	if err != nil {
		return usagef("%s", err)
	}
	if !x.Given["sandbox"] && defaults.Sandbox != "" {
		x.Sandbox = string(defaults.Sandbox)
	}
	if !x.Given["runtime-image"] {
		x.RuntimeImage = defaults.RuntimeImage(x.Server)
	}
	x.Dir, err = os.Getwd()
	return err
}

// program finds a program in the PATH of this process.
func (a *app) program(name string) (string, error) { return exec.LookPath(name) }

// hasImage asks the container engine whether it has an image.
func (a *app) hasImage(name string) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), engineWait)
	defer cancel()
	e, err := local.Engine(ctx, a.paths, a.lookup)
	if err != nil {
		known := new(container.Error)
		if errors.As(err, &known) {
			return false, &workload.Error{Code: workload.CodeSandbox, Message: edge.Brief(name) + " could be an image: " + known.What, Next: known.Next + ", or run the server as a process of this machine: weir run -- COMMAND"}
		}
		return false, err
	}
	defer e.Close()
	_, err = e.Image(ctx, name)
	if known := new(container.Error); errors.As(err, &known) && known.Kind == container.NoImage {
		return false, nil
	}
	return err == nil, err
}

// engineWait is how long the engine may take to say whether it has an image.
const engineWait = 10 * time.Second

// onlyConfig refuses flags that do not go with --from-config.
func (x *runFlags) onlyConfig() error {
	if x.Server != "" || len(x.Args) > 0 {
		return usagef("--from-config and a server: the file names one; leave one out")
	}
	for _, f := range workload.Flags() {
		if x.Given[f.Name] && !slices.Contains(ownRunFlags, f.Name) {
			return usagef("--from-config cannot be used with --%s: change the file, or leave it out and give flags alone", f.Name)
		}
	}
	return nil
}

// runFlagError explains a flag that `weir run` does not have: it may be one of a command that
// was written without --.
func runFlagError(cmd *cobra.Command, err error) error {
	if words := cmd.Flags().Args(); len(words) > 0 && cmd.ArgsLenAtDash() < 0 {
		if _, wrong := urlOf(words[0]); wrong != nil {
			return usagef("%s: the command of a server stands after --, with its flags: weir run -- %s …", err, edge.Brief(strings.Join(words, " ")))
		}
	}
	return flagError(cmd, err)
}

// runHelp prints the help of `weir run` with its flags by themes.
func (a *app) runHelp(cmd *cobra.Command) {
	fmt.Fprintf(a.out, "%s\n\nUsage:\n  %s\n\nExamples:\n%s\n", cmd.Long, cmd.UseLine(), cmd.Example)
	themes := map[string]*pflag.FlagSet{}
	order := []string{"This run"}
	of := map[string]string{}
	for _, f := range workload.Flags() {
		if of[f.Name] = f.Theme; !slices.Contains(order, f.Theme) {
			order = append(order, f.Theme)
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		theme := of[f.Name]
		if theme == "" {
			theme = "This run"
		}
		if themes[theme] == nil {
			themes[theme] = pflag.NewFlagSet(theme, pflag.ContinueOnError)
			themes[theme].SortFlags = false
		}
		themes[theme].AddFlag(f)
	})
	for _, theme := range order {
		fmt.Fprintf(a.out, "\n%s:\n%s", theme, themes[theme].FlagUsagesWrapped(100))
	}
}
