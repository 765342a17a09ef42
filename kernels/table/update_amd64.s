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

// Both updates: DX slot, CX left, R8 from, R9 sum, R10 grads, R11 sums, R12 bytes of a
// gradient, K2 the odd weights at the end; DI row, SI gradient, AX bytes left.

#define ROW(skip, sums) \
	MOVQ    (DX), DI; \
	TESTQ   DI, DI; \
	JZ      skip; \
	MOVQ    R11, BX; \
	MOVLQSX (R9), SI; \
	TESTQ   SI, SI; \
	JNS     sums; \
	MOVLQSX (R8), SI; \
	MOVQ    R10, BX; \
sums: \
	IMULQ   R12, SI; \
	ADDQ    BX, SI; \
	MOVQ    R12, AX

// R13 is how far ahead the slots lie whose rows are fetched now, R15 the lines of each.

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

#define NEXT(loop) \
	ADDQ $32, DX; \
	ADDQ $4, R8; \
	ADDQ $4, R9; \
	DECQ CX; \
	JNZ  loop

// func adagradRowsAVX512(slots *slot, n int, from, sum *int32, grads, sums *float32, dim int, rate, decay float32, ahead, lines int)
TEXT ·adagradRowsAVX512(SB), NOSPLIT, $0-80
	MOVQ  slots+0(FP), DX
	MOVQ  n+8(FP), CX
	MOVQ  from+16(FP), R8
	MOVQ  sum+24(FP), R9
	MOVQ  grads+32(FP), R10
	MOVQ  sums+40(FP), R11
	MOVQ  dim+48(FP), R12
	MOVQ  R12, AX
	ANDQ  $15, AX
	MOVL  $-1, BX
	BZHIL AX, BX, BX
	KMOVW BX, K2
	SHLQ  $2, R12
	VBROADCASTSS rate+56(FP), Z31
	VBROADCASTSS decay+60(FP), Z30
	VPXORQ       Z29, Z29, Z29
	MOVQ  ahead+64(FP), R13
	MOVQ  lines+72(FP), R15

row:
	AHEAD(lines, none)
	ROW(skip, sums)
	LEAQ (DI)(R12*1), BX // the slots
	CMPQ AX, $64
	JCS  rest

full:
	VMOVUPS (DI), Z0
	VMULPS  Z30, Z0, Z1
	VADDPS  (SI), Z1, Z1
	VMULPS  Z1, Z1, Z2
	VADDPS  (BX), Z2, Z2
	VMOVUPS Z2, (BX)
	VSQRTPS Z2, Z3
	VDIVPS  Z3, Z31, Z3
	VMULPS  Z1, Z3, Z3
	VCMPPS  $0x1e, Z29, Z2, K1
	VSUBPS  Z3, Z0, K1, Z0
	VMOVUPS Z0, (DI)
	ADDQ    $64, DI
	ADDQ    $64, SI
	ADDQ    $64, BX
	SUBQ    $64, AX
	CMPQ    AX, $64
	JCC     full

rest:
	TESTQ     AX, AX
	JZ        skip
	VMOVUPS.Z (DI), K2, Z0
	VMOVUPS.Z (SI), K2, Z1
	VMOVUPS.Z (BX), K2, Z2
	VMULPS    Z30, Z0, Z3
	VADDPS    Z1, Z3, Z1
	VMULPS    Z1, Z1, Z3
	VADDPS    Z2, Z3, Z2
	VMOVUPS   Z2, K2, (BX)
	VSQRTPS   Z2, Z3
	VDIVPS    Z3, Z31, Z3
	VMULPS    Z1, Z3, Z3
	VCMPPS    $0x1e, Z29, Z2, K1
	VSUBPS    Z3, Z0, K1, Z0
	VMOVUPS   Z0, K2, (DI)

skip:
	NEXT(row)
	VZEROUPPER
	RET

// func sgdRowsAVX512(slots *slot, n int, from, sum *int32, grads, sums *float32, dim int, rate float32, ahead, lines int)
TEXT ·sgdRowsAVX512(SB), NOSPLIT, $0-80
	MOVQ  slots+0(FP), DX
	MOVQ  n+8(FP), CX
	MOVQ  from+16(FP), R8
	MOVQ  sum+24(FP), R9
	MOVQ  grads+32(FP), R10
	MOVQ  sums+40(FP), R11
	MOVQ  dim+48(FP), R12
	MOVQ  R12, AX
	ANDQ  $15, AX
	MOVL  $-1, BX
	BZHIL AX, BX, BX
	KMOVW BX, K2
	SHLQ  $2, R12
	VBROADCASTSS rate+56(FP), Z31
	MOVQ  ahead+64(FP), R13
	MOVQ  lines+72(FP), R15

row:
	AHEAD(lines, none)
	ROW(skip, sums)
	CMPQ AX, $64
	JCS  rest

full:
	VMULPS  (SI), Z31, Z1
	VMOVUPS (DI), Z0
	VSUBPS  Z1, Z0, Z0
	VMOVUPS Z0, (DI)
	ADDQ    $64, DI
	ADDQ    $64, SI
	SUBQ    $64, AX
	CMPQ    AX, $64
	JCC     full

rest:
	TESTQ     AX, AX
	JZ        skip
	VMOVUPS.Z (DI), K2, Z0
	VMOVUPS.Z (SI), K2, Z1
	VMULPS    Z1, Z31, Z1
	VSUBPS    Z1, Z0, Z0
	VMOVUPS   Z0, K2, (DI)

skip:
	NEXT(row)
	VZEROUPPER
	RET

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

// func rewriteAVX512(rows unsafe.Pointer, which *uint32, n, width int)
TEXT ·rewriteAVX512(SB), NOSPLIT, $0-32
	MOVQ rows+0(FP), SI
	MOVQ which+8(FP), DX
	MOVQ n+16(FP), CX
	MOVQ width+24(FP), R8
	VPXORQ Z1, Z1, Z1

rewrite:
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
	VPADDQ Z1, Z0, Z0
	VMOVDQU64 Z0, (AX)
	ADDQ $64, AX
	SUBQ $64, BX
	JNZ  copy
	ADDQ $4, DX
	DECQ CX
	JNZ  rewrite
	VZEROUPPER
	RET
