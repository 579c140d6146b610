//go:build !amd64 && !arm64

package sandbox

import "embed"

// helpers has none for this architecture.
var helpers embed.FS

const helperFile = "helper/weir-inside.gz"
