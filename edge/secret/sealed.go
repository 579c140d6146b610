package secret

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/crypto/argon2"

	"github.com/weir-edge/weir/edge"
)

// The form of the file. All of it but the sealed part is open to read:
//
//	8 bytes   magic, the last of them the version
//	4, 4, 1   cost of Argon2id (RFC 9106): passes, KiB of memory, lanes
//	16        salt of it
//	16        check: begins HMAC-SHA256 of all before it, and tells a wrong password
//	12        nonce, another one each time the file is written
//	…         values, sealed by AES-256-GCM with all before them as additional data
//	32        SHA-256 of all before it, and tells a file that is not whole
const (
	magic      = "weirsec\x01"
	saltSize   = 16
	checkSize  = 16
	nonceSize  = 12
	costSize   = 4 + 4 + 1
	checkAt    = len(magic) + costSize + saltSize
	headSize   = checkAt + checkSize + nonceSize
	tagSize    = 16 // of GCM
	digestSize = sha256.Size
)

// Bounds of the file.
const (
	MaxSecrets = 10_000
	MaxFile    = 64 << 20 // bytes
)

// Errors of a file of secrets. What is there is never written over because of one.
var (
	ErrDamaged  = errors.New("the file is damaged")
	ErrPassword = errors.New("this is not its password")
	ErrNewer    = errors.New("the file is of a version that this program does not know")
)

// cost is that of making a key of a password.
type cost struct {
	Passes uint32
	Memory uint32 // KiB
	Lanes  uint8
}

// usual is the second choice of RFC 9106 §4, for machines that lack memory for the first.
var usual = cost{Passes: 3, Memory: 64 << 10, Lanes: 4}

// most bounds what a file may ask for.
var most = cost{Passes: 64, Memory: 1 << 20, Lanes: 64}

// sound reports whether a key can be made at this cost.
func (c cost) sound() bool {
	return c.Passes >= 1 && c.Lanes >= 1 && c.Memory >= 8*uint32(c.Lanes) &&
		c.Passes <= most.Passes && c.Memory <= most.Memory && c.Lanes <= most.Lanes
}

// key is made of a password, and opens the files with its salt.
type key struct {
	cost  cost
	salt  [saltSize]byte
	seal  [32]byte // AES-256
	check [32]byte // HMAC
}

// newKey makes the key of a password.
func newKey(password edge.Secret, c cost, salt [saltSize]byte) *key {
	k := &key{cost: c, salt: salt}
	made := argon2.IDKey([]byte(password), salt[:], c.Passes, c.Memory, c.Lanes, uint32(len(k.seal)+len(k.check)))
	copy(k.seal[:], made)
	copy(k.check[:], made[len(k.seal):])
	return k
}

// head is what a file begins with.
func (k *key) head() []byte {
	out := append(make([]byte, 0, headSize), magic...)
	out = binary.BigEndian.AppendUint32(out, k.cost.Passes)
	out = binary.BigEndian.AppendUint32(out, k.cost.Memory)
	out = append(out, k.cost.Lanes)
	out = append(out, k.salt[:]...)
	mac := hmac.New(sha256.New, k.check[:])
	mac.Write(out)
	return append(out, mac.Sum(nil)[:checkSize]...)
}

// aead is the cipher of the sealed part.
func (k *key) aead() (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.seal[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// encode is the file with values.
func (k *key) encode(values map[Ref]edge.Secret) ([]byte, error) {
	plain, err := pack(values)
	if err != nil {
		return nil, err
	}
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // which does not fail (crypto/rand)
	out := append(k.head(), nonce...)
	out = aead.Seal(out, nonce, plain, out)
	sum := sha256.Sum256(out)
	if out = append(out, sum[:]...); len(out) > MaxFile {
		return nil, fmt.Errorf("all secrets together have more than %d bytes: delete some", MaxFile)
	}
	return out, nil
}

// sealed is a file that is whole.
type sealed struct {
	cost cost
	salt [saltSize]byte
	head []byte // up to the nonce, which it includes
	body []byte
}

// decode reads a file as far as it goes without its key: the errors are ErrDamaged and
// ErrNewer.
func decode(text []byte) (*sealed, error) {
	known := bytes.HasPrefix(text, []byte(magic[:len(magic)-1]))
	if known && len(text) > len(magic) && text[len(magic)-1] != magic[len(magic)-1] {
		return nil, ErrNewer
	}
	if !known || len(text) < headSize+tagSize+digestSize || len(text) > MaxFile {
		return nil, ErrDamaged
	}
	end := len(text) - digestSize
	if sum := sha256.Sum256(text[:end]); !bytes.Equal(sum[:], text[end:]) {
		return nil, ErrDamaged
	}
	s := &sealed{head: text[:headSize], body: text[headSize:end]}
	c := text[len(magic):]
	s.cost = cost{binary.BigEndian.Uint32(c), binary.BigEndian.Uint32(c[4:]), c[8]}
	copy(s.salt[:], c[costSize:])
	if !s.cost.sound() {
		return nil, ErrDamaged
	}
	return s, nil
}

// made reports whether a file was made with the key.
func (s *sealed) made(k *key) bool {
	return hmac.Equal(k.head(), s.head[:checkAt+checkSize])
}

// open returns the values of a file that was made with the key.
func (s *sealed) open(k *key) (map[Ref]edge.Secret, error) {
	aead, err := k.aead()
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, s.head[headSize-nonceSize:], s.body, s.head)
	if err != nil {
		return nil, ErrDamaged
	}
	return unpack(plain)
}

// pack writes values, each with its name, each of them with its length before it, in the
// order of the names.
func pack(values map[Ref]edge.Secret) ([]byte, error) {
	if len(values) > MaxSecrets {
		return nil, fmt.Errorf("more than %d secrets: delete some", MaxSecrets)
	}
	var out []byte
	for _, r := range sorted(values) {
		name := r.Name + "/" + r.Key
		value := values[r]
		if !valid(r.Name) || !valid(r.Key) {
			return nil, ErrName
		}
		if _, err := checked(r, "its value", value); err != nil {
			return nil, err
		}
		out = binary.BigEndian.AppendUint16(out, uint16(len(name))) // at most twice maxName, and a slash
		out = append(out, name...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(value)))
		out = append(out, value...)
	}
	return out, nil
}

// unpack reads what pack wrote.
func unpack(plain []byte) (map[Ref]edge.Secret, error) {
	values := make(map[Ref]edge.Secret)
	take := func(size int) (text []byte, ok bool) {
		if size > len(plain) {
			return nil, false
		}
		text, plain = plain[:size], plain[size:]
		return text, true
	}
	for len(plain) > 0 {
		head, ok := take(2)
		if !ok {
			return nil, ErrDamaged
		}
		name, ok := take(int(binary.BigEndian.Uint16(head)))
		if !ok {
			return nil, ErrDamaged
		}
		r, err := ParseRef(string(name))
		if _, twice := values[r]; err != nil || twice || !bytes.Contains(name, []byte{'/'}) || len(values) == MaxSecrets {
			return nil, ErrDamaged
		}
		if head, ok = take(4); !ok {
			return nil, ErrDamaged
		}
		size := binary.BigEndian.Uint32(head)
		value, ok := take(int(min(size, MaxFile)))
		if !ok || size == 0 || size > MaxSize {
			return nil, ErrDamaged
		}
		values[r] = edge.Secret(value)
	}
	return values, nil
}

// sorted are the names of values in order.
func sorted(values map[Ref]edge.Secret) []Ref {
	all := make([]Ref, 0, len(values))
	for r := range values {
		all = append(all, r)
	}
	slices.SortFunc(all, Ref.compare)
	return all
}
