package edge

import "context"

// Caller calls a tool for the client whose message x is. The call walks the hallway
// like the client's own: who it is for, what may be called and how often is judged, and
// it is recorded. arguments is JSON text of an object, nil for none; result and failure are
// JSON text of a result and of a JSON-RPC error, of which one is nil.
type Caller func(ctx context.Context, x *Exchange, tool string, arguments []byte) (result, failure []byte)
