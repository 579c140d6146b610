package wasm

// Instructions of the core specification 2.0 (chapter 5.4) that the package
// names; the others are known by the shape of what follows them.
const (
	opUnreachable  = 0x00
	opNop          = 0x01
	opBlock        = 0x02
	opLoop         = 0x03
	opIf           = 0x04
	opElse         = 0x05
	opEnd          = 0x0b
	opBr           = 0x0c
	opBrIf         = 0x0d
	opBrTable      = 0x0e
	opReturn       = 0x0f
	opCall         = 0x10
	opCallIndirect = 0x11
	opDrop         = 0x1a
	opSelectTyped  = 0x1c
	opLocalGet     = 0x20
	opLocalSet     = 0x21
	opLocalTee     = 0x22
	opGlobalGet    = 0x23
	opGlobalSet    = 0x24
	opTableGet     = 0x25
	opTableSet     = 0x26
	opMemorySize   = 0x3f
	opMemoryGrow   = 0x40
	opI32Const     = 0x41
	opI64Const     = 0x42
	opF32Const     = 0x43
	opF64Const     = 0x44
	opI64LtS       = 0x53
	opI64Add       = 0x7c
	opI64Sub       = 0x7d
	opI64Or        = 0x84
	opI64ShrU      = 0x88
	opI64ExtendU32 = 0xad
	opRefNull      = 0xd0
	opRefFunc      = 0xd2
	opPrefixFC     = 0xfc
	opPrefixFD     = 0xfd

	fcMemoryInit = 0x08
	fcDataDrop   = 0x09
	fcMemoryCopy = 0x0a
	fcMemoryFill = 0x0b
	fcTableInit  = 0x0c
	fcElemDrop   = 0x0d
	fcTableCopy  = 0x0e
	fcTableGrow  = 0x0f
	fcTableSize  = 0x10
	fcTableFill  = 0x11

	simdConst = 0x0c

	blockVoid = 0x40
)

// shape is what follows an opcode of one byte.
type shape uint8

const (
	shapeUnknown shape = iota
	shapeNone
	shapeBlock // a block type
	shapeElse
	shapeEnd
	shapeLabel
	shapeLabels
	shapeFunction // call and ref.func
	shapeIndirect // a type and a table
	shapeTypes
	shapeLocal
	shapeGlobal
	shapeTable
	shapeMemArg
	shapeMemory // a zero byte
	shapeI32
	shapeI64
	shape4
	shape8
	shapeRef
	shapeFC
	shapeFD
)

// shapeOf returns the shape of an opcode.
func shapeOf(op byte) shape {
	switch {
	case op == 0x00, op == 0x01, op == opReturn, op == 0x1a, op == 0x1b, op == 0xd1:
		return shapeNone
	case op >= 0x45 && op <= 0xc4:
		return shapeNone
	case op >= opBlock && op <= opIf:
		return shapeBlock
	case op == opElse:
		return shapeElse
	case op == opEnd:
		return shapeEnd
	case op == opBr, op == opBrIf:
		return shapeLabel
	case op == opBrTable:
		return shapeLabels
	case op == opCall, op == opRefFunc:
		return shapeFunction
	case op == opCallIndirect:
		return shapeIndirect
	case op == opSelectTyped:
		return shapeTypes
	case op >= opLocalGet && op <= opLocalTee:
		return shapeLocal
	case op == opGlobalGet, op == opGlobalSet:
		return shapeGlobal
	case op == opTableGet, op == opTableSet:
		return shapeTable
	case op >= 0x28 && op <= 0x3e:
		return shapeMemArg
	case op == opMemorySize, op == opMemoryGrow:
		return shapeMemory
	case op == opI32Const:
		return shapeI32
	case op == opI64Const:
		return shapeI64
	case op == opF32Const:
		return shape4
	case op == opF64Const:
		return shape8
	case op == opRefNull:
		return shapeRef
	case op == opPrefixFC:
		return shapeFC
	case op == opPrefixFD:
		return shapeFD
	}
	return shapeUnknown
}

// simdUnknown says that a number behind 0xfd is no instruction (chapter 5.4.8
// leaves some out).
func simdUnknown(sub uint32) bool {
	switch sub {
	case 0x9a, 0xa2, 0xa5, 0xa6, 0xaf, 0xb0, 0xb2, 0xb3, 0xb4, 0xbb, 0xc2, 0xc5, 0xc6,
		0xcf, 0xd0, 0xd2, 0xd3, 0xd4, 0xe2, 0xee:
		return true
	}
	return sub > 0xff
}

// free says that an instruction only gives a shape to what is around it: no
// machine code comes of it. Where there is a br_table at the head of a loop, as
// in all code of the Go toolchain, there are as many of them as it has targets.
func free(op byte) bool {
	switch op {
	case opNop, opDrop, opBlock, opLoop, opElse, opEnd:
		return true
	}
	return false
}
