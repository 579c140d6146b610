package workload

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/secret"
)

// UnlockPath is the path on the manager's socket to which the password of the encrypted
// secrets is posted, as it is.
const UnlockPath = "/secrets/unlock"

// Unlock gives the manager the password of the encrypted secrets. Errors are *Error where
// they are the user's.
func (c *Client) Unlock(ctx context.Context, password edge.Secret) error {
	return c.ask(ctx, http.MethodPost, UnlockPath, nil, []byte(password), nil)
}

// Unlocking takes the passwords that are posted to UnlockPath. after, which may be nil, is
// called when the secrets have been unlocked: what waits for one can go on.
func Unlocking(e *secret.Encrypted, after func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refuse := func(status int, code Code, message string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]*Error{"error": {Code: code, Message: message}}) // nobody else to tell
		}
		if r.Method != http.MethodPost {
			refuse(http.StatusMethodNotAllowed, CodeInvalid, "a password is posted")
			return
		}
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, secret.MaxPassword))
		if err != nil {
			refuse(http.StatusBadRequest, CodeInvalid, "the password does not arrive whole, or is too long")
			return
		}
		switch err := e.Unlock(edge.Secret(text)); {
		case errors.Is(err, secret.ErrPassword):
			refuse(http.StatusForbidden, CodeRefused, err.Error())
			return
		case err != nil:
			refuse(http.StatusConflict, CodeFault, err.Error())
			return
		}
		if after != nil {
			after()
		}
	})
}
