package edgetest

import "strings"

// Announcement is a way to announce a body: header lines, and what comes behind the
// header.
type Announcement struct{ Lines, More string }

// Announcements are the ways to announce a body that does not come, by name.
func Announcements() map[string]Announcement {
	return map[string]Announcement{
		"a length":           {"Content-Length: 4194304\r\n", ""},
		"a length, one byte": {"Content-Length: 4194304\r\n", "{"},
		"a chunk":            {"Transfer-Encoding: chunked\r\n", "3fffff\r\n"},
		"a chunk, one byte":  {"Transfer-Encoding: chunked\r\n", "3fffff\r\n{"},
		"half a chunk size":  {"Transfer-Encoding: chunked\r\n", "3ffff"},
		"an expectation":     {"Content-Length: 4194304\r\nExpect: 100-continue\r\n", ""},
		"chunks, expected":   {"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n", "3fffff\r\n"},
	}
}

// Mutations are ways to write a header line so that somebody might read it as
// another: by name and value, they give the lines in its place.
func Mutations(name, value string) []string {
	middle := len(name) / 2
	out := []string{
		strings.ToLower(name) + ": " + value + "\r\n",
		strings.ToUpper(name) + ": " + value + "\r\n",
		strings.ReplaceAll(name, "-", "_") + ": " + value + "\r\n",
		strings.ReplaceAll(name, "-", " ") + ": " + value + "\r\n",
		name + ": " + value + "\r\n" + name + ": " + value + "\r\n",
		name + ": " + value + "\r\n" + strings.ToLower(name) + ":" + value + "\r\n",
		name + ": " + value + ", " + value + "\r\n",
		name + ":\r\n " + value + "\r\n",
		name + ":\r\n\t" + value + "\r\n",
		name + ": " + value + "\n",
		"X: 1\n" + name + ": " + value + "\r\n",
		"X: 1\r" + name + ": " + value + "\r\n",
		"\n" + name + ": " + value + "\r\n",
		name + ";: " + value + "\r\n",
		name + "\r\n",
		name + ":" + value + ";q=1\r\n",
		name + ": \"" + value + "\"\r\n",
	}
	for _, c := range []string{" ", "\t", "\x00", "\x0b", "\x0c", "\r", "\x7f", "\x85", "\xa0"} {
		out = append(out,
			c+name+": "+value+"\r\n",
			name[:middle]+c+name[middle:]+": "+value+"\r\n",
			name+c+": "+value+"\r\n",
			name+":"+c+value+"\r\n",
			name+": "+value+c+"\r\n")
	}
	return out
}
