package edge

import (
	"slices"
	"strings"
)

// Attribute is something that a program says of the principal of a message.
// Only programs can say it: no client, token or issuer has a part in it.
type Attribute struct {
	Name  string `json:"name"`  // of a-z, 0-9 and _
	Value string `json:"value"` // JSON text
}

// Attributes are what programs say of a principal, sorted by name, and no name
// twice. They are never changed.
type Attributes []Attribute

// With returns the attributes and more of them, which replace those of the same
// names.
func (a Attributes) With(more Attributes) Attributes {
	switch {
	case len(a) == 0:
		return more
	case len(more) == 0:
		return a
	}
	all := make(Attributes, 0, len(a)+len(more))
	for len(a) > 0 && len(more) > 0 {
		order := strings.Compare(a[0].Name, more[0].Name)
		if order < 0 {
			all, a = append(all, a[0]), a[1:]
			continue
		}
		if order == 0 {
			a = a[1:]
		}
		all, more = append(all, more[0]), more[1:]
	}
	return append(append(all, a...), more...)
}

// Set returns the attributes with one more, in place of that of its name.
func (a Attributes) Set(name, value string) Attributes {
	return a.With(Attributes{{name, value}})
}

// Get returns the JSON text of an attribute; "" for none.
func (a Attributes) Get(name string) string {
	if i, ok := slices.BinarySearchFunc(a, name, func(one Attribute, name string) int { return strings.Compare(one.Name, name) }); ok {
		return a[i].Value
	}
	return ""
}

// Size is how many bytes names and values have.
func (a Attributes) Size() (bytes int) {
	for i := range a {
		bytes += len(a[i].Name) + len(a[i].Value)
	}
	return bytes
}

// MessageAttributes returns what programs say of the principal of a message in
// addition to what they say of its identity: of its session, of the HTTP
// request that it came in, and of itself. nil for nothing.
func (x *Exchange) MessageAttributes() Attributes { return x.Head.Attributes.With(x.Attributes) }

// PrincipalAttributes returns everything that programs say of the principal of
// a message. Of two values under one name the narrower counts: that of the
// message before that of its HTTP request, of its session and of its identity.
func (x *Exchange) PrincipalAttributes() Attributes {
	more := x.MessageAttributes()
	if x.Identity == nil {
		return more
	}
	return x.Identity.Attributes.With(more)
}

// sessionAttributes are those of a session, and the programs that set them.
type sessionAttributes struct {
	by  string
	all Attributes
}

// SetAttributes keeps what programs said of the principal when its session
// began. by names these programs: Guest.Beginners.
func (s *Session) SetAttributes(by string, all Attributes) {
	s.attributes.Store(&sessionAttributes{by, all})
}

// Attributes returns what the programs that by names said when the session
// began. Other programs, which a reload may have put in their place, said
// nothing of it.
func (s *Session) Attributes(by string) Attributes {
	if is := s.attributes.Load(); is != nil && is.by == by {
		return is.all
	}
	return nil
}

// AllAttributes returns what programs said when the session began, and who
// these programs were; "" for nothing.
func (s *Session) AllAttributes() (by string, all Attributes) {
	if is := s.attributes.Load(); is != nil {
		return is.by, is.all
	}
	return "", nil
}
