package mcp

import (
	"encoding/base64"
	"errors"
	"strings"
	"unicode/utf8"
)

const (
	sentinel    = "=?base64?"
	sentinelEnd = "?="
)

// EncodeHeader writes a value for Mcp-Name or Mcp-Param-*: plain ASCII as it
// is, anything else in base64 between markers (2026-07-28,
// basic/transports/streamable-http, value encoding).
func EncodeHeader(value string) string {
	plain := value == strings.TrimSpace(value) && !strings.HasPrefix(value, sentinel)
	for i := 0; plain && i < len(value); i++ {
		plain = 0x20 <= value[i] && value[i] <= 0x7e
	}
	if plain {
		return value
	}
	return sentinel + base64.StdEncoding.EncodeToString([]byte(value)) + sentinelEnd
}

// DecodeHeader reads such a value.
func DecodeHeader(value string) (string, error) {
	for i := range len(value) {
		if (value[i] < 0x20 && value[i] != '\t') || value[i] > 0x7e {
			return "", errors.New("bytes that are not plain ASCII")
		}
	}
	if !strings.HasPrefix(value, sentinel) || !strings.HasSuffix(value, sentinelEnd) || len(value) < len(sentinel)+len(sentinelEnd) {
		return value, nil
	}
	text, err := base64.StdEncoding.Strict().DecodeString(value[len(sentinel) : len(value)-len(sentinelEnd)])
	if err != nil || !utf8.Valid(text) {
		return "", errors.New("malformed base64")
	}
	return string(text), nil
}
