package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/weir-edge/weir/sdk/abi"
)

// A guest of 1.0 hears of a request without an answer what it always heard, and
// one of a later version why.
func TestZ35WhyThereIsNoAnswer(t *testing.T) {
	nowhere := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no resolver")
	}}
	_, unresolved := nowhere.LookupHost(context.Background(), "judge.example")
	if unresolved == nil {
		t.Fatal("a name was resolved by nobody")
	}
	for _, c := range []struct {
		err  error
		code int64
	}{
		{unresolved, abi.ErrName},
		{&net.DNSError{Name: "judge.example", IsNotFound: true}, abi.ErrName},
		{&net.DNSError{Name: "judge.example", IsTimeout: true}, abi.ErrTimeout},
		{os.ErrDeadlineExceeded, abi.ErrTimeout},
		{context.DeadlineExceeded, abi.ErrTimeout},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, abi.ErrRefused},
		{errors.New("something else"), abi.ErrUnavailable},
		{context.Canceled, abi.ErrUnavailable},
	} {
		err := fmt.Errorf("GET https://judge.example/: %w", c.err)
		if got := unanswered(err, abi.Version); got != c.code {
			t.Errorf("%v: %d, want %d", err, got, c.code)
		}
		if got := unanswered(err, 1<<16); got != abi.ErrUnavailable {
			t.Errorf("%v, to a guest of 1.0: %d", err, got)
		}
	}
}
