package sandbox

import "embed"

//go:embed helper/arm64
var helpers embed.FS

const helperFile = "helper/arm64/weir-inside.gz"
