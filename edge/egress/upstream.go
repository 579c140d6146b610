package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weir-edge/weir/edge"
)

// Where this machine itself reaches others by a proxy, what is let out goes by it too: it is
// asked for names with CONNECT, and does the dialling. Addresses by themselves are refused
// then, since what they lead to there nobody here can judge.

// Upstream says by which proxy of this machine a host is reached; nil for none.
type Upstream func(*url.URL) (*url.URL, error)

// environment is the Upstream that HTTPS_PROXY and NO_PROXY say.
func environment(to *url.URL) (*url.URL, error) {
	return http.ProxyFromEnvironment(&http.Request{URL: to})
}

// via is the proxy by which a host is reached; nil for none.
func (p *Proxy) via(h Host, port int) (*url.URL, error) {
	return p.upstream(&url.URL{Scheme: "https", Host: net.JoinHostPort(h.String(), strconv.Itoa(port))})
}

// The errors of a proxy of this machine. They hold nothing of its address, which may have a
// password.
var (
	errUpstream     = errors.New("HTTPS_PROXY of this machine is no URL of an HTTP proxy")
	errUpstreamAway = errors.New("the proxy of this machine (HTTPS_PROXY) does not answer")
	errUpstreamHead = errors.New("the proxy of this machine (HTTPS_PROXY) answers with no HTTP")
)

// through connects to a name by a proxy of this machine.
func (p *Proxy) through(ctx context.Context, proxy *url.URL, h Host, port int) (c net.Conn, err error) {
	if proxy.Scheme != "http" && proxy.Scheme != "https" || proxy.Hostname() == "" {
		return nil, errUpstream
	}
	at := proxy.Port()
	if at == "" {
		at = map[string]string{"http": "80", "https": "443"}[proxy.Scheme]
	}
	var d net.Dialer
	if c, err = d.DialContext(ctx, "tcp", net.JoinHostPort(proxy.Hostname(), at)); err != nil {
		return nil, errUpstreamAway
	}
	plain := c
	stop := context.AfterFunc(ctx, func() { _ = plain.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() { // whatever cut the wait made of what came
			err = errUpstreamAway
		}
		if err != nil {
			_ = c.Close()
		}
	}()
	if proxy.Scheme == "https" {
		t := tls.Client(c, &tls.Config{ServerName: proxy.Hostname()})
		if err := t.HandshakeContext(ctx); err != nil {
			return c, errUpstreamAway
		}
		c = t
	}
	target := net.JoinHostPort(h.String(), strconv.Itoa(port))
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if proxy.User != nil {
		password, _ := proxy.User.Password()
		request += "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(proxy.User.Username()+":"+password)) + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return c, errUpstreamAway
	}
	// What follows the head is the host's: a byte at a time is read no further than that. Interim
	// answers may stand before it, and any 2xx opens the tunnel (RFC 9110 §15.2, §9.3.6).
	read := bufio.NewReaderSize(&single{from: io.LimitReader(c, maxHead)}, 16)
	var answer *http.Response
	for answer == nil || answer.StatusCode/100 == 1 && answer.StatusCode != http.StatusSwitchingProtocols {
		if answer, err = http.ReadResponse(read, &http.Request{Method: http.MethodConnect}); err != nil {
			return c, errUpstreamHead
		}
	}
	if answer.StatusCode/100 != 2 {
		return c, fmt.Errorf("the proxy of this machine (HTTPS_PROXY) answers %d", answer.StatusCode)
	}
	return c, nil
}

// single reads a byte at a time.
type single struct{ from io.Reader }

func (s *single) Read(b []byte) (int, error) { return s.from.Read(b[:min(len(b), 1)]) }

// refusalOf is why nobody was reached by a proxy of this machine.
func refusalOf(h Host, port int, err error) *Refusal {
	return &Refusal{Host: h.String(), Port: port, Reason: Unreachable, What: edge.Clean(err.Error())}
}
