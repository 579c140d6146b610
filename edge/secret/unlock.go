package secret

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-edge/weir/edge"
)

// PasswordVariable is the variable with the password of the encrypted provider.
const PasswordVariable = "WEIR_SECRETS_PASSWORD"

// Source is somewhere the password may be known.
type Source struct {
	Name     string                                         // for errors
	Password func(ctx context.Context) (edge.Secret, error) // "" where it is not known there
}

// InEnvironment is the variable WEIR_SECRETS_PASSWORD as a source.
func InEnvironment(lookup func(name string) (string, bool)) Source {
	return Source{PasswordVariable, func(context.Context) (edge.Secret, error) {
		text, _ := lookup(PasswordVariable)
		return edge.Secret(text), nil
	}}
}

// UnlockFrom unlocks what is locked with the password of the first source that has the right
// one, and returns that. The error is ErrLocked where none has it, and says what each of them
// had instead.
func (e *Encrypted) UnlockFrom(ctx context.Context, sources ...Source) (edge.Secret, error) {
	_, err := e.load()
	if err == nil || !errors.Is(err, ErrLocked) {
		return "", err
	}
	var wrong []error
	for _, s := range sources {
		password, err := s.Password(ctx)
		if err == nil && password == "" {
			continue
		}
		if err == nil {
			err = e.Unlock(password)
		}
		switch {
		case err == nil:
			return password, nil
		case ctx.Err() != nil:
			return "", err
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", s.Name, err))
	}
	return "", errors.Join(append(wrong, err)...)
}
