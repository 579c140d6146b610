package v1beta1

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Duration is a length of time as the documents write it: one or more segments
// of a number and a unit out of ns, us, µs, ms, s, m and h, such as 1m30s. The
// text is kept as written; the empty text means that none was given. In JSON
// and YAML the object form {duration: 1m} is read too.
//
// +kubebuilder:validation:Type=string
// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
type Duration string

// UnmarshalJSON reads "1m" and {"duration": "1m"}. The text itself is judged by
// Validate, which knows the field's path.
func (d *Duration) UnmarshalJSON(b []byte) error {
	s, err := durationText(b)
	if err == nil {
		*d = Duration(s)
	}
	return err
}

// Parse returns the length of time; 0 for the empty text. The error says what
// is wrong with the text: not of the documents' form, or too long to count.
func (d Duration) Parse() (time.Duration, error) {
	if d == "" {
		return 0, nil
	}
	if !durationPattern.MatchString(string(d)) {
		return 0, errors.New("must be a number and a unit out of ns, us, µs, ms, s, m, h, such as 30s or 1m30s")
	}
	v, err := time.ParseDuration(string(d))
	if err != nil {
		return 0, errors.New("must be shorter than 292 years")
	}
	return v, nil
}

// Std returns the length of time, or 0 for a text that Validate rejects.
func (d Duration) Std() time.Duration {
	v, _ := d.Parse()
	return v
}

// SignedDuration is a Duration that may start with a minus sign.
//
// +kubebuilder:validation:Type=string
type SignedDuration string

// UnmarshalJSON reads "1m" and {"duration": "1m"}.
func (d *SignedDuration) UnmarshalJSON(b []byte) error {
	s, err := durationText(b)
	if err == nil {
		*d = SignedDuration(s)
	}
	return err
}

// Parse returns the length of time; 0 for the empty text.
func (d SignedDuration) Parse() (time.Duration, error) {
	s, negative := strings.CutPrefix(string(d), "-")
	if negative && s == "" {
		s = "-" // A sign alone is no duration.
	}
	v, err := Duration(s).Parse()
	if negative {
		v = -v
	}
	return v, err
}

// Std returns the length of time, or 0 for a text that Validate rejects.
func (d SignedDuration) Std() time.Duration {
	v, _ := d.Parse()
	return v
}

// durationText reads the string form and the object form of a duration.
func durationText(b []byte) (string, error) {
	b = bytes.TrimSpace(b)
	if len(b) > 0 && b[0] == '{' {
		var o struct {
			Duration *string `json:"duration"`
		}
		dec := json.NewDecoder(bytes.NewReader(b))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&o); err != nil || o.Duration == nil {
			return "", errors.New(`a duration is a string such as "1m", or an object such as {duration: 1m}`)
		}
		return *o.Duration, nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return "", errors.New(`a duration is a string such as "1m", or an object such as {duration: 1m}`)
	}
	return s, nil
}

// Quantity is an amount of memory, storage or processing time as Kubernetes
// writes it, such as 64Mi, 10Gi or 500m; a bare integer is read too. The text
// is kept as written.
//
// +kubebuilder:validation:XIntOrString
type Quantity string

// UnmarshalJSON reads a string or a number.
func (q *Quantity) UnmarshalJSON(b []byte) error {
	var n json.Number
	if len(b) > 0 && b[0] != '"' && json.Unmarshal(b, &n) == nil {
		*q = Quantity(n.String())
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return errors.New(`a quantity is a string such as "64Mi", or an integer`)
	}
	*q = Quantity(s)
	return nil
}

// Parse returns the amount in units (bytes, for memory), rounded up; 0 for the
// empty text.
func (q Quantity) Parse() (int64, error) {
	if q == "" {
		return 0, nil
	}
	if len(q) > 64 {
		return 0, errors.New("must be at most 64 characters")
	}
	v, err := resource.ParseQuantity(string(q))
	if err != nil {
		return 0, errors.New("must be an integer with an optional suffix, such as 500m, 64Mi or 10Gi")
	}
	return v.Value(), nil
}

// Milli returns the amount in thousandths of a unit, as of a CPU; 0 for the empty text.
func (q Quantity) Milli() (int64, error) {
	if _, err := q.Parse(); q == "" || err != nil {
		return 0, err
	}
	v := resource.MustParse(string(q))
	return v.MilliValue(), nil
}

// Units returns the amount in units, or 0 for a text that Validate rejects.
func (q Quantity) Units() int64 {
	v, _ := q.Parse()
	return v
}

// JSONObject is the text of a free JSON object; empty for absence.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type JSONObject string

// MarshalJSON writes the text as it is; null for absence.
func (j JSONObject) MarshalJSON() ([]byte, error) { return writeJSON(string(j)) }

// UnmarshalJSON keeps the text as it is; null is the same as absence. Whether
// it is an object is judged by Validate, which knows the field's path.
func (j *JSONObject) UnmarshalJSON(b []byte) error {
	*j = JSONObject(keepJSON(b))
	return nil
}

// Map decodes the object; nil for absence. Numbers are json.Number, so that
// integers of any size stay exact.
func (j JSONObject) Map() (map[string]any, error) {
	if j == "" {
		return nil, nil
	}
	var m map[string]any
	if err := decodeJSON(string(j), &m); err != nil {
		return nil, fmt.Errorf("decode object: %w", err)
	}
	return m, nil
}

// JSONValue is the text of any JSON value; empty for absence.
//
// +kubebuilder:pruning:PreserveUnknownFields
type JSONValue string

// MarshalJSON writes the text as it is; null for absence.
func (j JSONValue) MarshalJSON() ([]byte, error) { return writeJSON(string(j)) }

// UnmarshalJSON keeps the text as it is; null is the same as absence.
func (j *JSONValue) UnmarshalJSON(b []byte) error {
	*j = JSONValue(keepJSON(b))
	return nil
}

// Value decodes the value; nil for absence. Numbers are json.Number.
func (j JSONValue) Value() (any, error) {
	if j == "" {
		return nil, nil
	}
	var v any
	if err := decodeJSON(string(j), &v); err != nil {
		return nil, fmt.Errorf("decode value: %w", err)
	}
	return v, nil
}

func keepJSON(b []byte) string {
	if b = bytes.TrimSpace(b); !bytes.Equal(b, []byte("null")) {
		return string(b)
	}
	return ""
}

func writeJSON(s string) ([]byte, error) {
	if s == "" {
		return []byte("null"), nil
	}
	return []byte(s), nil
}

// decodeJSON decodes one value and nothing after it, numbers as json.Number.
func decodeJSON(s string, into any) error {
	dec := json.NewDecoder(strings.NewReader(s))
	dec.UseNumber()
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("text after the value")
	}
	return nil
}
