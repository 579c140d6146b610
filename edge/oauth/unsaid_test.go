package oauth_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest"
	"github.com/weir-edge/weir/edge/edgetest/fake"
	"github.com/weir-edge/weir/edge/oauth"
)

// What a peer prints where HTTP wants a header is in no error and no log: it may be a token.
func TestT28BrokenAnswers(t *testing.T) {
	for name, text := range map[string]string{
		"a header":   "HTTP/1.1 200 OK\r\n{\"access_token\":\"" + plantedSecret + "\"}\r\n\r\n",
		"a status":   plantedSecret + "\r\n\r\n",
		"a length":   "HTTP/1.1 200 OK\r\nContent-Length: " + plantedSecret + "\r\n\r\n",
		"a trailer":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n" + plantedSecret + "\r\n\r\n",
		"TLS":        "\x15\x03\x01\x00\x02\x02\x28" + plantedSecret + "\r\n\r\n",
		"nothing":    "",
		"half of it": "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + plantedSecret,
	} {
		t.Run(name, func(t *testing.T) {
			p := fake.Listen(t, func(c net.Conn) {
				if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(c, text)
				}
			})
			at, by := "http://"+p.Addr+"/token", lenient(t)
			unsaid := func(what string, err error) {
				t.Helper()
				if err == nil {
					t.Fatal(what + ": no error")
				}
				for ; err != nil; err = errors.Unwrap(err) {
					if said := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(said, plantedSecret) {
						t.Errorf("%s shows a secret: %s", what, said)
					}
				}
			}

			_, err := oauth.NewTokenEndpoint(oauth.TokenOptions{URL: at, Trust: oauth.Named, Client: by}).Ask(t.Context(), url.Values{}, oauth.Want{})
			unsaid("a token endpoint", err)
			_, _, err = oauth.NewIntrospector(oauth.IntrospectorOptions{URL: at, Trust: oauth.Named, Client: by}).Introspect(t.Context(), edge.Secret("t"))
			unsaid("introspection", err)
			_, err = by.Do(t.Context(), oauth.Request{URL: at})
			unsaid("a fetch", err)
			switch says := err.Error(); {
			case name == "TLS" && !strings.Contains(says, "it speaks TLS"),
				name == "nothing" && !errors.Is(err, io.EOF),
				name == "half of it" && !errors.Is(err, io.ErrUnexpectedEOF):
				t.Error("does not say what is wrong: ", says)
			}

			var log bytes.Buffer
			var all oauth.Issuers
			i, done, err := all.Open(oauth.IssuerOptions{Issuer: issuerName, JWKSURL: at, Log: slog.New(slog.NewTextHandler(&log, nil))}, oauth.Options{AllowHTTP: true, AllowPrivate: true, Proxy: noProxy})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = i.Key(t.Context(), "a")
			unsaid("keys", err)
			edgetest.Until(t, "a fetch of keys", func() bool { err = i.Ready(); return err != nil })
			unsaid("an issuer", err)
			done()
			if strings.Contains(log.String(), plantedSecret) {
				t.Error("the log shows a secret: ", log.String())
			}
		})
	}
}

// What is wrong with a name, a connection or a certificate is told as it was.
func TestTold(t *testing.T) {
	for _, err := range []error{
		&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}, &net.DNSError{Err: "no such host", Name: "h"},
		fmt.Errorf("proxyconnect: %w", &net.OpError{Op: "read", Err: errors.New("reset")}), errors.New("tls: server selected unsupported protocol version 301"),
	} {
		if got := oauth.Unsaid(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
}
