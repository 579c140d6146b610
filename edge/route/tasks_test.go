package route

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/backend"
	"github.com/weir-edge/weir/edge/catalog"
	"github.com/weir-edge/weir/edge/v1beta1"
)

// shelf is a store of values without a lifetime.
type shelf struct {
	edge.Store
	values map[string]string
	err    error // of Get
}

func (s shelf) Get(_ context.Context, key string) ([]byte, error) {
	if v, ok := s.values[key]; ok {
		return []byte(v), s.err
	}
	return nil, s.err
}

func (s shelf) Put(_ context.Context, key string, value []byte, _ time.Duration) error {
	s.values[key] = string(value)
	return nil
}

// Edges that share a store know of each other's tasks that an id is of two backends, and so does
// the process that stands in for one.
func TestTasksOfOneIDAtTwoEdges(t *testing.T) {
	store := shelf{values: make(map[string]string)}
	begin := func() *Server {
		s := New(Options{Name: "s", Store: store, Now: time.Now})
		for _, name := range []string{"a", "b"} {
			s.Add(&backend.Backend{Config: backend.Config{Name: name}})
		}
		return s
	}
	x := func(at string) *edge.Exchange { return &edge.Exchange{Target: &edge.Target{Backend: at}} }
	one, two, later, heir := begin(), begin(), begin(), begin()
	one.began(x("a"), "t1")
	one.began(x("a"), "t1") // which is the same
	if at, err := two.taskAt(x(""), "t1"); err != nil || at == nil || at.Backend != "a" {
		t.Errorf("%+v, %v", at, err)
	}
	begin().began(x("b"), "t1")
	if at, err := later.taskAt(x(""), "t1"); err != nil || at != nil {
		t.Errorf("a task of two backends is asked for at %+v, %v", at, err)
	}
	later.began(x("b"), "t1")
	before := maps.Clone(store.values)
	for _, task := range later.Tasks() {
		if !heir.TakeTask(task) {
			t.Errorf("%+v is not taken", task)
		}
	}
	if at, err := heir.taskAt(x(""), "t1"); err != nil || at != nil || !maps.Equal(store.values, before) {
		t.Errorf("the process that stands in asks %+v, %v", at, err)
	}
}

// TestLinksWhileTheStoreIsAway: another edge may know that a resource is at another backend than
// the one whose template it fits, which is not read in its place, unless the edge goes on with what
// it knows. Nobody asks the store where templates go first.
func TestLinksWhileTheStoreIsAway(t *testing.T) {
	c := catalog.Build(&catalog.Rules{Conflicts: v1beta1.ConflictPrefix}, []catalog.Offer{
		{Backend: "b", Templates: &catalog.List{Items: [][]byte{[]byte(`{"uriTemplate":"x://{id}","name":"t"}`)}}},
	})
	somebody := &edge.Identity{Issuer: "i", Subject: "s"}
	for _, one := range []struct {
		open bool
		who  *edge.Identity
		uri  string
		at   string // "" for an error
	}{
		{false, somebody, "x://1", ""}, {false, somebody, "y://1", ""}, {false, nil, "x://1", "b"}, {false, nil, "y://1", ""},
		{true, somebody, "x://1", "b"}, {true, somebody, "y://1", ""}, {true, nil, "x://1", "b"}, {true, nil, "y://1", ""},
	} {
		s := New(Options{Name: "s", Store: shelf{err: errors.New("away")}, Now: time.Now, ServeWithoutStore: one.open})
		switch at, err := s.resource(&edge.Exchange{Identity: one.who}, c, one.uri); {
		case one.at == "":
			if at != nil || edge.KindOf(err) != edge.Overload {
				t.Errorf("%+v: at %+v, %v", one, at, err)
			}
		case err != nil || at == nil || at.Backend != one.at:
			t.Errorf("%+v: at %+v, %v", one, at, err)
		}
	}
}

// TestZ40Tasks: of one owner so many tasks are remembered, the last used, and what
// is forgotten is told, so that the store forgets it, too; nobody loses a task to
// somebody else but to all together.
func TestZ40Tasks(t *testing.T) {
	var all tasks
	const at = "b"
	all.add("quiet", "one", at)
	for i := range maxTasksEach {
		if old := all.add("busy", fmt.Sprint(i), at); old != nil {
			t.Fatalf("%d: %+v is forgotten", i, old[0])
		}
	}
	all.find("busy", "0")
	for i := range 10 {
		old := all.add("busy", fmt.Sprint("more", i), at)
		if len(old) != 1 || old[0].key != (taskKey{"busy", fmt.Sprint(i + 1)}) {
			t.Fatalf("%d: %+v are forgotten", i, old)
		}
	}
	if _, _, known := all.find("quiet", "one"); !known {
		t.Error("somebody else's task is forgotten")
	}
	for i := range 3 * maxTasks {
		all.add(fmt.Sprint("owner ", i%100), fmt.Sprint(i), at)
	}
	if all.order.Len() != maxTasks || len(all.byID) != maxTasks || len(all.of) != 100 {
		t.Errorf("%d, %d, %d", all.order.Len(), len(all.byID), len(all.of))
	}
}
