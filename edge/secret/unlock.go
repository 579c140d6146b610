package secret

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

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
// one. The error is ErrLocked where none has it, and says what each of them had instead.
func (e *Encrypted) UnlockFrom(ctx context.Context, sources ...Source) error {
	_, err := e.load()
	if err == nil || !errors.Is(err, ErrLocked) {
		return err
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
			return nil
		case ctx.Err() != nil:
			return err
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", s.Name, err))
	}
	return errors.Join(append(wrong, err)...)
}

// UnlockPath is the path on a manager's socket to which the password is posted, as it is. The
// answer is 204; 403 where it is another one, with a line of text for the user.
const UnlockPath = "/v1/secrets/unlock"

// Unlocking takes passwords that are posted to UnlockPath. after, which may be nil, is called
// when something has been unlocked: what waits for a secret can go on.
func (e *Encrypted) Unlocking(after func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "a password is posted", http.StatusMethodNotAllowed)
			return
		}
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxPassword))
		if err != nil {
			http.Error(w, "the password does not arrive whole", http.StatusBadRequest)
			return
		}
		switch err := e.Unlock(edge.Secret(text)); {
		case errors.Is(err, ErrPassword):
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
			return
		}
		if after != nil {
			after()
		}
		w.WriteHeader(http.StatusNoContent)
	})
}
