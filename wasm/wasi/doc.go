// Package wasi is WASI preview 1 as MCP servers in WebAssembly see it: arguments, an
// environment, clocks, random numbers, standard streams and directories that are given to
// them, and nothing else. It knows no engine: a function of it reads its arguments from a
// stack and works on the memory that it is given.
//
// A System is what one instance of a server sees. Its standard streams are pipes of bounded
// size (pipe.go). Standard input is non-blocking as the instance begins, which its flags say,
// and an instance waits for it and for clocks with poll_oneoff, asleep (poll.go). Files are
// below directories that are given, by way of os.Root: neither a link nor ".." leads out
// (paths.go). Whatever an instance passes, its numbers, pointers and lengths, a function
// answers with an error number; it does not panic.
//
// Source: WASI snapshot preview 1, witx (wasi_snapshot_preview1.witx and typenames.witx).
package wasi
