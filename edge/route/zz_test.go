package route
import ("testing";"unsafe";"github.com/weir-edge/weir/edge";"github.com/weir-edge/weir/edge/mcp";"github.com/weir-edge/weir/edge/optimizer")
func BenchmarkWithin(b *testing.B){
 text:=[]byte(`{"jsonrpc":"2.0","id":1000000001,"method":"tools/call","params":{"name":"call_tool","arguments":{"tool_name":"echo","parameters":{"text":"call 1000000001"}},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"weir-tools","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}}}`)
 m,_:=mcp.Decode(text)
 x:=&edge.Exchange{Request:m,Era:mcp.Modern}
 println(unsafe.Sizeof(*m),unsafe.Sizeof(*x))
 b.Run("within",func(b *testing.B){ b.ReportAllocs(); for b.Loop(){ within(x,"echo",[]byte(`{"text":"call 1000000001"}`)) } })
 b.Run("decode",func(b *testing.B){ b.ReportAllocs(); m:=&mcp.Message{}; for b.Loop(){ m.Decode(text) } })
 b.Run("alloc",func(b *testing.B){ b.ReportAllocs(); for b.Loop(){ m2:=new(mcp.Message); sink=m2; x2:=new(edge.Exchange); sink2=x2 } })
 b.Run("read",func(b *testing.B){ b.ReportAllocs(); for b.Loop(){ optimizer.ReadCall(m.Get("arguments").Of(m.Raw)) } })
}
var sink *mcp.Message
var sink2 *edge.Exchange
