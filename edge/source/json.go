package source

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
)

// readJSON reads the JSON values of data, one document each. A syntax error
// ends the file: what follows it cannot be told apart.
func (r *reader) readJSON(data []byte, before int) {
	j := &jsonReader{r: r, data: data, line: 1 + before, d: json.NewDecoder(bytes.NewReader(data))}
	j.d.UseNumber()
	for {
		t, err := j.token()
		if errors.Is(err, io.EOF) {
			return
		}
		var root *node
		if err == nil {
			r.begin()
			root, err = j.value(t, "", 1)
		}
		if errors.Is(err, errStop) {
			r.unreadable()
			return
		}
		if err != nil {
			r.begin()
			r.fault(j.line, 0, "", "not valid JSON: %s", jsonCause(err))
			r.unreadable()
			return
		}
		if !r.document(root) {
			return
		}
	}
}

// errStop says that the fault was noted and that the rest is not to be read.
var errStop = errors.New("stop")

type jsonReader struct {
	r    *reader
	d    *json.Decoder
	data []byte
	at   int64 // bytes of data whose lines are counted
	line int   // of the last token
}

func (j *jsonReader) token() (json.Token, error) {
	t, err := j.d.Token()
	end := min(j.d.InputOffset(), int64(len(j.data)))
	j.line += bytes.Count(j.data[j.at:end], []byte("\n"))
	j.at = end
	return t, err
}

func (j *jsonReader) value(t json.Token, path string, depth int) (*node, error) {
	n := &node{line: j.line}
	if !j.r.afford(n, path, depth) {
		return nil, errStop
	}
	switch t := t.(type) {
	case json.Delim:
		if t == '[' {
			n.kind = list
			for {
				t, err := j.token()
				if err != nil {
					return nil, unexpected(err)
				}
				if t == json.Delim(']') {
					return n, nil
				}
				item, err := j.value(t, index(path, len(n.items)), depth+1)
				if err != nil {
					return nil, err
				}
				n.items = append(n.items, item)
			}
		}
		n.kind = mapping
		seen := map[string]int{}
		for {
			t, err := j.token()
			if err != nil {
				return nil, unexpected(err)
			}
			if t == json.Delim('}') {
				return n, nil
			}
			key, line := t.(string), j.line
			if t, err = j.token(); err != nil {
				return nil, unexpected(err)
			}
			value, err := j.value(t, join(path, key), depth+1)
			if err != nil {
				return nil, err
			}
			if first, ok := seen[key]; ok {
				j.r.fault(line, 0, join(path, key), "the key is given twice, first at line %d: keep one", first)
				continue
			}
			seen[key] = line
			n.members = append(n.members, member{key: key, line: line, value: value})
		}
	case string:
		n.tag, n.text = tagText, t
	case json.Number:
		n.tag, n.text = tagFloat, t.String()
		if !bytes.ContainsAny([]byte(n.text), ".eE") {
			n.tag = tagWhole
		}
	case bool:
		n.tag, n.text = tagBool, "false"
		if t {
			n.text = "true"
		}
	default:
		n.tag = tagNull
	}
	return n, nil
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// jsonCause is the cause of a syntax error without the text around it, which
// may be a secret's.
func jsonCause(err error) string {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends in the middle of a value"
	}
	return err.Error()
}
