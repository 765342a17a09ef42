//go:build !purego

#include "textflag.h"

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
