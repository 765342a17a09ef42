//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Six rows by 16 columns of C in Y0 to Y11, row r in Y(2r) and Y(2r+1).

#define ROW(off, t, c0, c1) \
	VBROADCASTSS off(SI), t   \
	VFMADD231PS  Y12, t, c0 \
	VFMADD231PS  Y13, t, c1

#define LOAD(c0, c1) \
	VMOVUPS (R10), c0   \
	VMOVUPS 32(R10), c1 \
	ADDQ    R9, R10

#define STORE(c0, c1) \
	VMOVUPS c0, (DX)   \
	VMOVUPS c1, 32(DX) \
	ADDQ    R9, DX

// func blockAVX2(b *block)
// c += a*b; steps is at least 1.
TEXT ·blockAVX2(SB), NOSPLIT, $0-8
	MOVQ b+0(FP), AX
	MOVQ block_a(AX), SI
	MOVQ block_b(AX), DI
	MOVQ block_c(AX), DX
	MOVQ block_steps(AX), CX
	MOVQ block_ldb(AX), R8
	MOVQ block_ldc(AX), R9
	MOVQ DX, R10
	LOAD(Y0, Y1)
	LOAD(Y2, Y3)
	LOAD(Y4, Y5)
	LOAD(Y6, Y7)
	LOAD(Y8, Y9)
	LOAD(Y10, Y11)

step:
	VMOVUPS (DI), Y12
	VMOVUPS 32(DI), Y13
	ROW(0, Y14, Y0, Y1)
	ROW(4, Y15, Y2, Y3)
	ROW(8, Y14, Y4, Y5)
	ROW(12, Y15, Y6, Y7)
	ROW(16, Y14, Y8, Y9)
	ROW(20, Y15, Y10, Y11)
	ADDQ    $64, SI
	ADDQ    R8, DI
	DECQ    CX
	JNZ     step
	STORE(Y0, Y1)
	STORE(Y2, Y3)
	STORE(Y4, Y5)
	STORE(Y6, Y7)
	STORE(Y8, Y9)
	STORE(Y10, Y11)
	VZEROUPPER
	RET
