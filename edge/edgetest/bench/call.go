package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/weir-edge/weir/edge/edgetest/kit"
)

// A call is the text of one request with the places in it that change from
// call to call: a number of ten digits that is both the id and the argument,
// so that every call is distinct and every answer can be told from every other.
type call struct {
	text   []byte
	places []int // where the digits go

	id, argument []byte // what the answer must hold, with the digits of this call
}

const (
	firstNumber = 1_000_000_000
	lastNumber  = 9_999_999_999
	digits      = 10
	mark        = "##########" // stands for the digits in the text of a call
)

// callOf prepares a call of a tool as a client writes it.
func callOf(c *kit.Client, tool string) *call {
	c.Tool = tool
	return newCall(c.CallText(mark, kit.Work{Text: "call " + mark}, ""))
}

// newCall prepares a request from its text, in which every mark is a place for
// the number.
func newCall(text []byte) *call {
	c := &call{text: text, id: []byte(`"id":` + mark), argument: []byte(`"text":"call ` + mark + ` `)}
	for at := 0; ; {
		i := bytes.Index(text[at:], []byte(mark))
		if i < 0 {
			return c
		}
		c.places = append(c.places, at+i)
		at += i + digits
	}
}

// make makes the call under a number, which is between firstNumber and
// lastNumber, and verifies the answer.
func (c *call) make(with *kit.Client, n uint64) error {
	c.number(n)
	a, err := with.Do(c.text)
	if err != nil {
		return err
	}
	return c.check(a)
}

// number sets the number of the call.
func (c *call) number(n uint64) {
	var d [digits]byte
	for i := digits - 1; i >= 0; i-- {
		d[i] = byte('0' + n%10)
		n /= 10
	}
	for _, at := range c.places {
		copy(c.text[at:], d[:])
	}
	copy(c.id[len(`"id":`):], d[:])
	copy(c.argument[len(`"text":"call `):], d[:])
}

// check returns what is wrong with the answer to the call; nil when it is its
// own id and echo. The text is searched first, which is cheap; only one that
// is spelt in another way is decoded.
func (c *call) check(a *kit.Answer) error {
	if a.Status != 200 {
		return fmt.Errorf("answer: status %d: %.300s", a.Status, a.Body)
	}
	text, err := a.Message()
	if err != nil {
		return err
	}
	if i := bytes.Index(text, c.id); i >= 0 && bytes.Contains(text, c.argument) && bytes.Contains(text, []byte(`"isError":false`)) {
		if after := i + len(c.id); after < len(text) && (text[after] == ',' || text[after] == '}') {
			return nil
		}
	}
	var m struct {
		ID     json.Number     `json:"id"`
		Error  json.RawMessage `json:"error"`
		Result struct {
			IsError bool `json:"isError"`
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"result"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return fmt.Errorf("answer: %w: %.300s", err, text)
	}
	id, said := c.id[len(`"id":`):], c.argument[len(`"text":"`):]
	switch {
	case m.ID.String() != string(id):
		return fmt.Errorf("answer: id %s, not %s: %.300s", m.ID, id, text)
	case m.Error != nil:
		return fmt.Errorf("answer: error %.300s", m.Error)
	case m.Result.IsError || len(m.Result.Content) == 0 || !bytes.HasPrefix([]byte(m.Result.Content[0].Text), said):
		return fmt.Errorf("answer: no echo of %q: %.300s", said, text)
	}
	return nil
}
