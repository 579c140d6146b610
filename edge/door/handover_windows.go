package door

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Predecessor is the process that this one stands in for: on this system none.
type Predecessor struct{}

// HandsSessions reports false.
func (*Predecessor) HandsSessions() bool { return false }

// While returns ctx.
func (*Predecessor) While(ctx context.Context) (context.Context, func()) { return ctx, func() {} }

// Inherit does nothing.
func (*Predecessor) Inherit(string, func(io.ReadWriter) error) error { return nil }

// Leave does nothing.
func (*Predecessor) Leave(bool) error { return nil }

var errNoHandOver = errors.New("--hand-over is not to be had on this system")

// TakeOver fails.
func TakeOver(string) (front, admin net.Listener, from *Predecessor, err error) {
	return nil, nil, nil, errNoHandOver
}

// Succession is how a process gives way to another one, where the system has that.
type Succession struct {
	Path       string
	Front      *Entrance
	Admin      net.Listener
	Hand       func(io.ReadWriter) error
	Back, Left func()
	Work       *sync.WaitGroup
}

// GiveWay fails.
func (d *Door) GiveWay(Succession) (stop func(), err error) { return func() {}, errNoHandOver }
