//go:build !purego

#include "textflag.h"

// func maxBitsAVX512(x *float32, n int) uint32
TEXT ·maxBitsAVX512(SB), NOSPLIT, $0-20
	MOVQ         x+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVL         $0x7fffffff, AX
	VPBROADCASTD AX, Z4
	VPXORQ       Z0, Z0, Z0
	VPXORQ       Z1, Z1, Z1
	VPXORQ       Z2, Z2, Z2
	VPXORQ       Z3, Z3, Z3

max64:
	CMPQ    CX, $64
	JLT     max16
	VPANDD  (SI), Z4, Z5
	VPANDD  64(SI), Z4, Z6
	VPANDD  128(SI), Z4, Z7
	VPANDD  192(SI), Z4, Z8
	VPMAXUD Z5, Z0, Z0
	VPMAXUD Z6, Z1, Z1
	VPMAXUD Z7, Z2, Z2
	VPMAXUD Z8, Z3, Z3
	ADDQ    $256, SI
	SUBQ    $64, CX
	JMP     max64

max16:
	CMPQ    CX, $16
	JLT     maxrest
	VPANDD  (SI), Z4, Z5
	VPMAXUD Z5, Z0, Z0
	ADDQ    $64, SI
	SUBQ    $16, CX
	JMP     max16

maxrest:
	MOVL        $-1, AX
	BZHIL       CX, AX, AX
	KMOVW       AX, K1
	VPANDD.Z    (SI), Z4, K1, Z5
	VPMAXUD     Z5, Z0, Z0
	VPMAXUD     Z1, Z0, Z0
	VPMAXUD     Z3, Z2, Z2
	VPMAXUD     Z2, Z0, Z0
	VEXTRACTI64X4 $1, Z0, Y1
	VPMAXUD     Y1, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD     X1, X0, X0
	VPSHUFD     $0x4e, X0, X1
	VPMAXUD     X1, X0, X0
	VPSHUFD     $0xb1, X0, X1
	VPMAXUD     X1, X0, X0
	VMOVD       X0, AX
	MOVL        AX, ret+16(FP)
	VZEROUPPER
	RET

// AHEAD asks for the row of the slot R13 behind DX, R15 lines of it.

#define AHEAD(lines, none) \
	MOVQ  (DX)(R13*1), AX; \
	TESTQ AX, AX; \
	JZ    none; \
	MOVQ  R15, BX; \
lines: \
	PREFETCHT0 (AX); \
	ADDQ  $64, AX; \
	DECQ  BX; \
	JNZ   lines; \
none:

// func fetchRows(slots *slot, n, lines int)
TEXT ·fetchRows(SB), NOSPLIT, $0-24
	MOVQ slots+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ lines+16(FP), R15
	XORQ R13, R13

fetch:
	AHEAD(lines, none)
	ADDQ $32, DX
	DECQ CX
	JNZ  fetch
	RET

// func gatherAVX512(rows unsafe.Pointer, which *uint32, n, width int, out unsafe.Pointer)
TEXT ·gatherAVX512(SB), NOSPLIT, $0-40
	MOVQ rows+0(FP), SI
	MOVQ which+8(FP), DX
	MOVQ n+16(FP), CX
	MOVQ width+24(FP), R8
	MOVQ out+32(FP), DI

gather:
	CMPQ  CX, $32
	JLE   near
	MOVL  128(DX), AX      // 32 rows ahead
	IMULQ R8, AX
	ADDQ  SI, AX
	MOVQ  R8, BX

ahead:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $64, BX
	JNZ  ahead

near:
	MOVL  (DX), AX
	IMULQ R8, AX
	ADDQ  SI, AX
	MOVQ  R8, BX

copy:
	VMOVDQU64 (AX), Z0
	VMOVDQU64 Z0, (DI)
	ADDQ $64, AX
	ADDQ $64, DI
	SUBQ $64, BX
	JNZ  copy
	ADDQ $4, DX
	DECQ CX
	JNZ  gather
	VZEROUPPER
	RET

// func addOneAVX512(rows unsafe.Pointer, which *uint32, n, width int)
TEXT ·addOneAVX512(SB), NOSPLIT, $0-32
	MOVQ rows+0(FP), SI
	MOVQ which+8(FP), DX
	MOVQ n+16(FP), CX
	MOVQ width+24(FP), R8
	VPTERNLOGD $0xff, Z1, Z1, Z1 // -1

update:
	CMPQ  CX, $32
	JLE   near
	MOVL  128(DX), AX      // 32 rows ahead
	IMULQ R8, AX
	ADDQ  SI, AX
	MOVQ  R8, BX

ahead:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	SUBQ $64, BX
	JNZ  ahead

near:
	MOVL  (DX), AX
	IMULQ R8, AX
	ADDQ  SI, AX
	MOVQ  R8, BX

copy:
	VMOVDQU64 (AX), Z0
	VPSUBQ Z1, Z0, Z0
	VMOVDQU64 Z0, (AX)
	ADDQ $64, AX
	SUBQ $64, BX
	JNZ  copy
	ADDQ $4, DX
	DECQ CX
	JNZ  update
	VZEROUPPER
	RET
