package workload

import "io/fs"

const onUnix = false

const noFollow = 0

// owned leaves it to the rights of the directories above.
func owned(string, fs.FileInfo) error { return nil }

func syncDir(string) error { return nil }

func shortened(socket string) (path string, done func(), err error) { return socket, func() {}, nil }
