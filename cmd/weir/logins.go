package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weir-edge/weir/cmd/weir/auth"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/oauth"
	"github.com/weir-edge/weir/edge/oauth/login"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/serve"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/edge/workload"
)

// Logins to servers at URLs: the manager sends them and has them renewed, and a command asks
// the user for them.

// openLogin is for serve.WithLogins: the login that is kept is sent, and nobody is asked.
func (a *app) openLogin(l serve.Login, env edge.Env) (*edge.Credential, error) {
	store, err := a.credentials(&access{})
	if err != nil {
		return nil, err
	}
	client, err := oauth.New(oauth.Options{Reach: env.Reach, Timeout: 10 * time.Second})
	if err != nil {
		return nil, err
	}
	o := auth.OptionsOf(l.URL, &l.How)
	if r := l.How.ClientSecretRef; r != nil {
		o.ReadClientSecret = func() (edge.Secret, error) {
			value, err := env.Secrets.Secret(context.Background(), r.Name, r.Key)
			if err != nil {
				return "", fmt.Errorf("spec.run.remoteAuth.clientSecretRef: %w", err)
			}
			return value.Trimmed(), nil
		}
		if _, err := o.ReadClientSecret(); err != nil { // found out at once, not at the first renewal
			client.Close()
			return nil, err
		}
	}
	s, err := login.Open(o, store, client, true)
	if err != nil {
		client.Close()
		return nil, err
	}
	env.Defer(client.Close)
	return auth.Credential(s), nil
}

// attended reports whether there is somebody who can log in.
func (a *app) attended() bool {
	_, browser := lookup(a.environ, "BROWSER")
	return browser || terminal(a.in) || terminal(a.err)
}

// logIn asks the user for the login of a workload, whatever is kept. secrets are those of the
// command line.
func (a *app) logIn(ctx context.Context, cmd *cobra.Command, manifest []byte, secrets []workload.Secret) error {
	plan, _, err := workload.Check(manifest)
	if err != nil {
		return err
	}
	s, b := &plan.Servers[0], &plan.Servers[0].Backends[0]
	switch {
	case b.Login == nil:
		return &workload.Error{Code: workload.CodeLogin, Message: s.Name + " wants a credential, and its manifest describes none", Next: "weir run --replace --name " + s.Name + " --remote-auth URL, with the rest of what it was run with"}
	case b.Login.BearerTokenPath != "":
		return &workload.Error{Code: workload.CodeLogin, Message: s.Name + " refuses the token in " + b.Login.BearerTokenPath, Next: "write one that it takes into the file, then weir start " + s.Name}
	case !a.attended():
		return &workload.Error{Code: workload.CodeLogin, Message: s.Name + " wants a login, and there is no terminal", Next: "weir start " + s.Name + ", at a terminal"}
	}
	o := auth.OptionsOf(b.URL, b.Login)
	if o.ClientSecret, err = a.clientSecret(ctx, b.Login.ClientSecretRef, secrets); err != nil {
		return err
	}
	session, err := a.session(cmd, &access{caBundle: s.Roots}, b.URL, &o, 0)
	if err != nil {
		return err
	}
	_, err = session.Login(ctx)
	switch {
	case err == nil, ctx.Err() != nil:
		return err
	case errors.Is(err, syscall.EADDRINUSE):
		return &workload.Error{Code: workload.CodeTaken, Field: "--remote-auth-callback-port", Message: "--remote-auth-callback-port: " + net.JoinHostPort("127.0.0.1", fmt.Sprint(o.CallbackPort)) + " is taken", Next: "give another --remote-auth-callback-port"}
	}
	return &workload.Error{Code: workload.CodeLogin, Message: "the login to " + s.Name + " failed: " + err.Error(), Next: "weir start " + s.Name + " tries once more"}
}

// clientSecret is the secret of a client: of the command line, or one that is kept; "" for none.
func (a *app) clientSecret(ctx context.Context, r *v1beta1.SecretRef, given []workload.Secret) (edge.Secret, error) {
	if r == nil {
		return "", nil
	}
	for _, s := range given {
		if s.Name == r.Name && s.Key == r.Key {
			return s.Value, nil
		}
	}
	o, _, locked, err := a.secrets().OfWorkloads(ctx, "", true)
	if err != nil {
		return "", err
	}
	all, err := secret.New(o)
	if err != nil {
		return "", err
	}
	value, err := all.Secret(ctx, r.Name, r.Key)
	if err != nil && locked != nil {
		return "", locked
	}
	return value.Trimmed(), err
}

// wantsLogin reports whether an error is that somebody has to log in.
func wantsLogin(err error) bool {
	var e *workload.Error
	return errors.As(err, &e) && e.Code == workload.CodeLogin
}
