package authz

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cedar-policy/cedar-go"
	"github.com/cedar-policy/cedar-go/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// corpusSize is how many requests the corpus holds: 62,472 fuzzed, 74 written
// by hand.
const corpusSize = 62_546

type corpusLine struct {
	Name     string          `json:"name"`
	Policies string          `json:"policies"`
	Entities string          `json:"entities"`
	Requests []corpusRequest `json:"requests"`
}

type corpusRequest struct {
	P        [2]string    `json:"p"`
	A        [2]string    `json:"a"`
	R        [2]string    `json:"r"`
	Context  cedar.Record `json:"context"`
	Decision string       `json:"decision"`
	Reason   []string     `json:"reason"`
	Errors   []string     `json:"errors"`
	Times    int          `json:"times"`
}

func uid(pair [2]string) cedar.EntityUID {
	return cedar.NewEntityUID(cedar.EntityType(pair[0]), cedar.String(pair[1]))
}

// TestC15 runs every request of the Cedar project's tests through Parse, the
// index and the evaluation that decide every call, and through the library's
// own walk over all policies.
func TestC15(t *testing.T) {
	start := time.Now()
	lines := make(chan []byte)
	var mu sync.Mutex
	requests, differences := 0, 0
	var refused []string
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for text := range lines {
				n, wrong, implicit := runCorpusLine(text)
				mu.Lock()
				requests += n
				differences += len(wrong)
				for _, w := range wrong {
					t.Error(w)
				}
				if implicit != "" {
					refused = append(refused, implicit)
				}
				mu.Unlock()
			}
		})
	}
	eachCorpusLine(t, func(text []byte) { lines <- slices.Clone(text) })
	close(lines)
	workers.Wait()
	took := time.Since(start)
	if requests != corpusSize {
		t.Errorf("%d requests, not %d", requests, corpusSize)
	}
	if len(refused) == 0 {
		t.Error("no entities with implicit references were refused: the corpus has some")
	}
	if took > 10*time.Second && !raceEnabled && !testing.Short() {
		t.Errorf("took %v: more than ten seconds", took)
	}
	t.Logf("%d requests, %d differences, %v; %d sets refused for implicit references, then judged with explicit ones", requests, differences, took, len(refused))
}

func eachCorpusLine(t testing.TB, f func([]byte)) {
	t.Helper()
	file, err := os.Open("testdata/corpus.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	s := bufio.NewScanner(z)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		f(s.Bytes())
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
}

func runCorpusLine(text []byte) (requests int, wrong []string, refused string) {
	var line corpusLine
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, []string{err.Error()}, ""
	}
	handwritten := strings.HasPrefix(line.Name, "tests/")
	set, errs := Parse(Spec{Policies: []string{line.Policies}, EntitiesJSON: line.Entities}, field.NewPath("authz"))
	if len(errs) > 0 && handwritten && strings.Contains(errs[0].Detail, "looks like an entity") {
		refused = line.Name
		set, errs = Parse(Spec{Policies: []string{line.Policies}, EntitiesJSON: withSchema(line.Entities)}, field.NewPath("authz"))
	}
	if len(errs) == 1 && errs[0].Type == field.ErrorTypeInvalid && errs[0].Detail == "holds no policy" {
		for _, q := range line.Requests { // nothing is permitted, and such a set cannot be opened
			requests += max(1, q.Times)
			if q.Decision != "deny" || len(q.Reason)+len(q.Errors) > 0 {
				wrong = append(wrong, line.Name+": an empty set that says something")
			}
		}
		return requests, wrong, refused
	}
	if len(errs) > 0 {
		return 0, []string{line.Name + ": " + errs.ToAggregate().Error()}, refused
	}
	all := candidates{set, make([]int32, len(set.policies))}
	for i := range all.numbers {
		all.numbers[i] = int32(i)
	}
	for _, q := range line.Requests {
		requests += max(1, q.Times)
		if handwritten {
			q.Context = extensions(q.Context)
		}
		g := set.static.all
		r := cedar.Request{Principal: uid(q.P), Action: uid(q.A), Resource: uid(q.R), Context: q.Context}
		p, a, o := lineageOf(g, r.Principal), lineageOf(g, r.Action), lineageOf(g, r.Resource)
		e := set.evaluate(g, r, &p, &a, &o, false)
		linear, d := cedar.Authorize(all, g, r)

		reasons, errors := numbered(set, e.Policies), []string{}
		for _, f := range e.Errors {
			errors = append(errors, f.Policy)
		}
		errors = numbered(set, errors)
		slices.Sort(q.Reason)
		slices.Sort(q.Errors)
		var failed []string
		for _, f := range d.Errors {
			failed = append(failed, string(f.PolicyID))
		}
		decided := len(e.Policies) > 0 && !set.policies[position(set, e.Policies[0])].forbids
		switch {
		case !slices.Equal(reasons, q.Reason) || !slices.Equal(errors, q.Errors) || decided != (q.Decision == "allow"):
			wrong = append(wrong, line.Name+": differs from the reference implementation")
		case e.Allowed != (q.Decision == "allow" && len(q.Errors) == 0):
			wrong = append(wrong, line.Name+": a policy failed, and yet it was allowed")
		case !slices.Equal(reasons, numbered(set, ids(d.Reasons))) || !slices.Equal(errors, numbered(set, failed)) || (linear == cedar.Allow) != decided:
			wrong = append(wrong, line.Name+": the index finds other policies than a walk over all of them")
		}
	}
	return requests, wrong, refused
}

func position(set *Policies, id string) int {
	return slices.IndexFunc(set.policies, func(p policy) bool { return string(p.id) == id })
}

// numbered gives the names that the corpus uses.
func numbered(set *Policies, ids []string) []string {
	list := []string{}
	for _, id := range ids {
		list = append(list, "policy"+itoa(position(set, id)))
	}
	slices.Sort(list)
	return list
}

// withSchema writes the references of the sample data as such, as its schema
// has the reference implementation read them.
func withSchema(entities string) string {
	var list []map[string]any
	if err := json.Unmarshal([]byte(entities), &list); err != nil {
		panic(err)
	}
	var reference func(any) any
	reference = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			if _, ok := v["type"]; ok && len(v) == 2 {
				return map[string]any{"__entity": v}
			}
			for k, e := range v {
				v[k] = reference(e)
			}
		case []any:
			for i, e := range v {
				v[i] = reference(e)
			}
		}
		return v
	}
	for _, e := range list {
		e["attrs"] = reference(e["attrs"])
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// extensions reads the two attributes of contexts that the schema says are of
// extension types.
func extensions(r cedar.Record) cedar.Record {
	m := r.Map()
	if s, ok := m["source_ip"].(cedar.String); ok {
		v, err := types.ParseIPAddr(string(s))
		if err != nil {
			panic(err)
		}
		m["source_ip"] = v
	}
	if s, ok := m["confidence_score"].(cedar.String); ok {
		v, err := types.ParseDecimal(string(s))
		if err != nil {
			panic(err)
		}
		m["confidence_score"] = v
	}
	return cedar.NewRecord(m)
}
