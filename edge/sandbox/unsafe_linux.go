package sandbox

import "os"

// judgeRoot says why an open directory is not shown; "" when it may be.
func judgeRoot(u *unsafePaths, given string, root *os.Root) string {
	f, err := root.Open(".")
	if err != nil {
		return cause(err)
	}
	defer f.Close()
	return u.judge(given, f)
}
