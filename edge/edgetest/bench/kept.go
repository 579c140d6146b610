package main

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/edgetest/issuer"
	"github.com/weir-edge/weir/edge/edgetest/kit"
	"github.com/weir-edge/weir/edge/outgoing"
	"github.com/weir-edge/weir/edge/secret"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// The bars of credentials that are kept.
const (
	exchangedBar = 1.05     // × P2, with tokenExchange in place of the injected header
	tokenBar     = 0.5      // µs a call over a bearer token of a secret; no allocation
	signBar      = 6.0      // µs a signature
	signObjects  = 2        // allocations a signature
	entryBar     = 768      // bytes beside the credential itself
	residentBar  = 24 << 20 // bytes, of the users of --users
	lookUpBar    = 1.2      // × the same with few users
)

// askedUsers are the users who call; more may have a credential.
const askedUsers = 10

// What is asked in this process, in the order of the turns.
const (
	fixedToken = "bearerToken"
	fewUsers   = "tokenExchange"
	manyUsers  = "tokenExchange, of many users"
	eachUser   = "tokenExchange, each of many users"
)

// shown is a credential that is asked for as an edge does it, for one request after the
// other.
type shown struct {
	attach edge.Attach
	to     []*edge.Outbound // that it is asked for, in turn
	line   []byte           // header lines of the last

	cpu       []float64 // µs a request, per turn
	allocated float64   // objects a request, in the worst turn
}

// one asks for the credential of a request.
func (s *shown) one(ctx context.Context, i int, set func(string, edge.Secret)) {
	s.line = s.line[:0]
	_, err := s.attach(ctx, s.to[i%len(s.to)], set)
	kit.Check(err)
	if len(s.line) < credentialSize {
		kit.Fail("the request of user %d is sent without a credential", i%len(s.to))
	}
}

// turn asks so many times, after some that do not count, on a thread of its own.
func (s *shown) turn(ctx context.Context, times int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	set := func(name string, value edge.Secret) {
		s.line = append(append(append(append(s.line, "\r\n"...), name...), ": "...), value...)
	}
	ask := func(n int) {
		for i := range n {
			s.one(ctx, i, set)
		}
	}
	ask(times/10 + 1)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := kit.Must(threadTime())
	ask(times)
	ended := kit.Must(threadTime())
	runtime.ReadMemStats(&after)
	s.cpu = append(s.cpu, micros(ended-began)/float64(times))
	// What the runtime allocates for itself meanwhile is not the requests'.
	s.allocated = max(s.allocated, float64((after.Mallocs-before.Mallocs)/uint64(times)))
	kit.Check(ctx.Err())
}

// openShown opens a credential as an edge does. What it keeps ends with the function that
// is returned.
func openShown(spec *outgoing.Spec, reach edge.Reach, to []*edge.Outbound) (*shown, func(), error) {
	secrets, err := secret.New(secret.Options{})
	if err != nil {
		return nil, nil, err
	}
	shared := &edge.Shared{}
	env := edge.Env{
		Secrets: secrets.Draft(secret.Documents{"tokens": {"backend": edge.Secret(strings.Repeat("x", credentialSize))}}),
		Reach:   reach, Shared: shared, Defer: func(func()) {}, // all that is deferred is shared
	}
	c, err := spec.Open(env)
	if err != nil {
		return nil, nil, err
	}
	return &shown{attach: c.Attach, to: to}, shared.Close, nil
}

// requests are a call of each of some users, with 1 KiB of body and a token of tokenSize.
func requests(users int) []*edge.Outbound {
	to := &url.URL{Scheme: "http", Host: "127.0.0.1:9001", Path: "/mcp"}
	around := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":""}}}`
	body := []byte(strings.Replace(around, `""`, `"`+strings.Repeat("a", argumentsSize-len(around))+`"`, 1))
	lines := fmt.Appendf(nil, "\r\nHost: %s\r\nUser-Agent: weir\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\nContent-Length: %d", to.Host, len(body))
	all := make([]*edge.Outbound, users)
	for i := range all {
		name := userNamed(i)
		token := edge.Secret(name + strings.Repeat("t", tokenSize-len(name)))
		who := &edge.Identity{Issuer: "https://login.example.com", Subject: name, Claims: map[string]any{"sub": name}, Token: token, Digested: edge.DigestToken(token)}
		all[i] = &edge.Outbound{Exchange: &edge.Exchange{Identity: who}, Method: "POST", URL: to, Lines: lines, Body: body}
	}
	return all
}

func userNamed(i int) string { return fmt.Sprintf("user-%06d", i) }

// heap is the live heap of this process, in bytes.
func heap() int64 {
	runtime.GC()
	runtime.GC() // the first leaves what pools hold
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// keptRow is what credentials cost that are kept.
type keptRow struct {
	users     int                  // of the many
	cpu       map[string][]float64 // µs a request, per turn, by what is asked
	allocated map[string]float64   // objects a request
	each      float64              // bytes of one in the heap, beside itself
}

func (k keptRow) verdicts() (out []verdict) {
	fixed := k.cpu[fixedToken]
	for _, s := range exchanging[:2] {
		var added []float64
		for i, cpu := range k.cpu[s.name] {
			added = append(added, cpu-fixed[i])
		}
		more := median(added)
		out = append(out, verdict{
			"credentials", fmt.Sprintf("CPU per request that a kept credential of %s adds to a bearer token of a secret, and allocations; %d bytes each", s.name, credentialSize),
			fmt.Sprintf("%+.3f µs (%.3f µs); %.4g", more, median(k.cpu[s.name]), k.allocated[s.name]), fmt.Sprintf("%.3f µs, %s", median(fixed), fixedToken), "–",
			fmt.Sprintf("≤ %.1f µs; 0", tokenBar), yesNo(more <= tokenBar && k.allocated[s.name] == 0),
		})
	}
	sign := exchanging[2].name
	out = append(out, verdict{
		"credentials", fmt.Sprintf("CPU and allocations per request that is signed, %d bytes of body, a kept session (%s)", argumentsSize, sign),
		fmt.Sprintf("%.3f µs; %.4g", median(k.cpu[sign]), k.allocated[sign]), "–", "–",
		fmt.Sprintf("≤ %.0f µs; %d", signBar, signObjects), yesNo(median(k.cpu[sign]) <= signBar && k.allocated[sign] <= signObjects),
	})
	few, many, each := median(k.cpu[fewUsers]), median(k.cpu[manyUsers]), median(k.cpu[eachUser])
	floor := fmt.Sprintf("%.3f µs, with %d users", few, askedUsers)
	return append(out, verdict{
		"credentials", fmt.Sprintf("CPU per request of a kept credential, with those of %d users, %d of whom call", k.users, askedUsers),
		fmt.Sprintf("%.3f µs", many), floor, fmt.Sprintf("%.2f", many/few), fmt.Sprintf("0.80 to %.2f × with %d", lookUpBar, askedUsers),
		yesNo(many <= lookUpBar*few), // one that costs less is no worse
	}, verdict{
		"credentials", fmt.Sprintf("the same where all %d call in turn, so that none is in the processor's cache", k.users),
		fmt.Sprintf("%.3f µs", each), floor, fmt.Sprintf("%.2f", each/few), "beside", "–",
	}, verdict{
		"credentials", fmt.Sprintf("heap that a kept credential of %d bytes takes beside itself, of %d users", credentialSize, k.users),
		fmt.Sprintf("%.0f bytes", k.each), "–", "–", fmt.Sprintf("≤ %d bytes", entryBar), yesNo(k.each <= entryBar),
	})
}

// runKept is the rest about credentials that are kept: what they cost in time, asked in this
// process as an edge asks them, and what they take in memory.
func (b *bench) runKept(ctx context.Context) {
	b.tryEdge(ctx, "credentials", b.kept)
	b.tryEdge(ctx, "credentials, memory", b.residentUsers)
}

func (b *bench) kept(ctx context.Context) {
	service := kit.Must(startTokenService())
	defer service.close()
	reach := edge.Reach{STS: service.url + stsPath}
	var ends []func()
	defer func() {
		for _, end := range ends {
			end()
		}
	}()
	open := func(spec *outgoing.Spec, to []*edge.Outbound) *shown {
		s, end, err := openShown(spec, reach, to)
		kit.Check(err)
		ends = append(ends, end)
		return s
	}
	exchange := &outgoing.Spec{Config: exchanging[0].in(service)}

	// 1. What is asked, each with a cache of its own.
	few, many := requests(askedUsers), requests(b.users)
	row := keptRow{users: b.users, cpu: map[string][]float64{}, allocated: map[string]float64{}}
	all := map[string]*shown{
		fixedToken: open(&outgoing.Spec{Kind: &v1beta1.MCPExternalAuthConfigSpec{
			Type: v1beta1.AuthBearerToken, BearerToken: &v1beta1.BearerToken{TokenSecretRef: v1beta1.SecretRef{Name: "tokens", Key: "backend"}},
		}}, few),
		eachUser: open(exchange, many),
	}
	for _, s := range exchanging {
		all[s.name] = open(&outgoing.Spec{Config: s.in(service)}, few)
	}

	// 2. Credentials of all users are made, and weighed.
	all[eachUser].make(ctx, 0, askedUsers) // whatever the first questions leave behind
	before := heap()
	all[eachUser].make(ctx, askedUsers, b.users)
	row.each = float64(heap()-before)/float64(b.users-askedUsers) - credentialSize
	all[manyUsers] = &shown{attach: all[eachUser].attach, to: many[:askedUsers]}
	for _, s := range exchanging {
		all[s.name].make(ctx, 0, askedUsers)
	}
	given := service.given.Load()

	// 3. The rounds, in which each has several turns, every second time backwards.
	turn := slices.Sorted(maps.Keys(all))
	for range b.rounds * keptTurns {
		for _, name := range turn {
			all[name].turn(ctx, b.calls)
		}
		slices.Reverse(turn)
	}
	runtime.KeepAlive(many)

	// 4. The row.
	if n := service.given.Load(); given != int64(b.users+len(exchanging)*askedUsers) || n != given {
		kit.Fail("exchanges: %d for the first requests of %d users, and then %d more", given, b.users+len(exchanging)*askedUsers, n-given)
	}
	for name, s := range all {
		row.cpu[name], row.allocated[name] = s.cpu, s.allocated
	}
	b.report.kept = append(b.report.kept, row)
	for _, v := range row.verdicts() {
		b.say("credentials: %s: %s, %s, bar %s", v.what, v.value, v.floor, v.bar)
	}
}

// keptTurns is how many turns of a round each of what is asked in this process has.
const keptTurns = 5

// make has the credentials of some of its requests made.
func (s *shown) make(ctx context.Context, from, to int) {
	set := func(_ string, value edge.Secret) { s.line = append(s.line, value...) }
	for i := from; i < to; i++ {
		s.one(ctx, i, set)
	}
}

// residentRow is what an edge takes for many users. Sizes are bytes.
type residentRow struct {
	users                  int
	grown, floor           int64   // resident memory with tokenExchange, and with an injected header
	grownAlive, floorAlive float64 // the same of heap and stacks after a collection, for each user
}

func (r residentRow) verdict() verdict {
	more := r.grown - r.floor
	return verdict{
		"credentials", fmt.Sprintf("resident memory that %d users add to an edge, each with a token and a credential of %d bytes; of which the credentials", r.users, credentialSize),
		fmt.Sprintf("%+.1f MiB; %+.1f MiB (live for each user %.0f bytes; %.0f bytes)", kit.MiB(r.grown), kit.MiB(more), r.grownAlive, r.grownAlive-r.floorAlive),
		fmt.Sprintf("%+.1f MiB, with an injected header", kit.MiB(r.floor)), "–", fmt.Sprintf("of the credentials ≤ %d MiB", residentBar>>20), yesNo(more <= residentBar),
	}
}

// residentUsers has each of many users make one call through an edge that exchanges their
// tokens, and through one that shows all of them the same header: that knows the users, too.
func (b *bench) residentUsers(ctx context.Context) {
	users := kit.Must(issuer.New(issuer.ES256, kit.ServerName, nil))
	defer users.Leave()
	service := kit.Must(startTokenService())
	defer service.close()
	const first = 200
	tokens := kit.Must(mintAll(users, first+b.users, userNamed))
	row := residentRow{users: b.users}
	for _, one := range []struct {
		credential *v1beta1.OutgoingStrategy
		grown      *int64
		alive      *float64
	}{{injected, &row.floor, &row.floorAlive}, {exchanging[0].in(service), &row.grown, &row.grownAlive}} {
		backend := b.startBackend(ctx, kit.Modern, "json")
		p := guarded(users, backend.Addr, "")
		p.Config = outgoingAuth(one.credential)
		e := b.startPlan(ctx, p, "--pprof")
		kit.Check(callAs(ctx, e.Addr, tokens[:first]))
		before := weigh(ctx, e, true)
		kit.Check(callAs(ctx, e.Addr, tokens[first:]))
		after := weigh(ctx, e, false)
		*one.grown, *one.alive = after.resident-before.resident, float64(after.live-before.live)/float64(b.users)
	}
	if n := service.given.Load(); n != int64(len(tokens)) {
		kit.Fail("exchanges: %d for %d users", n, len(tokens))
	}
	b.report.resident = append(b.report.resident, row)
	v := row.verdict()
	b.say("credentials, memory: %s: %s, %s", v.what, v.value, v.floor)
}

// callAs makes a call with each of some tokens, over a few connections.
func callAs(ctx context.Context, addr string, tokens []string) error {
	f, err := openFleet(ctx, addr, kit.Modern, 8)
	if err != nil {
		return err
	}
	defer f.hangUp()
	var next atomic.Int64
	_, err = f.repeat(ctx, len(tokens), func(c *client, number uint64) error {
		c.Token = tokens[next.Add(1)-1]
		return callOf(c.Client, "echo").make(c.Client, number)
	})
	return err
}
