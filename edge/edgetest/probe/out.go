//go:build linux

package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// proxyAt is where the egress proxy is in a sandbox.
const proxyAt = "127.0.0.1:3128"

// within is for how long a try waits.
const within = 5 * time.Second

func connectTo(target string) string {
	return `CONNECT ` + target + ` HTTP/1.1\r\nHost: ` + target + `\r\n\r\n`
}

// proxy sends the proxy a text, with the escapes of Go, and says the statuses of its answers:
// all until it closes, or until it is silent for a while.
func proxy(text string) (string, error) {
	raw, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		return "", err
	}
	c, err := net.DialTimeout("tcp", proxyAt, within)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, raw); err != nil {
		return "", err
	}
	var all []string
	in := bufio.NewScanner(c)
	for _ = c.SetReadDeadline(time.Now().Add(within)); in.Scan(); _ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) {
		if status, ok := strings.CutPrefix(in.Text(), "HTTP/1."); ok && len(status) > 4 {
			all = append(all, status[2:5])
		}
	}
	var late net.Error
	if err := in.Err(); err != nil && !(errors.As(err, &late) && late.Timeout()) {
		all = append(all, "reset")
	} else if err == nil {
		all = append(all, "closed")
	}
	return strings.Join(all, " "), nil
}

// route connects to HOST:PORT by the proxy, or directly by the addresses of the sandbox.
func route(way, target string) (net.Conn, error) {
	if way == "direct" {
		return net.DialTimeout("tcp", target, within)
	}
	c, err := net.DialTimeout("tcp", proxyAt, within)
	if err != nil {
		return nil, err
	}
	raw, _ := strconv.Unquote(`"` + connectTo(target) + `"`)
	_ = c.SetDeadline(time.Now().Add(within))
	_, err = io.WriteString(c, raw)
	answer := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	if err == nil {
		_, err = io.ReadFull(c, answer)
	}
	if err == nil && !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		err = fmt.Errorf("the proxy says %.12q", answer)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// handshake makes one of TLS: WAY,HOST:PORT,NAME[,PIECE], in pieces of so many bytes.
func handshake(what string) (string, error) {
	parts := strings.Split(what, ",")
	if len(parts) < 3 {
		return "", errors.New("write WAY,HOST:PORT,NAME[,PIECE]")
	}
	c, err := route(parts[0], parts[1])
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	if len(parts) > 3 {
		c = &pieces{c, number(parts[3])}
	}
	t := tls.Client(c, &tls.Config{ServerName: parts[2], InsecureSkipVerify: true}) // what is tried is whether it is reached
	if err := t.Handshake(); err != nil {
		return "", err
	}
	return "reached", nil
}

// pieces writes a few bytes at a time.
type pieces struct {
	net.Conn
	size int
}

func (p *pieces) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var wrote int
		wrote, err = p.Conn.Write(b[:min(p.size, len(b))])
		n, b = n+wrote, b[wrote:]
	}
	return n, err
}

// say sends bytes into a tunnel, and says what comes back: WAY,HOST:PORT,TEXT.
func say(what string) (string, error) {
	way, rest, _ := strings.Cut(what, ",")
	target, text, _ := strings.Cut(rest, ",")
	raw, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		return "", err
	}
	c, err := route(way, target)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(c, raw); err != nil {
		return "", err
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	if n == 0 {
		return "", err
	}
	return strconv.Quote(string(b[:n])), nil
}

// flood opens connections, N,HOST:PORT, and says how many of them are held after a while.
func flood(what string) (string, error) {
	count, target, _ := strings.Cut(what, ",")
	var open []net.Conn
	for range number(count) {
		c, err := net.DialTimeout("tcp", target, within)
		if err != nil {
			break
		}
		open = append(open, c)
	}
	time.Sleep(time.Second)
	held := 0
	for _, c := range open {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		var late net.Error
		if _, err := c.Read(make([]byte, 1)); errors.As(err, &late) && late.Timeout() {
			held++
		}
	}
	for _, c := range open {
		_ = c.Close()
	}
	time.Sleep(500 * time.Millisecond)
	return strconv.Itoa(held), nil
}

// dns asks the sandbox's answerer: NETWORK,TYPE,NAME.
func dns(what string) (string, error) {
	parts := strings.SplitN(what, ",", 3)
	if len(parts) != 3 {
		return "", errors.New("write NETWORK,TYPE,NAME")
	}
	name, err := dnsmessage.NewName(parts[2])
	if err != nil {
		return "", err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 1, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: name, Type: dnsmessage.Type(number(parts[1])), Class: dnsmessage.ClassINET}},
	}
	q, err := m.Pack()
	if err != nil {
		return "", err
	}
	c, err := net.DialTimeout(parts[0], "127.0.0.1:53", within)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(within))
	if parts[0] == "tcp" {
		q = append([]byte{byte(len(q) >> 8), byte(len(q))}, q...)
	}
	if _, err := c.Write(q); err != nil {
		return "", err
	}
	b := make([]byte, 2048)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	if b = b[:n]; parts[0] == "tcp" && n > 2 {
		b = b[2:]
	}
	if err := m.Unpack(b); err != nil {
		return "", err
	}
	answer := strings.TrimPrefix(m.RCode.String(), "RCode")
	for _, one := range m.Answers {
		if a, ok := one.Body.(*dnsmessage.AResource); ok {
			answer += " " + net.IP(a.A[:]).String()
		}
	}
	return answer, nil
}
