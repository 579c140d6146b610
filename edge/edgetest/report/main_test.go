package main

import (
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	const input = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:7: no node here\n"}
{"Action":"skip","Package":"p","Test":"TestB","Elapsed":0}
{"Action":"output","Package":"p","Test":"TestC","Output":"    c_test.go:9: got 1\n"}
{"Action":"fail","Package":"p","Test":"TestC","Elapsed":0}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p","Elapsed":1.25}
{"Action":"output","Package":"q","Test":"TestD","Output":"it has crashed\n"}
{"Action":"output","Package":"q","Output":"FAIL\tq\t0.1s\n"}
{"Action":"fail","Package":"q","Elapsed":0.1}
`
	var out strings.Builder
	c := tally{skipped: map[string][]string{}, output: map[string]*strings.Builder{}}
	if err := c.read(strings.NewReader(input), &out); err != nil {
		t.Fatal(err)
	}
	if c.close(&out) {
		t.Error("a failed test was taken for success")
	}
	for _, want := range []string{"FAIL p TestC\n    c_test.go:9: got 1", "skipped 1: no node here (TestB)", "FAIL q TestD\nit has crashed\n", "1 passed, 2 failed, 1 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output lacks %q:\n%s", want, out.String())
		}
	}
}

func TestNoTestIsNoSuccess(t *testing.T) {
	c := tally{}
	if c.close(&strings.Builder{}) {
		t.Error("a run without a test was taken for success")
	}
}
