package compile

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weir-edge/weir/edge/near"
)

// Describe says what is wrong with a field of what is no object, in the words
// of the report.
func Describe(e *field.Error) string { return describe(e) }

// describe says what is wrong with a field and what would be right.
func describe(e *field.Error) string {
	detail := strings.TrimSpace(e.Detail)
	value, shown := badValue(e.BadValue)
	message := ""
	switch e.Type {
	case field.ErrorTypeRequired:
		message = "required"
		if detail != "" {
			message += ": " + detail
		} else {
			message += ": give it a value"
		}
	case field.ErrorTypeNotSupported:
		message = notSupported(e.BadValue, detail)
	case field.ErrorTypeDuplicate:
		message = "given twice"
		if shown {
			message = value + " is given twice"
		}
		if detail != "" {
			message += ": " + detail
		}
	case field.ErrorTypeForbidden, field.ErrorTypeTooLong, field.ErrorTypeTooShort, field.ErrorTypeTooMany, field.ErrorTypeTooFew:
		message = detail
	default:
		message = detail
		if shown && detail != "" && !strings.Contains(detail, value) {
			message = value + ": " + detail
			if strings.HasPrefix(detail, "must ") {
				message = value + " " + detail
			}
		}
	}
	if message == "" {
		message = strings.ToLower(e.Type.String())
	}
	return withoutUserinfo(message)
}

// notSupported words a value that is none of those accepted.
func notSupported(bad any, detail string) string {
	var values []string
	for _, quoted := range regexp.MustCompile(`"(?:[^"\\]|\\.)*"`).FindAllString(detail, -1) {
		if v, err := strconv.Unquote(quoted); err == nil {
			values = append(values, v)
		}
	}
	value, shown := badValue(bad)
	if !shown {
		value = "the value"
	}
	if len(values) == 0 {
		return value + ": " + detail
	}
	given := fmt.Sprint(bad)
	if given == "" {
		return "required: one of " + strings.Join(values, ", ")
	}
	if _, hint := near.Hint(given, values); hint != "" {
		return fmt.Sprintf("%s is not accepted, %s (one of %s)", value, hint, strings.Join(values, ", "))
	}
	return fmt.Sprintf("%s is not accepted: use one of %s", value, strings.Join(values, ", "))
}

// badValue returns a scalar as a user would know it again.
func badValue(bad any) (string, bool) {
	v := reflect.ValueOf(bad)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.String:
		return strconv.Quote(brief(v.String())), v.Len() > 0
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Float32, reflect.Float64:
		return fmt.Sprint(v.Interface()), true
	}
	return "", false
}

// withoutUserinfo takes a user name and password out of URLs in a message.
func withoutUserinfo(message string) string {
	return regexp.MustCompile(`://[^/\s"@]*@`).ReplaceAllString(message, "://…@")
}
