// Package envfile reads files of environment variables: NAME=VALUE lines, as shells and
// container engines read them.
package envfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Bounds of files of environment variables. Sizes are bytes.
const (
	maxFile  = 1 << 20
	maxFiles = 256  // in a directory
	maxNames = 4096 // in a directory, those aside too that are not read
	maxVars  = 10_000
)

// Read returns the variables, NAME=VALUE, of files and of directories of files, in their
// order: a later one wins where whoever takes them lets it. Of a directory the files are read
// in the order of their names, those aside whose name begins with a dot. Errors name the file and
// the line, and show no value.
func Read(paths ...string) (all []string, err error) {
	return ReadBy(func(path string) (*os.File, error) {
		return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe would wait for its other end
	}, paths...)
}

// ReadBy is Read of files and directories that open opens.
func ReadBy(open func(path string) (*os.File, error), paths ...string) (all []string, err error) {
	for _, path := range paths {
		files, err := filesOf(open, path)
		if err != nil {
			return nil, fmt.Errorf("environment file: %w", err)
		}
		for _, file := range files {
			vars, err := readFile(open, file)
			if err != nil {
				return nil, fmt.Errorf("environment file %s: %w", file, err)
			}
			if all = append(all, vars...); len(all) > maxVars {
				return nil, fmt.Errorf("environment files: more than %d variables", maxVars)
			}
		}
	}
	return all, nil
}

// filesOf are the files of a directory, or what is none itself.
func filesOf(open func(path string) (*os.File, error), path string) (files []string, err error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := f.ReadDir(maxNames + 1) // a server may fill it
	switch {
	case err != nil && err != io.EOF: // of an empty one
		return nil, err
	case len(entries) > maxNames:
		return nil, fmt.Errorf("%s has more than %d entries", path, maxNames)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || e.IsDir() {
			continue
		}
		if files = append(files, filepath.Join(path, e.Name())); len(files) > maxFiles {
			return nil, fmt.Errorf("%s has more than %d files", path, maxFiles)
		}
	}
	slices.Sort(files)
	return files, nil
}

func readFile(open func(path string) (*os.File, error), path string) ([]string, error) {
	f, err := open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return Parse(text)
}

// Parse reads the lines of a file of environment variables: NAME=VALUE, with or without
// export before it, lines that begin with # and empty ones aside. A value in "…" has \n, \"
// and \\ for a line break, a quote and a backslash, one in '…' is as it is, and any other
// ends with its line, blanks around it aside.
func Parse(text []byte) (vars []string, err error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFile)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, maxFile+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if n == 1 {
			line = strings.TrimPrefix(line, "\uFEFF")
		}
		if line == "" || line[0] == '#' {
			continue
		}
		if rest, ok := strings.CutPrefix(line, "export "); ok {
			line = strings.TrimSpace(rest)
		}
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		switch {
		case !ok:
			return nil, fmt.Errorf("line %d: there is no =", n)
		case name == "" || strings.ContainsAny(name, " \t\x00'\""):
			return nil, fmt.Errorf("line %d: the name of the variable is empty, or none", n)
		}
		if value, ok = unquoted(strings.TrimSpace(value)); !ok {
			return nil, fmt.Errorf("line %d: a quote is not closed, or something stands behind it", n)
		}
		if strings.ContainsRune(value, 0) {
			return nil, fmt.Errorf("line %d: the value holds a NUL byte", n)
		}
		if vars = append(vars, name+"="+value); len(vars) > maxVars {
			return nil, fmt.Errorf("line %d: more than %d variables", n, maxVars)
		}
	}
	return vars, lines.Err()
}

// unquoted is a value without its quotes; false where they do not match.
func unquoted(v string) (string, bool) {
	if v == "" || v[0] != '"' && v[0] != '\'' {
		return v, true
	}
	quote := v[0]
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == quote:
			return b.String(), i == len(v)-1
		case c == '\\' && quote == '"' && i+1 < len(v):
			i++
			switch v[i] {
			case 'n':
				b.WriteByte('\n')
			case '"', '\\':
				b.WriteByte(v[i])
			default:
				b.WriteString(v[i-1 : i+1])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}
