package outgoing

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of what stands in an answer of a security token service.
const (
	maxXMLDepth = 8
	maxKeyID    = 128 // characters (AssumeRoleWithWebIdentity, Credentials)
	maxKey      = 256
	maxSTSToken = 16 << 10
)

// session is what a security token service gives: credentials for a time.
type session struct {
	id, secret, token string
	expires           time.Time
}

// parseSession reads the answer to AssumeRoleWithWebIdentity. Its errors hold nothing of it.
func parseSession(text []byte) (*session, error) {
	const at = "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/"
	names := []string{"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"}
	var paths []string
	for _, name := range names {
		paths = append(paths, at+name)
	}
	got, err := elements(text, paths)
	if err != nil {
		return nil, err
	}
	bounds := []int{maxKeyID, maxKey, maxSTSToken, maxKeyID}
	for i, value := range got {
		switch {
		case value == "":
			return nil, fmt.Errorf("%s: there is none", names[i])
		case len(value) > bounds[i]:
			return nil, fmt.Errorf("%s: it has more than %d bytes", names[i], bounds[i])
		case strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }):
			return nil, fmt.Errorf("%s: it holds what cannot stand in a header", names[i])
		}
	}
	// It stands between a slash and others, in a list with commas.
	if strings.ContainsAny(got[0], "/,= ") {
		return nil, fmt.Errorf("%s: it is no identifier", names[0])
	}
	expires, err := time.Parse(time.RFC3339, got[3])
	if err != nil {
		return nil, fmt.Errorf("%s: it is no time", names[3])
	}
	return &session{got[0], got[1], got[2], expires}, nil
}

// parseSTSError returns the code of an answer that is an error; "" for none.
func parseSTSError(text []byte) string {
	got, err := elements(text, []string{"ErrorResponse/Error/Code"})
	if err != nil {
		return ""
	}
	return got[0]
}

// elements returns the texts of elements of a document, by their paths. No element of these
// paths may be there twice or hold another, and a document type is refused.
func elements(text []byte, paths []string) ([]string, error) {
	got, seen := make([]string, len(paths)), make([]bool, len(paths))
	d := xml.NewDecoder(bytes.NewReader(text))
	d.CharsetReader = func(string, io.Reader) (io.Reader, error) { return nil, errors.New("it is not UTF-8") }
	var at []string
	inside, whole := -1, false
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, errors.New("it is no XML")
		}
		switch token := token.(type) {
		case xml.Directive:
			return nil, errors.New("it has a document type")
		case xml.StartElement:
			switch {
			case inside >= 0:
				return nil, errors.New("an element is where a text is wanted")
			case len(at) == 0 && whole:
				return nil, errors.New("it has two roots")
			case len(at) >= maxXMLDepth:
				return nil, errors.New("it is nested too deep")
			}
			whole = true
			at = append(at, token.Name.Local)
			if inside = slices.Index(paths, strings.Join(at, "/")); inside < 0 {
				continue
			}
			if seen[inside] {
				return nil, errors.New("an element is there twice")
			}
			seen[inside] = true
		case xml.EndElement:
			at, inside = at[:len(at)-1], -1
		case xml.CharData:
			switch {
			case inside >= 0:
				got[inside] += string(token)
			case len(at) == 0 && len(bytes.TrimSpace(token)) > 0:
				return nil, errors.New("text is outside of its root")
			}
		}
	}
	if !whole {
		return nil, errors.New("it is empty")
	}
	return got, nil
}
