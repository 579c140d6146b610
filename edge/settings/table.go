package settings

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Setting is one setting: a flag, a variable, and a key of the settings file, all of the
// same name.
type Setting struct {
	Name    string   // such as max-body
	Kind    string   // what a value looks like, for help: FILE, SIZE, LIST and so on
	Help    string   // a line
	Default string   // as it is written; "" for empty
	Values  []string // the words that it may be; nil for any

	field     int
	low, high string // "" for no range
	optional  bool
	files     bool
}

// All is the table of the settings, in the order in which they are shown.
func All() []Setting {
	of := reflect.TypeFor[Settings]()
	all := make([]Setting, of.NumField())
	for i := range all {
		tag := of.Field(i).Tag
		low, high, _ := strings.Cut(tag.Get("range"), " ")
		all[i] = Setting{
			Name: tag.Get("name"), Kind: tag.Get("kind"), Help: tag.Get("help"), Default: tag.Get("default"),
			field: i, low: low, high: high, optional: tag.Get("optional") != "", files: tag.Get("files") != "",
		}
		if words := tag.Get("values"); words != "" {
			all[i].Values = strings.Fields(words)
		}
	}
	return all
}

// Variable is its name in the environment.
func (s Setting) Variable() string {
	return "WEIR_" + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// List reports whether it has several values.
func (s Setting) List() bool { return s.Kind == "LIST" }

// Files reports whether its values are names of files or directories.
func (s Setting) Files() bool { return s.files || s.Kind == "FILE" || s.Kind == "DIR" }

// Value returns its value: a string, []string, int, bool or time.Duration.
func (s Setting) Value(of *Settings) any {
	return reflect.ValueOf(of).Elem().Field(s.field).Interface()
}

// Set gives it a value: text, a number, a list, or nil for none.
func (s Setting) Set(of *Settings, value any) error {
	if items, ok := value.([]any); ok {
		if !s.List() {
			return fmt.Errorf("a list, where one %s is wanted", s.Kind)
		}
		list := []string{}
		for _, item := range items {
			list = append(list, fmt.Sprint(item))
		}
		s.put(of, list)
		return nil
	}
	text := ""
	switch v := value.(type) {
	case nil:
	case string:
		text = v
	case int, int64, uint64, float64, bool:
		text = fmt.Sprint(v)
	default:
		return fmt.Errorf("%v is not a %s", reflect.ValueOf(value).Kind(), s.Kind)
	}
	switch s.Value(of).(type) {
	case string:
		s.put(of, text)
	case []string:
		var list []string
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list = append(list, item)
			}
		}
		s.put(of, list)
	case int:
		n, err := number(text, s.Kind == "SIZE")
		if err != nil {
			return err
		}
		s.put(of, n)
	case bool:
		yes, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		s.put(of, yes)
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%q is not a duration, such as 30s or 10m", text)
		}
		s.put(of, d)
	}
	return nil
}

func (s Setting) put(of *Settings, value any) {
	reflect.ValueOf(of).Elem().Field(s.field).Set(reflect.ValueOf(value))
}

// units are those of sizes, the largest first.
var units = [...]struct {
	name  string
	bytes int
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// number reads a whole number; a size may have a unit of 1024.
func number(text string, size bool) (int, error) {
	digits, unit := text, 1
	for _, u := range units {
		if cut, ok := strings.CutSuffix(text, u.name); ok && size {
			digits, unit = cut, u.bytes
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	switch {
	case err != nil && size:
		return 0, fmt.Errorf("%q is not a size, such as 16KiB, 4MiB or a number of bytes", text)
	case err != nil:
		return 0, fmt.Errorf("%q is not a whole number", text)
	case n > uint64(math.MaxInt/unit):
		return 0, fmt.Errorf("%q is too large", text)
	}
	return int(n) * unit, nil
}

// Text writes its value as Set takes it.
func (s Setting) Text(of *Settings) string {
	switch v := s.Value(of).(type) {
	case []string:
		return strings.Join(v, ",")
	case int:
		for _, u := range units {
			if s.Kind == "SIZE" && v > 0 && v%u.bytes == 0 {
				return strconv.Itoa(v/u.bytes) + u.name
			}
		}
		return strconv.Itoa(v)
	case time.Duration:
		text := v.String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	default:
		return fmt.Sprint(v)
	}
}

// check says what is wrong with its value by its kind, its range and its words.
func (s Setting) check(of *Settings) error {
	switch v := s.Value(of).(type) {
	case int:
		low, _ := number(s.low, true) // which TestTable holds
		high, _ := number(s.high, true)
		if v < low || v > high {
			return fmt.Errorf("%d is not between %d and %d", v, low, high)
		}
	case time.Duration:
		if v <= 0 {
			return fmt.Errorf("%s is not a positive duration, such as 30s", v)
		}
	case string:
		switch {
		case v == "" && (s.optional || s.Default == ""):
		case s.Kind == "HOST:PORT" && !isAddress(v):
			return fmt.Errorf("%q is not HOST:PORT, such as 127.0.0.1:4483", v)
		case len(s.Values) == 2 && !slices.Contains(s.Values, v):
			return fmt.Errorf("%q is neither %s nor %s", v, s.Values[0], s.Values[1])
		case s.Values != nil && !slices.Contains(s.Values, v):
			return fmt.Errorf("%q is none of %s", v, strings.Join(s.Values, ", "))
		}
	}
	return nil
}
