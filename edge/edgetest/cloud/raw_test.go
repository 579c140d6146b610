package cloud_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// raw sends a request byte for byte, and returns the status of the answer.
func raw(t *testing.T, host, text string) int {
	t.Helper()
	c, err := net.DialTimeout("tcp", host, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // a connection that is open has deadlines
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}
