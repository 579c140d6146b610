//go:build !wasip1

package weir

import "embed"

// Sources are the SDKs of all languages, as `weir plugin new` lays them beside
// the sources of a new guest, so that it is built without a network.
//
//go:embed *.go abi/*.go server/*.go weirtest/*.go
//go:embed c/weir.h
//go:embed assemblyscript/assembly/*.ts assemblyscript/package-lock.json
//go:embed rust/Cargo.toml rust/src/*.rs
var Sources embed.FS
