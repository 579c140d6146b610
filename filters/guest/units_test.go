package guest_test

import (
	"bytes"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/weir-edge/weir/edge"
	"github.com/weir-edge/weir/edge/v1beta1"
	"github.com/weir-edge/weir/filters/guest"
)

// TestZ35DurationsHaveUnits: a log in JSON says with its unit how long the
// compilation of a module took.
func TestZ35DurationsHaveUnits(t *testing.T) {
	var lines bytes.Buffer
	k := guest.NewCache("", slog.New(slog.NewJSONHandler(&lines, nil)))
	loaded, err := guest.Load([]guest.Spec{{
		Name: "f", Path: path(t), Config: `{"rules":""}`, Mode: v1beta1.FilterEnforce, OnError: v1beta1.FilterDeny,
		Isolation: v1beta1.IsolationShared, Timeout: time.Minute, Fuel: 50_000_000, Output: 1 << 20,
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var after []func()
	if _, _, err := k.Open("s", loaded, guest.Options{}, edge.Env{Defer: func(f func()) { after = append(after, f) }}); err != nil {
		t.Fatal(err)
	}
	for _, f := range after {
		f()
	}
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`"msg":"a filter is compiled".*"took":"[0-9.]+m?s"`).Match(lines.Bytes()) {
		t.Errorf("the log says\n%s", lines.Bytes())
	}
}
