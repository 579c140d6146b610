// Package kit is what the tools that work on an edge from outside have in
// common: the edge as a process, with its manifests and what the kernel says of
// it; clients that see the bytes; a fake MCP server that counts what reaches it
// and does what it is told; and a load that comes by the clock.
package kit
