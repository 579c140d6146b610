package kv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

func isTimeout(err error) bool {
	var n net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &n) && n.Timeout()
}

// tell makes an error for an operator. What the Redis itself said is cut to its
// first word, since some of its errors repeat what they were sent.
func tell(err error) error {
	if at := (*stepError)(nil); errors.As(err, &at) {
		return &stepError{at.what, tell(at.err)}
	}
	var said redis.Error
	switch {
	case isTimeout(err):
		return errors.New("no answer in time")
	case errors.Is(err, io.EOF):
		return errors.New("the connection was closed")
	case errors.Is(err, redis.ErrClosed), !errors.As(err, &said):
		return err
	}
	word := kindOf(said)
	switch m := meaning(word); {
	case m != "":
		return fmt.Errorf("%s: %s", word, m)
	case word == "":
		return errors.New("an error without a name")
	}
	return fmt.Errorf("%s: refused", word)
}

// kindOf is the first word of what a Redis said was wrong, by which errors are
// told apart; "" when that is no such word. That a user may not do something
// within a script is said in other words.
func kindOf(err redis.Error) string {
	text := err.Error()
	word, _, _ := strings.Cut(text, " ")
	if len(word) > 24 || strings.Trim(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != "" {
		return ""
	}
	if word == "ERR" && strings.Contains(text, "The user executing the script can't") {
		return "NOPERM"
	}
	return word
}

// isLasting reports whether an error says that the Redis does not do, for
// anybody, what is needed, until somebody does something about it.
func isLasting(err error) bool {
	var said redis.Error
	if !errors.As(err, &said) {
		return false
	}
	switch kindOf(said) {
	case "WRONGPASS", "NOAUTH", "NOPERM", "READONLY", "OOM", "MISCONF":
		return true
	}
	return false
}

// meaning says what to do about what a Redis says; "" for what explains itself
// to nobody.
func meaning(word string) string {
	switch word {
	case "WRONGPASS":
		return "the user or the password is wrong"
	case "NOAUTH":
		return "a password is needed"
	case "NOPERM":
		return "the user may not do what Weir needs: the keys and channels that begin with the prefix, and the commands of the README"
	case "READONLY":
		return "a replica that takes no values"
	case "OOM":
		return "out of memory"
	case "LOADING":
		return "still loading its data"
	case "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN":
		return "no master to ask"
	case "MOVED", "ASK", "CROSSSLOT":
		return "part of a cluster, and asked like one server"
	case "MISCONF":
		return "cannot save to its disk"
	case "BUSY":
		return "busy with a script"
	}
	return ""
}
