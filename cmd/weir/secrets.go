package main

import (
	"context"
	"fmt"

	"github.com/weir-edge/weir/cmd/weir/secrets"
	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/source"
)

// secretsOf is the secrets that a set would be served with: those of a
// directory, of its own documents, and of the environment, or of another provider.
func secretsOf(set *source.Set, dir string, environ []string) (edge.Secrets, error) {
	o, err := secrets.Searched(context.Background(), dir, environ)
	if err != nil {
		return nil, err
	}
	all, err := secret.New(o)
	if err != nil {
		return nil, fmt.Errorf("--secrets-dir: %w: name a directory with a file NAME/KEY for each secret", err)
	}
	return all.Draft(set.Secrets()), nil
}
