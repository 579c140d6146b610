package login

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// FileName is the name of the file in a store's folder.
const FileName = "credentials"

// Bounds of the file.
const (
	maxFile   = 4 << 20 // bytes
	maxLogins = 1000
	maxLocked = 15 * time.Second // how long others may hold a lock
)

// Kept is one login: to which server, by whose authority, as which client, and what was
// given.
type Kept struct {
	URL       string    `json:"url"` // of the MCP server, as it was named
	Settings  Settings  `json:"settings"`
	Resource  string    `json:"resource,omitempty"`
	Issuer    string    `json:"issuer,omitempty"` // "" where the endpoints have no metadata
	Endpoint  string    `json:"tokenEndpoint"`
	Methods   []string  `json:"tokenEndpointAuthMethods,omitempty"`
	Client    Client    `json:"client"`
	Requested []string  `json:"requestedScopes,omitempty"`
	Tokens    Tokens    `json:"tokens"`
	Since     time.Time `json:"since"` // of the login

	// Main says that commands which name the URL alone use this one of several.
	Main bool `json:"main,omitempty"`
}

// Settings are the options that a later command needs to renew a login. Secrets that stand
// in files stay there.
type Settings struct {
	Grant               Grant    `json:"grant,omitempty"`
	Issuer              string   `json:"issuer,omitempty"`
	AuthorizeURL        string   `json:"authorizeURL,omitempty"`
	TokenURL            string   `json:"tokenURL,omitempty"`
	ClientID            string   `json:"clientID,omitempty"`
	ClientSecretFile    string   `json:"clientSecretFile,omitempty"`
	PrivateKeyFile      string   `json:"privateKeyFile,omitempty"`
	ClientMetadataURL   string   `json:"clientMetadataURL,omitempty"`
	Scopes              []string `json:"scopes,omitempty"`
	ScopeParam          string   `json:"scopeParam,omitempty"`
	Resource            string   `json:"resource,omitempty"`
	CallbackPort        int      `json:"callbackPort,omitempty"`
	SkipBrowser         bool     `json:"skipBrowser,omitempty"`
	IDPTokenURL         string   `json:"idpTokenURL,omitempty"`
	IDPClientID         string   `json:"idpClientID,omitempty"`
	IDPClientSecretFile string   `json:"idpClientSecretFile,omitempty"`
	IDTokenFile         string   `json:"idTokenFile,omitempty"`
}

// settings are those of the options that are kept.
func (o *Options) settings() Settings {
	return Settings{
		o.Grant, o.Issuer, o.AuthorizeURL, o.TokenURL, o.ClientID, o.ClientSecretFile, o.PrivateKeyFile, o.ClientMetadataURL,
		o.Scopes, o.ScopeParam, o.Resource, o.CallbackPort, o.SkipBrowser, o.IDPTokenURL, o.IDPClientID, o.IDPClientSecretFile, o.IDTokenFile,
	}
}

// Options are those of a login that was kept.
func (k *Kept) Options() Options {
	s := k.Settings
	return Options{
		URL: k.URL, Grant: s.Grant, Issuer: s.Issuer, AuthorizeURL: s.AuthorizeURL, TokenURL: s.TokenURL, ClientID: s.ClientID,
		ClientSecretFile: s.ClientSecretFile, PrivateKeyFile: s.PrivateKeyFile, ClientMetadataURL: s.ClientMetadataURL,
		Scopes: s.Scopes, ScopeParam: s.ScopeParam, Resource: s.Resource, CallbackPort: s.CallbackPort, SkipBrowser: s.SkipBrowser,
		IDPTokenURL: s.IDPTokenURL, IDPClientID: s.IDPClientID, IDPClientSecretFile: s.IDPClientSecretFile, IDTokenFile: s.IDTokenFile,
	}
}

// Client is the OAuth client that a login was made as.
type Client struct {
	How      string    `json:"how,omitempty"`
	Issuer   string    `json:"issuer,omitempty"` // that knows it
	ID       string    `json:"id,omitempty"`
	Secret   string    `json:"secret,omitempty"` // of a registered one
	Method   string    `json:"method,omitempty"` // of authentication, as the registration says
	Endpoint string    `json:"registrationEndpoint,omitempty"`
	Redirect string    `json:"redirect,omitempty"`
	Expires  time.Time `json:"secretExpires,omitzero"`
	Doubted  bool      `json:"doubted,omitempty"` // the server may have forgotten it: the next login registers another
}

// over reports whether the secret of a client has expired.
func (c Client) over(now time.Time) bool { return !c.Expires.IsZero() && !now.Before(c.Expires) }

// generation tells clients apart: a refresh token is of one generation (RFC 6749 §6).
func (c Client) generation() string {
	sum := sha256.Sum256([]byte(strings.Join([]string{c.How, c.Issuer, c.Endpoint, c.ID, c.Secret}, "\x00")))
	return hex.EncodeToString(sum[:8])
}

// Tokens are what an authorization server gave.
type Tokens struct {
	Access  string    `json:"access,omitempty"`
	Refresh string    `json:"refresh,omitempty"`
	Expires time.Time `json:"expires,omitzero"`
	Scopes  []string  `json:"scopes,omitempty"` // that were granted
	Of      string    `json:"of,omitempty"`     // generation of the client that they were given to
}

// Store is a folder with the file of all logins. The zero value, with a Dir, keeps the file as
// plain text that only its owner can read. It may be used by several processes at once.
type Store struct {
	Dir  string
	Keys [][]byte // of 32 bytes: the first seals the file (AES-256-GCM), all open it; nil for plain text
}

// DefaultDir is the folder of this program in the user's configuration folder.
func DefaultDir() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("the user's configuration folder: %w", err)
	}
	return filepath.Join(dir, "weir"), nil
}

func (s *Store) path() string { return filepath.Join(s.Dir, FileName) }

// file is what the file holds: logins, or the same sealed.
type file struct {
	Version int    `json:"version"`
	Logins  []Kept `json:"logins,omitempty"`
	Salt    []byte `json:"salt,omitempty"`
	Sealed  []byte `json:"sealed,omitempty"`
}

const fileVersion = 1

// damaged ends an error about a file that cannot be read.
const damaged = "move it away, and log in again with `weir auth login`"

// List returns all logins, ordered by their URLs; of those to one server, first the one that
// commands use which name the URL alone.
func (s *Store) List() ([]Kept, error) {
	f, err := os.Open(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	info, err := f.Stat()
	var text []byte
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, maxFile+1))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	switch {
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("credentials: %s can be read by others than its owner: take the right away with chmod 600, or %s", s.path(), damaged)
	case len(text) > maxFile:
		return nil, fmt.Errorf("credentials: %s has more than %d bytes: %s", s.path(), maxFile, damaged)
	}
	return s.parse(text)
}

// parse reads the file.
func (s *Store) parse(text []byte) ([]Kept, error) {
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, fmt.Errorf("credentials: %s is damaged: %s", s.path(), damaged)
	}
	if f.Version != fileVersion {
		return nil, fmt.Errorf("credentials: %s is of version %d, which this program does not know: update it, or %s", s.path(), f.Version, damaged)
	}
	if f.Sealed != nil {
		opened, err := s.open(f)
		if err != nil {
			return nil, err
		}
		f.Logins = nil
		if err := json.Unmarshal(opened, &f.Logins); err != nil {
			return nil, fmt.Errorf("credentials: %s is damaged: %s", s.path(), damaged)
		}
	}
	if len(f.Logins) > maxLogins {
		return nil, fmt.Errorf("credentials: %s has more than %d logins: %s", s.path(), maxLogins, damaged)
	}
	slices.SortStableFunc(f.Logins, order)
	return f.Logins, nil
}

// open opens a sealed file.
func (s *Store) open(f file) ([]byte, error) {
	if len(s.Keys) == 0 {
		return nil, fmt.Errorf("credentials: %s is sealed: name the file of its key with --auth-key-file", s.path())
	}
	for _, key := range s.Keys {
		aead, err := sealer(key, f.Salt)
		if err != nil {
			return nil, err
		}
		if len(f.Sealed) < aead.NonceSize() {
			break
		}
		if opened, err := aead.Open(nil, f.Sealed[:aead.NonceSize()], f.Sealed[aead.NonceSize():], []byte(sealPurpose)); err == nil {
			return opened, nil
		}
	}
	return nil, fmt.Errorf("credentials: %s is sealed with another key than --auth-key-file has, or damaged: name the right file, or %s", s.path(), damaged)
}

const sealPurpose = "weir credentials 1"

// sealer is AES-256-GCM with a key that is used for one version of the file (RFC 5869).
func sealer(key, salt []byte) (cipher.AEAD, error) {
	derived, err := hkdf.Key(sha256.New, key, salt, sealPurpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(derived)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// Find returns the login to a server that was made with some settings, as far as they shape
// what is given; found is false when there is none.
func (s *Store) Find(url string, settings Settings) (kept Kept, found bool, err error) {
	all, err := s.List()
	for _, one := range all {
		if one.is(url, settings) {
			return one, true, nil
		}
	}
	return Kept{}, false, err
}

// Of returns all logins to a server, in the order of List.
func (s *Store) Of(url string) ([]Kept, error) {
	all, err := s.List()
	return slices.DeleteFunc(all, func(k Kept) bool { return k.URL != url }), err
}

// Room returns an error where one login more, to a server with some settings, could not be
// kept.
func (s *Store) Room(url string, settings Settings) error {
	all, err := s.List()
	if err == nil {
		_, err = room(all, url, settings, time.Now())
	}
	return err
}

// Put keeps a login, in the place of the one to the same server with the same settings. Of the
// logins to one server one at most is Main: the one that was put last.
func (s *Store) Put(ctx context.Context, kept Kept) error {
	return s.change(ctx, func(all []Kept) ([]Kept, error) {
		all, err := room(all, kept.URL, kept.Settings, time.Now())
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(k Kept) bool { return k.is(kept.URL, kept.Settings) })
		for i := range all {
			all[i].Main = all[i].Main && !(kept.Main && all[i].URL == kept.URL)
		}
		return append(all, kept), nil
	})
}

// Remove forgets the logins to a server, or with "" all of them.
func (s *Store) Remove(ctx context.Context, url string) error {
	return s.change(ctx, func(all []Kept) ([]Kept, error) {
		return slices.DeleteFunc(all, func(k Kept) bool { return url == "" || k.URL == url }), nil
	})
}

// change replaces the file, while no other process does.
func (s *Store) change(ctx context.Context, f func([]Kept) ([]Kept, error)) error {
	unlock, err := s.lock(ctx, FileName+".lock")
	if err != nil {
		return err
	}
	defer unlock()
	all, err := s.List()
	if err != nil {
		return err
	}
	if all, err = f(all); err != nil {
		return err
	}
	if len(all) > maxLogins {
		return fmt.Errorf("credentials: %d logins are too many: log out of some with `weir auth logout URL`", len(all))
	}
	return s.write(all)
}

// write replaces the file: whoever reads it sees the old one or the new one.
func (s *Store) write(all []Kept) error {
	out := file{Version: fileVersion, Logins: all}
	if len(s.Keys) > 0 {
		text, err := json.Marshal(all)
		if err != nil {
			return err
		}
		out = file{Version: fileVersion, Salt: make([]byte, 32)}
		_, _ = rand.Read(out.Salt) // which does not fail (crypto/rand)
		aead, err := sealer(s.Keys[0], out.Salt)
		if err != nil {
			return err
		}
		nonce := make([]byte, aead.NonceSize())
		_, _ = rand.Read(nonce)
		out.Sealed = aead.Seal(nonce, nonce, text, []byte(sealPurpose))
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return fmt.Errorf("credentials: more than %d bytes: log out of some servers with `weir auth logout URL`", maxFile)
	}

	// What a process left that was killed while it wrote is nobody's now: this one holds the
	// lock.
	left, _ := filepath.Glob(filepath.Join(s.Dir, FileName+".new-*"))
	for _, path := range left {
		_ = os.Remove(path)
	}
	f, err := os.CreateTemp(s.Dir, FileName+".new-*") // 0600
	if err != nil {
		return fmt.Errorf("credentials: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), s.path())
	}
	if err != nil {
		return fmt.Errorf("credentials: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// Turn waits until no other process renews the login to a server with some settings, and keeps
// others from it until done is called.
func (s *Store) Turn(ctx context.Context, url string, settings Settings) (done func(), err error) {
	sum := sha256.Sum256([]byte(url + settings.key()))
	return s.lock(ctx, FileName+"."+hex.EncodeToString(sum[:8])+".lock")
}

// lock takes a lock that ends with the process. A lock file stays: who removed it would give
// the lock to two.
func (s *Store) lock(ctx context.Context, name string) (unlock func(), err error) {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("credentials: %w", err)
	}
	if info, err := os.Stat(s.Dir); err == nil && runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		if err := os.Chmod(s.Dir, 0o700); err != nil {
			return nil, fmt.Errorf("credentials: others than its owner can look into the folder: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, maxLocked)
	defer cancel()
	path := filepath.Join(s.Dir, name)
	f, err := edge.AwaitLock(ctx, path)
	if errors.Is(err, edge.ErrHeld) {
		return nil, fmt.Errorf("credentials: another process holds %s: %w", path, ctx.Err())
	}
	if err != nil {
		return nil, fmt.Errorf("credentials: lock: %w", err)
	}
	return func() { _ = f.Close() }, nil // which gives the lock back
}
