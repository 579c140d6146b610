package mcp

import (
	"bytes"
	"strings"
	"testing"
)

func TestHasControl(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "plain text of some length": false, "with\ttabs\tof all sorts": false, "häßlich, but no control": false,
		"\x00": true, "1234567\x1f": true, "12345678\x7f": true, "äöü12345\n": true, "\x80\x81\x82\x83\x84\x85\x86\x87": false, "\xff\xff\xff\x0b\xff\xff\xff\xff": true,
	} {
		if got := HasControl([]byte(text)); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
	// Each byte at each place of eight says what it says alone.
	for c := range 256 {
		for i := range 8 {
			v := []byte(strings.Repeat("x", 8))
			v[i] = byte(c)
			if want := c < ' ' && c != '\t' || c == 0x7f; HasControl(v) != want {
				t.Errorf("byte %#x at %d", c, i)
			}
		}
	}
}

func TestSameName(t *testing.T) {
	for text, want := range map[string]bool{"Content-Length": true, "CONTENT-LENGTH": true, "content-length": true, "content_length": false, "Content-Lengt": false, "Content-Length ": false} {
		if SameName([]byte(text), "content-length") != want {
			t.Errorf("%q", text)
		}
	}
}

// Every byte is found at every place.
func TestHasControlEverywhere(t *testing.T) {
	for size := range 75 {
		for at := range size {
			for c := range 256 {
				v := bytes.Repeat([]byte("a~ \t\xff")[c%5:c%5+1], size)
				v[at] = byte(c)
				if got, want := HasControl(v), c < ' ' && c != '\t' || c == 0x7f; got != want {
					t.Fatalf("%q: %v", v, got)
				}
			}
		}
	}
}
