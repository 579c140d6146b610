package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/weir-edge/weir/edge/edgetest/cloud"
	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// The role that users take on at the cloud, and where its services are.
const (
	cloudRole    = "arn:aws:iam::123456789012:role/shop"
	cloudRegion  = "eu-west-1"
	cloudService = "cloud-mcp"
)

// cloudDesk is the security token service of a cloud, whose sessions sign requests
// to backends.
func (s *storm) cloudDesk(ctx context.Context) *desk {
	h := s.newShop(time.Hour)
	c := cloud.New(h.users.URL, h.users.URL+"/keys", kit.ServerName, cloudRole)
	s.later(c.Close)
	to := kit.Must(url.Parse(c.URL))
	var addrs []string
	fronts := &fronts{of: map[string]int{}, marks: h.gate.marks}
	for _, era := range []kit.Era{kit.Modern, kit.Legacy} {
		f := kit.Must(c.Front("http://"+s.newBackend(era, nil).Addr+"/mcp", cloudRegion, cloudService, nil))
		s.later(f.Close)
		fronts.all = append(fronts.all, f)
		addrs = append(addrs, strings.TrimPrefix(f.URL, "http://"))
	}
	d := &desk{shop: h, name: "cloudSts", asked: c.Asks.Load, sent: fronts.reached, flawed: fronts.flawed, after: fronts.look}
	c.Instead = d.instead
	d.relay = s.newRelay(to.Host)
	d.lies = cloudLies(h)
	h.flags = append(h.flags, "--ca-bundle", s.trusts(c.CA), "--sts-endpoint", "https://"+d.relay.addr+"/")
	d.edge = h.open(ctx, fmt.Sprintf("{type: cloudSts, cloudSts: {region: %s, service: %s, fallbackRoleArn: %q}}", cloudRegion, cloudService, cloudRole), "", addrs, "--pprof")
	return d
}

// fronts are what stands before backends that take signed requests alone.
type fronts struct {
	all   []*cloud.Backend
	marks [][]byte // what tokens of clients hold

	mu         sync.Mutex
	of         map[string]int // requests by whose session signed them
	own, wrong int
}

// look counts what has come.
func (f *fronts) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.all {
		for _, one := range b.Seen() {
			lines := fmt.Sprint(one.Header)
			for _, m := range f.marks {
				if strings.Contains(lines, string(m)) {
					f.own++
				}
			}
			switch {
			case one.Session != nil:
				f.of[one.Session.Subject]++
			case one.Header.Get("Authorization") != "" || one.Header.Get("X-Amz-Security-Token") != "" || one.Kind == "tools/call":
				f.wrong++
			}
		}
	}
}

func (f *fronts) reached(users []string) (n int) {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, user := range users {
		n += f.of[user]
	}
	return n
}

func (f *fronts) flawed() (own, wrong int) {
	f.look()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.own, f.wrong
}

// cloudLies are answers of a security token service that are not as they have to
// be.
func cloudLies(h *shop) []lie {
	session := func(id, key, token, until string) string {
		return `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>` + id + `</AccessKeyId><SecretAccessKey>` + key +
			`</SecretAccessKey><SessionToken>` + token + `</SessionToken><Expiration>` + until + `</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`
	}
	later := time.Now().Add(12 * time.Hour).UTC().Format(time.RFC3339)
	good := session("ASIALIE", "lie", "lie", later)
	refusal := func(code string) string {
		return "<ErrorResponse><Error><Type>Sender</Type><Code>" + code + "</Code><Message>" + shopSecret + "</Message></Error></ErrorResponse>"
	}
	return []lie{
		{"status 500 with a session", 502, false, false, false, says(500, good)},
		{"status 503", 502, false, false, false, says(503, refusal("ServiceUnavailable"))},
		{"status 201 with a session", 502, false, false, false, says(201, good)},
		{"throttled", 502, false, false, true, says(400, refusal("Throttling"))},
		{"a user who has to sign in again", 401, false, false, true, says(400, refusal("ExpiredTokenException"))},
		{"a user who may not", 403, false, false, true, says(403, refusal("AccessDenied"))},
		{"a code of its own, with a secret in it", 502, false, false, true, says(400, refusal(shopSecret))},
		{"JSON in place of XML", 502, false, false, false, says(200, `{"Credentials":{"AccessKeyId":"ASIALIE"}}`)},
		{"nothing", 502, false, false, false, says(200, "")},
		{"a page", 502, false, false, false, says(200, "<html><body>a page</body></html>")},
		{"no session token", 502, false, false, false, says(200, strings.Replace(good, "<SessionToken>lie</SessionToken>", "", 1))},
		{"a session token twice", 502, false, false, false, says(200, strings.Replace(good, "<SessionToken>", "<SessionToken>lie</SessionToken><SessionToken>", 1))},
		{"a session token that ends a line", 502, false, false, false, says(200, session("ASIALIE", "lie", "lie&#13;&#10;X-Evil: y", later))},
		{"an identifier with a line of its own", 502, false, false, false, says(200, session("ASIALIE, X=y", "lie", "lie", later))},
		{"a session that is over", 502, false, false, false, says(200, session("ASIALIE", "lie", "lie", "2020-01-01T00:00:00Z"))},
		{"a document type", 502, false, false, false, says(200, `<!DOCTYPE a [<!ENTITY b "b">]>`+good)},
		{"the client's own token", 502, false, false, false, func(w http.ResponseWriter, r *http.Request) {
			if err := r.ParseForm(); err != nil {
				return
			}
			says(200, session("ASIALIE", "lie", r.PostForm.Get("WebIdentityToken"), later))(w, r)
		}},
		{"an answer of a megabyte", 502, false, false, false, says(200, good+strings.Repeat(" ", 1<<20))},
		{"a redirect", 502, false, false, false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://"+h.backends[0].Addr+"/mcp", http.StatusTemporaryRedirect)
		}},
		{"half a body", 502, false, false, false, halfOf(good)},
		{"the end of the connection", 502, false, false, false, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"a byte a second", 504, true, false, false, drip(good)},
	}
}
