//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Six rows by 16 columns of sums in Y0 to Y11, row r in Y(2r) and Y(2r+1).

#define ROW8(a, c0, c1) \
	VPBROADCASTD a, Y14     \
	VPMADDWD     Y12, Y14, Y15 \
	VPADDD       Y15, c0, c0  \
	VPMADDWD     Y13, Y14, Y15 \
	VPADDD       Y15, c1, c1

// Y12 and Y13 are the columns' scales, Y15 is the lowest; R10 the row's scale, DX the row of c, R12 the bias.
#define FINISH8(c0, c1) \
	VBROADCASTSS (R10), Y14     \
	VCVTDQ2PS    c0, c0         \
	VCVTDQ2PS    c1, c1         \
	VMULPS       Y14, c0, c0    \
	VMULPS       Y14, c1, c1    \
	VMULPS       Y12, c0, c0    \
	VMULPS       Y13, c1, c1    \
	VADDPS       (R12), c0, c0  \
	VADDPS       32(R12), c1, c1 \
	VMAXPS       c0, Y15, c0    \
	VMAXPS       c1, Y15, c1    \
	VMOVUPS      c0, (DX)       \
	VMOVUPS      c1, 32(DX)     \
	ADDQ         $4, R10        \
	ADDQ         R9, DX

// func block8AVX2(t *block8)
TEXT ·block8AVX2(SB), NOSPLIT, $0-8
	MOVQ t+0(FP), AX
	MOVQ block8_a(AX), SI
	MOVQ block8_b(AX), DI
	MOVQ block8_c(AX), DX
	MOVQ block8_steps(AX), CX
	MOVQ block8_lda(AX), R8
	MOVQ block8_ldc(AX), R9
	LEAQ (R8)(R8*2), R11
	LEAQ (SI)(R11*1), R13 // the fourth row
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	VPXOR Y8, Y8, Y8
	VPXOR Y9, Y9, Y9
	VPXOR Y10, Y10, Y10
	VPXOR Y11, Y11, Y11

step8:
	VMOVDQU (DI), Y12
	VMOVDQU 32(DI), Y13
	ROW8((SI), Y0, Y1)
	ROW8((SI)(R8*1), Y2, Y3)
	ROW8((SI)(R8*2), Y4, Y5)
	ROW8((R13), Y6, Y7)
	ROW8((R13)(R8*1), Y8, Y9)
	ROW8((R13)(R8*2), Y10, Y11)
	ADDQ $4, SI
	ADDQ $4, R13
	ADDQ $64, DI
	DECQ CX
	JNZ  step8

	MOVQ         block8_rows(AX), R10
	MOVQ         block8_cols(AX), R11
	MOVQ         block8_bias(AX), R12
	VMOVUPS      (R11), Y12
	VMOVUPS      32(R11), Y13
	VBROADCASTSS block8_lowest(AX), Y15
	FINISH8(Y0, Y1)
	FINISH8(Y2, Y3)
	FINISH8(Y4, Y5)
	FINISH8(Y6, Y7)
	FINISH8(Y8, Y9)
	FINISH8(Y10, Y11)
	VZEROUPPER
	RET

// func quantise16AVX2(dst, src *float32, n int, inv float32)
TEXT ·quantise16AVX2(SB), NOSPLIT, $0-28
	MOVQ         dst+0(FP), DI
	MOVQ         src+8(FP), SI
	MOVQ         n+16(FP), CX
	VBROADCASTSS inv+24(FP), Y2

sixteen:
	VMULPS    (SI), Y2, Y0
	VMULPS    32(SI), Y2, Y1
	VCVTPS2DQ Y0, Y0         // to nearest even
	VCVTPS2DQ Y1, Y1
	VPACKSSDW Y1, Y0, Y0
	VPERMQ    $0xd8, Y0, Y0
	VMOVDQU   Y0, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ      $16, CX
	JNZ       sixteen
	VZEROUPPER
	RET

// func spinInt8AVX2(n int)
// 12 multiply-adds of 16 lanes per turn.
TEXT ·spinInt8AVX2(SB), NOSPLIT, $0-8
	MOVQ  n+0(FP), CX
	VPXOR Y15, Y15, Y15
	VPXOR Y0, Y0, Y0
	VPXOR Y1, Y1, Y1
	VPXOR Y2, Y2, Y2
	VPXOR Y3, Y3, Y3
	VPXOR Y4, Y4, Y4
	VPXOR Y5, Y5, Y5
	VPXOR Y6, Y6, Y6
	VPXOR Y7, Y7, Y7
	VPXOR Y8, Y8, Y8
	VPXOR Y9, Y9, Y9
	VPXOR Y10, Y10, Y10
	VPXOR Y11, Y11, Y11

turn8:
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y0, Y0
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y1, Y1
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y2, Y2
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y3, Y3
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y4, Y4
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y5, Y5
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y6, Y6
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y7, Y7
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y8, Y8
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y9, Y9
	VPMADDWD Y15, Y15, Y13
	VPADDD   Y13, Y10, Y10
	VPMADDWD Y15, Y15, Y14
	VPADDD   Y14, Y11, Y11
	DECQ     CX
	JNZ      turn8
	VZEROUPPER
	RET
