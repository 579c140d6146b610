// Package secrets has the commands on the secrets that are kept for a user (secret.go), and
// finds and unlocks their provider for all who need one (secret_open.go).
package secrets

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/envfile"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/workload"
)

// Commands are the commands on secrets of a process.
type Commands struct {
	*cli.App
	Password *edge.Secret // of the encrypted secrets, once it is known: it is asked for once
}

// DirFlag is the flag that names the directory of secrets.
const DirFlag = "secrets-dir"

// secretFlags are those of every command about secrets.
type secretFlags struct {
	cmd *cobra.Command
	dir string
}

// add adds the flags.
func (x *secretFlags) add(cmd *cobra.Command) {
	x.cmd = cmd
	cli.AddFormat(cmd, "text", "json")
	cmd.Flags().StringVar(&x.dir, DirFlag, "", "`DIR` with a file NAME/KEY for each secret, for the provider directory (variable WEIR_SECRETS_DIR)")
	if err := cmd.MarkFlagDirname(DirFlag); err != nil {
		panic(err) // the flag was added above
	}
}

// print prints what a command did: a text, or a value as JSON.
func (x *secretFlags) print(out io.Writer, text string, value any) error {
	if cli.WantsJSON(x.cmd) {
		return cli.PrintJSON(out, value, "")
	}
	_, err := io.WriteString(out, text)
	return err
}

// named is what is printed in JSON of one secret.
type named struct {
	Name  string  `json:"name"`
	Value *string `json:"value,omitempty"`
}

func (a *Commands) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secret COMMAND",
		Short: "Keep secrets for workloads",
		Long: `Keep secrets for workloads, which "weir run --secret NAME,target=VARIABLE" hands
to a server. Manifests refer to them too: NAME/KEY is the key KEY of the secret
NAME, and NAME alone the key NAME of the secret ` + secret.Own + `.

The providers of secrets are
  encrypted     the file ` + secret.FileName + ` among your data, which a password opens
  environment   variables WEIR_SECRET_NAME and WEIR_SECRET_NAME_KEY, to read alone
  directory     files NAME/KEY and NAME in --secrets-dir, to read alone
WEIR_SECRETS_PROVIDER names one of them, else secrets.provider in workloads.yaml of
your configuration folder; else it is what is set up, in the order directory,
encrypted, environment. A workload finds what its provider lacks in the
environment, unless WEIR_DISABLE_ENV_FALLBACK is true.

The password is looked for in WEIR_SECRETS_PASSWORD, in the keyring of the
operating system, and last asked for on the terminal.

Exit codes: 0 done, 1 something broke, 2 wrong command line or no name of a
secret, 6 no such secret.`,
		Example: `  weir secret setup
  weir secret set GITHUB_TOKEN
  weir secret list`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			var known []string
			for _, c := range cmd.Commands() {
				known = append(known, c.Name())
			}
			return cli.Usagef("no such command %q%s", edge.Brief(args[0]), cli.DidYouMean(args[0], known, "`weir secret --help` lists them"))
		},
	}
	cmd.AddCommand(a.secretSetupCommand(), a.secretSetCommand(), a.secretGetCommand(), a.secretListCommand(),
		a.secretDeleteCommand(), a.secretImportCommand(), a.secretUnlockCommand(), a.secretExportKeyCommand())
	return cmd
}

// oneSecret wants the name of one secret. A word too many may be a value, and is not shown.
func oneSecret(_ *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return cli.Usagef("name a secret")
	case len(args) > 1:
		return cli.Usagef("one name is enough: a value never stands on the command line, where others can see it")
	}
	if _, err := secret.ParseRef(args[0]); err != nil {
		return cli.Usagef("%s", err)
	}
	return nil
}

// completeSecret completes the name of a secret where no password has to be asked for.
func (a *Commands) completeSecret(x *secretFlags) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) (names []string, _ cobra.ShellCompDirective) {
		if p, err := a.provider(x.dir); err == nil && len(args) == 0 {
			if e, ok := p.(*secret.Encrypted); ok {
				_, _ = e.UnlockFrom(cmd.Context(), secret.InEnvironment(a.Lookup))
			}
			all, _ := p.List(cmd.Context()) // none where that cannot be had
			for _, r := range all {
				names = append(names, r.String())
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// secretCommandOf is a command about one secret.
func (a *Commands) secretCommandOf(cmd *cobra.Command, do func(ctx context.Context, x *secretFlags, p secret.Provider, r secret.Ref) error) *cobra.Command {
	var x secretFlags
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := cli.UntilSignal(cmd)
		defer stop()
		r, err := secret.ParseRef(args[0])
		if err != nil {
			return err
		}
		p, err := a.Unlocked(ctx, x.dir)
		if err == nil {
			err = do(ctx, &x, p, r)
		}
		return cli.Interrupted(ctx, a.unknownSecret(ctx, p, r, err))
	}
	cmd.Args = oneSecret
	x.add(cmd)
	cmd.ValidArgsFunction = a.completeSecret(&x)
	return cmd
}

// unknownSecret makes an error for the user of one about a secret that is nowhere.
func (a *Commands) unknownSecret(ctx context.Context, p secret.Provider, r secret.Ref, err error) error {
	if !errors.Is(err, secret.ErrNowhere) {
		return err
	}
	next := "set that variable, or keep secrets in a file that `weir secret setup` makes"
	if all, err := p.List(ctx); err == nil {
		var known []string
		for _, one := range all {
			known = append(known, one.String())
		}
		next = strings.TrimPrefix(cli.DidYouMean(r.String(), known, "`weir secret list` shows what there is"), ": ")
	}
	return &workload.Error{Code: workload.CodeNotFound, Message: err.Error(), Next: next}
}

func (a *Commands) secretSetCommand() *cobra.Command {
	return a.secretCommandOf(&cobra.Command{
		Use:   "set NAME",
		Short: "Keep a secret",
		Long: `Keep a secret, in the place of the one of that name. The value is asked for on the
terminal, which does not show it, or read from standard input, less one line
break at its end. It has at most 1 MiB.`,
		Example: `  weir secret set GITHUB_TOKEN
  weir secret set tls/key.pem < key.pem
  pass show github | weir secret set GITHUB_TOKEN`,
	}, func(ctx context.Context, x *secretFlags, p secret.Provider, r secret.Ref) error {
		if p.Name() != secret.EncryptedProvider { // which says what to do instead, before anything is typed
			return p.Set(ctx, map[secret.Ref]edge.Secret{r: ""})
		}
		value, err := a.valueOf(ctx, r)
		if err != nil {
			return err
		}
		if err := p.Set(ctx, map[secret.Ref]edge.Secret{r: value}); err != nil {
			return err
		}
		return x.print(a.Out, r.String()+" is kept\n", named{Name: r.String()})
	})
}

func (a *Commands) secretGetCommand() *cobra.Command {
	return a.secretCommandOf(&cobra.Command{
		Use:   "get NAME",
		Short: "Print a secret",
		Long: `Print a secret, as it is: a line break is added on a terminal alone. With
--format json there is an object: name, value.`,
		Example: `  weir secret get GITHUB_TOKEN
  weir secret get tls/key.pem > key.pem`,
	}, func(ctx context.Context, x *secretFlags, p secret.Provider, r secret.Ref) error {
		value, err := p.Get(ctx, r)
		if err != nil {
			return err
		}
		text := string(value)
		if !cli.WantsJSON(x.cmd) && cli.Terminal(a.Out) {
			text += "\n"
		}
		return x.print(a.Out, text, named{r.String(), &text})
	})
}

func (a *Commands) secretDeleteCommand() *cobra.Command {
	return a.secretCommandOf(&cobra.Command{
		Use:   "delete NAME",
		Short: "Forget a secret",
		Long: `Forget a secret. A server that was given it keeps it until it is started anew,
which it cannot be without it.`,
		Example: `  weir secret delete GITHUB_TOKEN
  weir secret delete tls/key.pem --format json`,
	}, func(ctx context.Context, x *secretFlags, p secret.Provider, r secret.Ref) error {
		if err := p.Delete(ctx, r); err != nil {
			return err
		}
		return x.print(a.Out, r.String()+" is forgotten\n", named{Name: r.String()})
	})
}

func (a *Commands) secretListCommand() *cobra.Command {
	var x secretFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the names of secrets",
		Long: `List the names of secrets, one a line; no value is shown. With --format json there
is a list of objects: name.`,
		Example: `  weir secret list
  weir secret list --format json`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			p, err := a.Unlocked(ctx, x.dir)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			all, err := p.List(ctx)
			if err != nil {
				return err
			}
			return x.print(a.Out, linesOf(all), objectsOf(all))
		},
	}
	x.add(cmd)
	return cmd
}

func linesOf(all []secret.Ref) string {
	var out strings.Builder
	for _, r := range all {
		out.WriteString(r.String() + "\n")
	}
	return out.String()
}

func objectsOf(all []secret.Ref) []named {
	out := make([]named, 0, len(all))
	for _, r := range all {
		out = append(out, named{Name: r.String()})
	}
	return out
}

func (a *Commands) secretImportCommand() *cobra.Command {
	var x secretFlags
	cmd := &cobra.Command{
		Use:   "import FILE|DIR",
		Short: "Keep the secrets of a file or a directory",
		Long: `Keep the secrets of a file of lines NAME=VALUE, as --env-file takes it, or of a
directory with a file NAME or NAME/KEY for each. All of them are kept, in the
place of those of the same names, or none. What is imported stays where it was.`,
		Example: `  weir secret import .env
  weir secret import /run/secrets`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			values, err := imported(ctx, args[0])
			if err != nil {
				return err
			}
			p, err := a.Unlocked(ctx, x.dir)
			if err == nil {
				err = p.Set(ctx, values)
			}
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			all := make([]secret.Ref, 0, len(values))
			for r := range values {
				all = append(all, r)
			}
			slices.SortFunc(all, func(a, b secret.Ref) int { return strings.Compare(a.String(), b.String()) })
			return x.print(a.Out, edge.Count(len(all), "secret")+" kept\n", objectsOf(all))
		},
	}
	cmd.Args = oneFile("name one file or directory")
	x.add(cmd)
	return cmd
}

// imported are the values of a file of variables, or of a directory.
func imported(ctx context.Context, path string) (map[secret.Ref]edge.Secret, error) {
	values := make(map[secret.Ref]edge.Secret)
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		err = importedFrom(ctx, path, values)
	default:
		err = importedLines(path, values)
	}
	if err == nil && len(values) == 0 {
		err = fmt.Errorf("%s: there is no secret in it", path)
	}
	return values, err
}

func importedLines(path string, values map[secret.Ref]edge.Secret) error {
	vars, err := envfile.Read(path)
	for _, one := range vars {
		name, value, _ := strings.Cut(one, "=")
		r, nameErr := secret.ParseRef(name)
		switch {
		case nameErr != nil:
			return fmt.Errorf("%s: the name of a variable is %w", path, nameErr)
		case value == "":
			return fmt.Errorf("%s: %s is empty: give it a value, or take the line out", path, r)
		}
		values[r] = edge.Secret(value)
	}
	return err
}

func importedFrom(ctx context.Context, path string, values map[secret.Ref]edge.Secret) error {
	nothing := func(string) (string, bool) { return "", false }
	p, err := secret.Choice{Dir: path, Configured: secret.DirectoryProvider, Lookup: nothing}.Provider()
	if err != nil {
		return err
	}
	all, err := p.List(ctx)
	if err != nil {
		return err
	}
	size := 0
	for _, r := range all {
		value, err := p.Get(ctx, r)
		if err != nil {
			return err
		}
		if size += len(value); size > secret.MaxFile || len(values) == secret.MaxSecrets {
			return fmt.Errorf("%s: more than %d secrets, or %d bytes", path, secret.MaxSecrets, secret.MaxFile)
		}
		values[r] = value
	}
	return nil
}

func (a *Commands) secretSetupCommand() *cobra.Command {
	var x secretFlags
	var keyring bool
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Make the file of encrypted secrets",
		Long: `Make the file of encrypted secrets, ` + secret.FileName + ` among your data. Its password is
that of WEIR_SECRETS_PASSWORD, or is asked for on the terminal. With --keyring the
keyring of the operating system keeps it, and without one to keep it is made up:
"weir secret export-key" shows it then.

Who forgets the password has lost the secrets. A file that is there is left alone.`,
		Example: `  weir secret setup
  weir secret setup --keyring`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			e, err := a.encrypted()
			if err != nil {
				return err
			}
			password, err := a.newPassword(ctx, keyring)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			var keep func() error
			if keyring {
				keep = func() error { return e.KeepInKeyring(ctx, a.Lookup, password) }
			}
			if err := e.Create(ctx, password, keep); err != nil {
				return cli.Interrupted(ctx, err)
			}
			if p, err := a.provider(x.dir); err != nil {
				return err
			} else if p.Name() != secret.EncryptedProvider {
				fmt.Fprintf(a.Err, "%s: it is not used yet: the provider %s is chosen: set %s=%s\n", cmd.CommandPath(), p.Name(), secret.ProviderVariable, secret.EncryptedProvider)
			}
			if _, err := a.unlockManager(ctx, password); err != nil {
				fmt.Fprintf(a.Err, "%s: the manager that runs does not have the password: %v\n", cmd.CommandPath(), err)
			}
			return x.print(a.Out, "secrets are kept in "+e.Path()+"\n", map[string]string{"file": e.Path()})
		},
	}
	x.add(cmd)
	cmd.Flags().BoolVar(&keyring, "keyring", false, "keep the password in the operating system's keyring")
	return cmd
}

// newPassword is the password of a file that is to be made.
func (a *Commands) newPassword(ctx context.Context, keyring bool) (edge.Secret, error) {
	if text, ok := a.Lookup(secret.PasswordVariable); ok && text != "" {
		return edge.Secret(text), nil
	}
	if keyring {
		return edge.Secret(rand.Text()), nil
	}
	first, asked, err := a.AskUnseen(ctx, "New password: ")
	if err != nil {
		return "", err
	}
	if !asked {
		return "", errors.New("there is nobody to ask for a password: set " + secret.PasswordVariable + ", or have one made up with --keyring")
	}
	if len(first) < secret.MinPassword {
		return "", fmt.Errorf("a password has at least %d bytes: nothing is made: choose a longer one", secret.MinPassword)
	}
	again, _, err := a.AskUnseen(ctx, "The same once more: ")
	if err == nil && again != first {
		err = errors.New("the second password is another one than the first: nothing is made: try again")
	}
	return first, err
}

func (a *Commands) secretUnlockCommand() *cobra.Command {
	var x secretFlags
	var keyring bool
	cmd := &cobra.Command{
		Use:   "unlock",
		Short: "Give the manager of workloads the password",
		Long: `Give the manager of workloads, where it was started without it, the password of the
encrypted secrets: workloads that wait for a secret are started. With --keyring the
keyring of the operating system keeps the password, for the next time too.`,
		Example: `  weir secret unlock
  weir secret unlock --keyring`,
		Args:              cli.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			e, err := a.encrypted()
			if err != nil {
				return err
			}
			password, err := a.unlock(ctx, e, true)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if keyring {
				if err := e.KeepInKeyring(ctx, a.Lookup, password); err != nil {
					return cli.Interrupted(ctx, err)
				}
			}
			told, err := a.unlockManager(ctx, password)
			switch {
			case err != nil:
				return cli.Interrupted(ctx, err)
			case told:
				return x.print(a.Out, "the manager has the password\n", map[string]bool{"manager": true, "keyring": keyring})
			case keyring:
				return x.print(a.Out, "the keyring has the password\n", map[string]bool{"manager": false, "keyring": true})
			}
			return &workload.Error{Code: workload.CodeFault, Message: "the password is right, and no manager runs that could take it", Next: "start one with `weir up`"}
		},
	}
	x.add(cmd)
	cmd.Flags().BoolVar(&keyring, "keyring", false, "keep the password in the operating system's keyring")
	return cmd
}

// HandOver gives the manager the password, for which the user is asked where need be.
func (a *Commands) HandOver(ctx context.Context) error {
	e, err := a.encrypted()
	if err != nil {
		return err
	}
	password, err := a.unlock(ctx, e, true)
	if err == nil {
		_, err = a.unlockManager(ctx, password)
	}
	return err
}

// unlockManager gives the password to the manager, where one runs.
func (a *Commands) unlockManager(ctx context.Context, password edge.Secret) (told bool, err error) {
	m, err := a.Manager(ctx, false)
	if errors.Is(err, workload.ErrNoManager) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	unlocks, ok := m.(interface {
		Unlock(ctx context.Context, password edge.Secret) error
	})
	if !ok {
		return false, errors.New("the manager takes no password")
	}
	return true, unlocks.Unlock(ctx, password)
}

// oneFile wants the name of one file.
func oneFile(otherwise string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.Usagef("%s", otherwise)
		}
		return nil
	}
}

func (a *Commands) secretExportKeyCommand() *cobra.Command {
	var x secretFlags
	cmd := &cobra.Command{
		Use:   "export-key FILE",
		Short: "Write the password of the encrypted secrets to a file",
		Long: `Write the password of the encrypted secrets to a file that you alone can read, or
to standard output for "-": to keep it elsewhere, or to open a copy of the secrets
on another machine with WEIR_SECRETS_PASSWORD. A file that is there is left alone.`,
		Example: `  weir secret export-key secrets.password
  weir secret export-key - | pass insert -m weir`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cli.UntilSignal(cmd)
			defer stop()
			e, err := a.encrypted()
			if err != nil {
				return err
			}
			password, err := a.unlock(ctx, e, true)
			if err != nil {
				return cli.Interrupted(ctx, err)
			}
			if args[0] == "-" {
				_, err := fmt.Fprintln(a.Out, string(password))
				return err
			}
			f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return err
			}
			if _, err = fmt.Fprintln(f, string(password)); err != nil {
				return errors.Join(err, f.Close())
			}
			if err := f.Close(); err != nil {
				return err
			}
			return x.print(a.Out, "the password is in "+args[0]+"\n", map[string]string{"file": args[0]})
		},
	}
	cmd.Args = oneFile("name one file, or - for standard output")
	x.add(cmd)
	return cmd
}
