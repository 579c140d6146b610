package sandbox

import "embed"

//go:embed helper/amd64
var helpers embed.FS

const helperFile = "helper/amd64/weir-inside.gz"
