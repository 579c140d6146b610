// Package liar is a server that stands before a Redis and, when it is told to,
// answers everything with a lie instead of what the Redis says.
package liar

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Lie is one way to answer everything.
type Lie struct {
	Name string
	Say  func(io.Writer) error // once for each time something is asked
}

// text says the same every time.
func text(name, answer string) Lie {
	said := []byte(answer) // a string would be copied each time
	return Lie{name, func(w io.Writer) error {
		_, err := w.Write(said)
		return err
	}}
}

// endless says a beginning, and then the same for ever, as fast as it is read.
func endless(name, begin, more string) Lie {
	chunk := bytes.Repeat([]byte(more), 1+(32<<10)/len(more))
	return Lie{name, func(w io.Writer) error {
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = w.Write(chunk)
		}
		return err
	}}
}

// trickle says a beginning, and then a byte now and then.
func trickle(name, begin string) Lie {
	return Lie{name, func(w io.Writer) error {
		_, err := io.WriteString(w, begin)
		for err == nil {
			<-time.After(5 * time.Millisecond)
			_, err = w.Write([]byte("x"))
		}
		return err
	}}
}

// Lies are the lies.
func Lies() []Lie {
	lies := []Lie{
		// Lengths.
		text("a string of 10^14 bytes", "$99999999999999\r\n"),
		text("a string of 8 GiB", "$8589934592\r\n"),
		text("a string of 2^63 bytes", "$9223372036854775807\r\n"),
		text("an array of 550 million", "*550000000\r\n"),
		text("an array of 2^63", "*9223372036854775807\r\n"),
		text("a map of 100 million", "%100000000\r\n"),
		text("a set of 100 million", "~100000000\r\n"),
		text("a push of 100 million", ">100000000\r\n"),
		text("attributes of 100 million", "|100000000\r\n"),
		text("an error of 10^14 bytes", "!99999999999999\r\n"),
		text("a verbatim string of 10^14 bytes", "=99999999999999\r\n"),
		text("a string of -99 bytes", "$-99\r\n"),
		text("an array of -99", "*-99\r\n"),
		text("a length in letters", "$many\r\n"),
		text("a streamed string", "$?\r\n;99999999\r\n"),
		endless("arrays in arrays", "", "*1\r\n"),
		endless("wide arrays in arrays", "", "*1000\r\n"),
		endless("a string of 17 MiB", "$17825792\r\n", strings.Repeat("x", 17<<20/8)),
		text("a string of 16 MiB, all of it", "$16777216\r\n"+strings.Repeat("x", 16<<20)+"\r\n"),
		endless("an array of large strings", "*1000\r\n", "$1048576\r\n"+strings.Repeat("x", 1<<20)+"\r\n"),
		endless("a line without an end", "+", "x"),
		endless("an error without an end", "-ERR ", "x"),
		endless("a number without an end", "(", "9"),
		endless("answers without an end", "", "+OK\r\n"),
		trickle("a large string that trickles", "$16777216\r\n"),
		trickle("a line that trickles", "+"),

		// Kinds.
		text("nothing", "$-1\r\n"),
		text("no array", "*-1\r\n"),
		text("null", "_\r\n"),
		text("a number", ":1\r\n"),
		text("zero", ":0\r\n"),
		text("a large number", ":9223372036854775807\r\n"),
		text("a float", ",1.5\r\n"),
		text("a boolean", "#t\r\n"),
		text("OK", "+OK\r\n"),
		text("a word", "$2\r\nOK\r\n"),
		text("an empty string", "$0\r\n\r\n"),
		text("an empty array", "*0\r\n"),
		text("one number", "*1\r\n:0\r\n"),
		text("five numbers", "*5\r\n:0\r\n:0\r\n:0\r\n:0\r\n:0\r\n"),
		text("three words", "*3\r\n$1\r\n0\r\n$1\r\n0\r\n$1\r\n0\r\n"),
		text("three nothings", "*3\r\n$-1\r\n$-1\r\n$-1\r\n"),
		text("three arrays", "*3\r\n*0\r\n*0\r\n*0\r\n"),
		text("a wait of 292,000 years", "*3\r\n:9223372036854775807\r\n:1\r\n:0\r\n"),
		text("a wait below nothing", "*3\r\n:-5\r\n:1\r\n:0\r\n"),
		text("a wait for a bucket that is not there", "*3\r\n:5\r\n:99\r\n:0\r\n"),
		text("a message without a text", "*1\r\n$7\r\nmessage\r\n"),
		text("a message of numbers", "*3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n"),
		text("a subscription without a count", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n$1\r\nb\r\n"),
		text("an array of errors", "*3\r\n-ERR a\r\n-ERR b\r\n-ERR c\r\n"),

		// What is no Redis at all.
		text("HTTP", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK"),
		text("TLS", "\x15\x03\x01\x00\x02\x02\x0a"),
		text("line ends alone", "\n\n\n\n"),
		{"nothing at all", func(io.Writer) error { return nil }},
		{"the end of the connection", func(io.Writer) error { return io.EOF }},
	}
	for _, e := range []string{
		"NOAUTH Authentication required.",
		"WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM this user has no permissions to run the 'hmget' command",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"READONLY You can't write against a read only replica.",
		"LOADING Redis is loading the dataset in memory",
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"CLUSTERDOWN The cluster is down",
		"MOVED 1 127.0.0.1:1",
		"ASK 1 127.0.0.1:1",
		"MOVED",
		"TRYAGAIN Multiple keys request during rehashing of slot",
		"EXECABORT Transaction discarded because of previous errors.",
		"NOSCRIPT No matching script. Please use EVAL.",
		"ERR Error running script (call to f_1): @user_script:1: Script killed by user with SCRIPT KILL...",
		"ERR unknown command 'EVALSHA', with args beginning with: ",
		"ERR The user executing the script can't run this command or subcommand script: f_1, on @user_script:1.",
		"\x1b[31mred " + strings.Repeat("x", 1000),
	} {
		lies = append(lies, text(fmt.Sprintf("the error %.24q", e), "-"+e+"\r\n"))
	}
	return lies
}

// Server stands before a Redis.
type Server struct {
	Addr string // host:port

	ln   net.Listener
	back string

	mu    sync.Mutex
	lie   *Lie
	conns map[net.Conn]struct{}
	all   sync.WaitGroup
}

// Listen starts one, which passes everything on until it is told to lie.
func Listen(back string) (*Server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: ln.Addr().String(), ln: ln, back: back, conns: make(map[net.Conn]struct{})}
	s.all.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			s.all.Go(func() { s.serve(c) })
		}
	})
	return s, nil
}

// Lie has the server lie on every connection from now on, and for nil be honest
// again. Connections that are open go on, but for those that are honest and go
// on with a lie, or lie and go on honestly: these end.
func (s *Server) Lie(l *Lie) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lie = l
	for c := range s.conns {
		_ = c.Close() // who reads from it ends
	}
}

// Close ends the server.
func (s *Server) Close() {
	_ = s.ln.Close() // ends the goroutine that accepts
	s.Lie(nil)
	s.all.Wait()
}

func (s *Server) keep(c net.Conn) *Lie {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
	return s.lie
}

func (s *Server) forget(c net.Conn) {
	_ = c.Close() // it may be closed
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

func (s *Server) serve(front net.Conn) {
	lie := s.keep(front)
	defer s.forget(front)
	if lie != nil {
		buf := make([]byte, 64<<10)
		for {
			if _, err := front.Read(buf); err != nil {
				return
			}
			if lie.Say(front) != nil {
				return
			}
		}
	}
	back, err := net.Dial("tcp", s.back)
	if err != nil {
		return
	}
	s.keep(back)
	defer s.forget(back)
	s.all.Go(func() {
		defer front.Close()
		_, _ = io.Copy(front, back) // ends with either of them
	})
	_, _ = io.Copy(back, front)
}
