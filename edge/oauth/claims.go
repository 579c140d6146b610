package oauth

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Claims returns the claims of a JWT whose signature nobody has checked: the edge is not
// whom it is for. They are good for finding faults, and decide nothing in its favour.
func Claims(token edge.Secret) (Object, error) { return part(token, 1) }

// Header returns the header of a JWT, likewise.
func Header(token edge.Secret) (Object, error) { return part(token, 0) }

// part reads one of the three parts of a JWS in compact form (RFC 7515 §3.1).
func part(token edge.Secret, n int) (Object, error) {
	parts := strings.SplitN(string(token), ".", 4)
	if len(parts) != 3 || len(token) > maxTokenBytes {
		return nil, errors.New("it is no JWT")
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(parts[n])
	if err != nil {
		return nil, errors.New("it is no JWT")
	}
	return ParseObject(text, maxTokenDepth)
}

// Time returns the time called name, seconds since 1970 (RFC 7519 §2, NumericDate).
func (o Object) Time(name string) (time.Time, error) {
	at, err := strconv.ParseFloat(string(o[name]), 64)
	if err != nil || math.Abs(at) > 1<<38 { // some 8,700 years
		return time.Time{}, errors.New("it is no time")
	}
	whole, part := math.Modf(at)
	return time.Unix(int64(whole), int64(part*float64(time.Second))), nil
}

// Audience reports whether the claim aud is, or holds, an audience (RFC 7519 §4.1.3).
func (o Object) Audience(audience string) bool {
	if text, ok := o.Text("aud"); ok {
		return text == audience
	}
	list, _ := o.Texts("aud")
	return slices.Contains(list, audience)
}

// seconds reads a time in seconds above 0: a number, or digits in a string, as some servers
// write it. What is more than anything allows for is as long as can be.
func seconds(raw json.RawMessage) (time.Duration, error) {
	text := string(raw)
	if len(text) > 1 && text[0] == '"' {
		text = strings.Trim(text, `"`)
		if text == "" || strings.Trim(text, "0123456789") != "" {
			return 0, errors.New("it is no number")
		}
	}
	n, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange) || math.IsNaN(n):
		return 0, errors.New("it is no number")
	case n <= 0:
		return 0, errors.New("it is not above 0")
	case n > maxTokenLife.Seconds():
		return maxTokenLife, nil
	}
	return time.Duration(n * float64(time.Second)), nil
}
