package main

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/cli"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/source"
)

func (a *app) initCommand() *cobra.Command {
	var plain plainFlags
	var file, issuer, audience string
	var force bool
	cmd := &cobra.Command{
		Use:   "init [URL]...",
		Short: "Write a manifest to begin with",
		Long: `Write a manifest for MCP servers that are named by their URLs, with comments, to
go on from. It is what "weir serve URL" serves.

On a terminal, and without a URL, it asks for the servers, and who may use them.
It never writes over a file, unless --force says so.`,
		Example: `  weir init
  weir init http://127.0.0.1:9000/mcp
  weir init --backend wiki=http://127.0.0.1:9000/mcp -o wiki.yaml
  weir init https://tickets.example.com/mcp --bearer tickets
  weir init http://127.0.0.1:9000/mcp --issuer https://login.example.com --audience weir`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			backends, err := plain.backends(args)
			if err != nil {
				return err
			}
			if err := checkClients(issuer, audience); err != nil {
				return usagef("%s", err)
			}
			p := source.Plain{Name: "weir", Backends: backends, Issuer: issuer, Audience: audience}
			if _, err := os.Lstat(file); err == nil && !force {
				return fmt.Errorf("%s exists: name another file with -o, or write over it with --force", file)
			}
			if len(backends) == 0 {
				if !terminal(a.in) || !terminal(a.out) {
					return usagef("name the MCP servers, such as `weir init http://127.0.0.1:9000/mcp`: there is no terminal to ask on")
				}
				if err := a.interview(&p); err != nil {
					return err
				}
			}
			return a.begin(file, p, force)
		},
	}
	plain.add(cmd)
	cmd.Flags().StringVarP(&file, "output", "o", "weir.yaml", "the `FILE` to write")
	cmd.Flags().StringVar(&issuer, "issuer", "", "clients bring tokens of this OIDC issuer, a `URL`; without it everybody is let in")
	cmd.Flags().StringVar(&audience, "audience", "", "the `AUDIENCE` that the tokens have; needed with --issuer")
	cmd.Flags().BoolVar(&force, "force", false, "write over a file")
	if err := cmd.MarkFlagFilename("output", "yaml", "yml"); err != nil {
		panic(err) // the flag was added in the lines before
	}
	mustRegister(cmd, "issuer", nil)
	mustRegister(cmd, "audience", nil)
	return cmd
}

func checkClients(issuer, audience string) error {
	switch u, err := url.Parse(issuer); {
	case issuer == "" && audience == "":
		return nil
	case issuer == "":
		return errors.New("--audience is of tokens: name who issues them with --issuer")
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "":
		return fmt.Errorf("--issuer %s: write the URL of the issuer, such as https://login.example.com", brief(issuer))
	case u.Scheme == "http" && !source.Private(u.Hostname()):
		return fmt.Errorf("--issuer %s: write https: tokens and the keys that they are checked with must not pass in plain text", brief(issuer))
	case audience == "":
		return errors.New("--issuer needs --audience: a token of this issuer for another service must not be one for this")
	case edge.Clean(audience) != audience:
		return errors.New("--audience has characters that are none of a text")
	}
	return nil
}

// begin writes the manifest, once it is known to be one, and says what comes next.
func (a *app) begin(file string, p source.Plain, force bool) error {
	if err := a.refuse(source.OpenPlain(p)); err != nil {
		return err
	}
	write := newFile
	if force {
		write = cli.WriteFile
	}
	if err := write(file, p.Manifest(), 0o644); err != nil {
		return err
	}
	me := self()
	fmt.Fprintf(a.out, "%s: written, for %s\n", file, strings.Join(namesOf(p.Backends), ", "))
	for _, b := range p.Backends {
		if b.Bearer {
			fmt.Fprintf(a.out, "Put the token of %s into %s\n", b.Name, secretVariable(b.Name))
		}
	}
	fmt.Fprintf(a.out, "See whether all is well:  %s doctor -c %s\nServe it:                 %s serve -c %s\n", me, file, me, file)
	return nil
}

// newFile writes a file that is not there yet.
func newFile(file string, text []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists: name another file with -o, or write over it with --force", file)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// maxAsked is how often a question is asked again.
const maxAsked = 5

// interview asks on the terminal what the command line does not say.
func (a *app) interview(p *source.Plain) error {
	in := bufio.NewReader(a.in)
	ask := func(question string, good func(string) error) (string, error) {
		for range maxAsked {
			fmt.Fprint(a.out, question+" ")
			line, err := in.ReadString('\n')
			if err != nil {
				fmt.Fprintln(a.out)
				return "", errInterrupted
			}
			answer := strings.TrimSpace(line)
			if err := good(answer); err == nil {
				return answer, nil
			} else {
				fmt.Fprintf(a.out, "  %s\n", err)
			}
		}
		return "", errors.New("no answer that can be used: nothing is written")
	}

	// 1. The servers.
	fmt.Fprintln(a.out, "Which MCP servers are to stand behind one URL?")
	for len(p.Backends) < maxPlain {
		question := "URL of a server:"
		if len(p.Backends) > 0 {
			question = "URL of another, or nothing:"
		}
		target, err := ask(question, func(s string) error {
			if s == "" && len(p.Backends) > 0 {
				return nil
			}
			_, err := urlOf(s)
			return err
		})
		if err != nil {
			return err
		}
		if target == "" {
			break
		}
		u, _ := urlOf(target)
		name, err := ask(fmt.Sprintf("Its name [%s]:", nameOf(u)), func(s string) error {
			if s == "" {
				s = nameOf(u)
			}
			for _, b := range p.Backends {
				if b.Name == s {
					return fmt.Errorf("%s is the name of %s: choose another", s, b.URL)
				}
			}
			return checkName(s)
		})
		if err != nil {
			return err
		}
		if name == "" {
			name = nameOf(u)
		}
		bearer, err := ask("Does it want a bearer token? [y/N]", yesOrNo)
		if err != nil {
			return err
		}
		p.Backends = append(p.Backends, source.PlainBackend{Name: name, URL: target, Bearer: yes(bearer)})
	}

	// 2. The clients.
	fmt.Fprintln(a.out, "Who may use them? Whoever reaches the address, or clients with tokens of an OIDC issuer.")
	issuer, err := ask("URL of the issuer, or nothing for everybody:", func(s string) error {
		if s == "" {
			return nil
		}
		return checkClients(s, "any")
	})
	if err != nil || issuer == "" {
		return err
	}
	p.Issuer = issuer
	p.Audience, err = ask("The audience of the tokens, such as the URL of this edge:", func(s string) error { return checkClients(issuer, s) })
	return err
}

func yes(answer string) bool { return strings.HasPrefix(strings.ToLower(answer), "y") }

func yesOrNo(answer string) error {
	switch strings.ToLower(answer) {
	case "", "y", "yes", "n", "no":
		return nil
	}
	return errors.New("answer y or n")
}
