package session

import "github.com/weir-edge/weir/edge"

// What programs said of the principal when its session began goes with the
// session wherever that goes: into the store, and to the process that stands in
// for this one.

// maxAttributes is more bytes than attributes of a session ever have.
const maxAttributes = 32 << 10

// attributesOf writes what programs said of a session: who they are, and then
// names and values, each behind its length. nil for nothing.
func attributesOf(s *Session) []byte {
	by, all := s.AllAttributes()
	if len(all) == 0 {
		return nil
	}
	text := appendPart(nil, []byte(by))
	for _, one := range all {
		text = appendPart(appendPart(text, []byte(one.Name)), []byte(one.Value))
	}
	return text
}

// said puts what attributesOf wrote into a session.
func (s *Session) said(text []byte) {
	by, rest, ok := cutPart(text)
	var all edge.Attributes
	for ok && len(rest) > 0 {
		var name, value []byte
		if name, rest, ok = cutPart(rest); ok {
			if value, rest, ok = cutPart(rest); ok {
				all = all.Set(string(name), string(value))
			}
		}
	}
	if ok && len(all) > 0 {
		s.SetAttributes(string(by), all)
	}
}

// soundAttributes reports whether attributesOf can have written a text.
func soundAttributes(text []byte) bool {
	parts := 0
	for ok := true; len(text) > 0; parts++ {
		if _, text, ok = cutPart(text); !ok {
			return false
		}
	}
	return parts == 0 || parts > 1 && parts%2 == 1
}
