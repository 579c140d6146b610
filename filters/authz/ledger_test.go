package authz

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/kv"
)

// TestZ06TasksThatPoliciesJudge: who begins tasks without end has their own forgotten, not those
// of others, and leaves the store to all, however much is kept of each.
func TestZ06TasksThatPoliciesJudge(t *testing.T) {
	set := policies(t, permitAll, `forbid(principal, action, resource) when { context has arg_n && context.arg_n == 7 };`)
	for many, argument := range map[int]string{5_000: "", 150: strings.Repeat("x", 60<<10)} {
		store := kv.Memory(kv.Limits{Values: 3000, Bytes: 4 << 20})
		t.Cleanup(func() { _ = store.Close() })
		h := open(t, set, Options{}, edge.Env{Store: store, Shared: &edge.Shared{}})
		ada, eve := person("ada", nil), person("eve", nil)
		begin := func(who *edge.Identity, id string) {
			t.Helper()
			h.room.result = `{"task":{"taskId":"` + id + `"}}`
			if !h.call(who, "slow", `{"text":"`+argument+`"}`) {
				t.Fatal(h.why)
			}
		}
		get := func(who *edge.Identity, id string) bool {
			t.Helper()
			h.room.result = ""
			return h.passes(message(t, who, "tasks/get", `{"taskId":"`+id+`"}`))
		}
		begin(ada, "before")
		for i := range many {
			begin(eve, fmt.Sprint(i))
		}
		begin(ada, "after")
		if !get(ada, "before") || !get(ada, "after") || !get(eve, fmt.Sprint(many-1)) {
			t.Errorf("with arguments of %d bytes, a task is denied: %s", len(argument), h.why)
		}
		if get(eve, "0") {
			t.Errorf("with arguments of %d bytes, the oldest of too many tasks is still known", len(argument))
		}
	}
}

// Of one owner and of all so many tasks are remembered, the last used.
func TestLedger(t *testing.T) {
	l, until := &Ledger{}, time.Now().Add(time.Hour)
	at := func(owner, key string, bytes int) []string {
		return l.add(Task{Owner: owner, Key: key, Value: make([]byte, bytes), Until: until})
	}
	for i := range maxTasksEach {
		if old := at("busy", fmt.Sprint(i), 10); old != nil {
			t.Fatalf("%d: %v are forgotten", i, old)
		}
	}
	if !l.used("0") || l.used("none") {
		t.Error("what is known is not")
	}
	if old := at("busy", "more", 10); len(old) != 1 || old[0] != "1" {
		t.Errorf("%v are forgotten", old)
	}
	if old := at("busy", "more", maxTaskBytesEach-100); len(old) != maxTasksEach-11 || !l.used("0") || l.of["busy"].bytes != maxTaskBytesEach {
		t.Errorf("%d are forgotten, and %d bytes are left", len(old), l.of["busy"].bytes)
	}
	for i := range 3 * maxTasks {
		at(fmt.Sprint("owner ", i%100), fmt.Sprint("of ", i), i/2)
		at("", fmt.Sprint("anybody's ", i), 10)
	}
	count, bytes := 0, 0
	for _, of := range l.of {
		count += of.Len()
		bytes += of.bytes
	}
	if n := l.all.Len(); n > maxTasks || n != len(l.byKey) || n != count || l.all.bytes > maxTaskBytes || l.all.bytes != bytes {
		t.Errorf("%d tasks of %d bytes, %d by key, %d of %d bytes of all owners", n, l.all.bytes, len(l.byKey), count, bytes)
	}
}

// What one process remembers another goes on with, in its order and for as long as it would
// have been there; it takes nothing else into its store.
func TestRemembered(t *testing.T) {
	set, shared, ada := policies(t, permitAll), &edge.Shared{}, person("ada", nil)
	store, other := kv.Memory(kv.Limits{}), kv.Memory(kv.Limits{})
	t.Cleanup(func() { _, _ = store.Close(), other.Close() })
	h := open(t, set, Options{}, edge.Env{Store: store, Shared: shared})
	for _, id := range []string{"a", "b", "c"} {
		h.room.result = `{"task":{"taskId":"` + id + `","ttl":60000}}`
		h.call(ada, "slow", `{}`)
	}
	all := Remembered(shared, store)
	if len(all) != 3 || all[0].Key == all[1].Key || time.Until(all[0].Until) < taskShort || time.Until(all[0].Until) > taskShort+time.Minute {
		t.Fatalf("%+v", all)
	}
	if err := store.Delete(t.Context(), all[1].Key); err != nil || len(Remembered(shared, store)) != 2 {
		t.Error("what the store has no longer is told")
	}
	heirs := &edge.Shared{}
	if !Remember(heirs, other, all[0]) || Remembered(heirs, other) != nil {
		t.Error("a task is kept for a server without policies")
	}
	heir := open(t, set, Options{}, edge.Env{Store: other, Shared: heirs})
	for _, one := range []Task{
		{Key: "another's", Value: []byte("{}"), Until: all[0].Until}, {Key: all[0].Key, Value: []byte("{}"), Until: time.Now().Add(2 * taskLong)},
	} {
		if Remember(heirs, other, one) {
			t.Errorf("%+v is kept", one)
		}
	}
	for _, one := range all {
		if !Remember(heirs, other, one) {
			t.Errorf("%+v is not kept", one)
		}
	}
	if got := Remembered(heirs, other); len(got) != 3 || got[0].Key != all[0].Key || got[2].Key != all[2].Key || time.Until(got[0].Until) > taskShort+time.Minute {
		t.Errorf("%+v", got)
	}
	if !heir.passes(message(t, ada, "tasks/get", `{"taskId":"b"}`)) || heir.passes(message(t, person("eve", nil), "tasks/get", `{"taskId":"b"}`)) {
		t.Error(heir.why)
	}
}
