package main

import (
	"fmt"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/compile"
	"github.com/weir-edge/weir/edge/secret"
)

// secretsOf is the secrets that a plan would be served with: those of a
// directory, of its own documents, and of the environment.
func secretsOf(plan *compile.Plan, dir string, environ []string) (edge.Secrets, error) {
	all, err := secret.New(secret.Options{Dir: dir, Lookup: func(name string) (string, bool) { return lookup(environ, name) }})
	if err != nil {
		return nil, fmt.Errorf("--secrets-dir: %w: name a directory with a file NAME/KEY for each secret", err)
	}
	return all.Draft(plan.Secrets), nil
}
