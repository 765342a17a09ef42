//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// A panel is w lanes of 32 bits wide and some steps long: [step][lane], dst bytes apart.
// Lanes beyond w are left as they come out (zero in copies, a repeated row in
// transpositions): tiles compute nothing from them that is stored.

// func copyAVX512(p *panel)
// src is [step][lane]: every step is one row of up to 32 lanes.
TEXT ·copyAVX512(SB), NOSPLIT, $0-8
	MOVQ  p+0(FP), AX
	MOVQ  panel_src(AX), SI
	MOVQ  panel_ld(AX), R8
	MOVQ  panel_dst(AX), DI
	MOVQ  panel_stride(AX), R9
	MOVQ  panel_k(AX), CX
	MOVQ  panel_mask(AX), BX
	KMOVW BX, K1
	SHRQ  $16, BX
	KMOVW BX, K2
	CMPQ  R9, $64
	JEQ   narrow

wide:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z1
	VMOVUPS   Z0, (DI)
	VMOVUPS   Z1, 64(DI)
	ADDQ      R8, SI
	ADDQ      R9, DI
	DECQ      CX
	JNZ       wide
	VZEROUPPER
	RET

narrow:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS   Z0, (DI)
	ADDQ      R8, SI
	ADDQ      R9, DI
	DECQ      CX
	JNZ       narrow
	VZEROUPPER
	RET

// VCVTNEPS2BF16 in EVEX bytes, 16 floats of Z(s) to the 16 words of Y(d).
#define CVT_Z0_Y0 LONG $0x487ef262; WORD $0xc072
#define CVT_Z1_Y1 LONG $0x487ef262; WORD $0xc972
#define CVT_Z2_Y2 LONG $0x487ef262; WORD $0xd272
#define CVT_Z3_Y3 LONG $0x487ef262; WORD $0xdb72

// func copyBF16(p *panel)
// A step is two rows of src, rounded to bf16: the even row in the low half of each lane.
// panel.k counts rows; a last odd row is paired with zeros.
TEXT ·copyBF16(SB), NOSPLIT, $0-8
	MOVQ  p+0(FP), AX
	MOVQ  panel_src(AX), SI
	MOVQ  panel_ld(AX), R8
	MOVQ  panel_dst(AX), DI
	MOVQ  panel_stride(AX), R9
	MOVQ  panel_k(AX), CX
	MOVQ  panel_mask(AX), BX
	KMOVW BX, K1
	SHRQ  $16, BX
	KMOVW BX, K2

pair:
	CMPQ      CX, $2
	JLT       odd
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z (SI)(R8*1), K1, Z1
	VMOVUPS.Z 64(SI), K2, Z2
	VMOVUPS.Z 64(SI)(R8*1), K2, Z3
	LEAQ      (SI)(R8*2), SI

join:
	CVT_Z0_Y0
	CVT_Z1_Y1
	VPMOVZXWD Y0, Z0
	VPMOVZXWD Y1, Z1
	VPSLLD    $16, Z1, Z1
	VPORD     Z1, Z0, Z0
	VMOVUPS   Z0, (DI)
	CMPQ      R9, $64
	JEQ       next
	CVT_Z2_Y2
	CVT_Z3_Y3
	VPMOVZXWD Y2, Z2
	VPMOVZXWD Y3, Z3
	VPSLLD    $16, Z3, Z3
	VPORD     Z3, Z2, Z2
	VMOVUPS   Z2, 64(DI)

next:
	ADDQ R9, DI
	SUBQ $2, CX
	JGT  pair
	VZEROUPPER
	RET

odd:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z2
	VPXORD    Z1, Z1, Z1
	VPXORD    Z3, Z3, Z3
	JMP       join

// func roundBF16(dst *uint16, src *float32, n int)
// rounds n floats to bf16; dst gets 16 words at a time, the last ones zero beyond n.
TEXT ·roundBF16(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX

round16:
	CMPQ    CX, $16
	JLT     roundtail
	VMOVUPS (SI), Z0
	CVT_Z0_Y0
	VMOVDQU Y0, (DI)
	ADDQ    $64, SI
	ADDQ    $32, DI
	SUBQ    $16, CX
	JMP     round16

roundtail:
	TESTQ     CX, CX
	JZ        rounddone
	MOVQ      $1, AX
	SHLQ      CX, AX
	DECQ      AX
	KMOVW     AX, K1
	VMOVUPS.Z (SI), K1, Z0
	CVT_Z0_Y0
	VMOVDQU   Y0, (DI)

rounddone:
	VZEROUPPER
	RET

// The 16 by 16 transposition: four rounds of pairing. T1 joins lanes of neighbours, T2
// pairs of lanes, T3 and T4 quarters of registers.
#define T1(a, b, lo, hi) \
	VUNPCKLPS b, a, lo \
	VUNPCKHPS b, a, hi

#define T2(a, b, lo, hi) \
	VUNPCKLPD b, a, lo \
	VUNPCKHPD b, a, hi

#define QUARTERS(a, b, c, d, t0, t1, t2, t3) \
	VSHUFF32X4 $0x88, b, a, t0 \
	VSHUFF32X4 $0xdd, b, a, t1 \
	VSHUFF32X4 $0x88, d, c, t2 \
	VSHUFF32X4 $0xdd, d, c, t3 \
	VSHUFF32X4 $0x88, t2, t0, a \
	VSHUFF32X4 $0xdd, t2, t0, c \
	VSHUFF32X4 $0x88, t3, t1, b \
	VSHUFF32X4 $0xdd, t3, t1, d

#define OUT(z) \
	VMOVUPS z, (DI) \
	ADDQ    R9, DI  \
	DECQ    R10     \
	JZ      next

// ROW4 loads four rows from the next four pointers.
#define ROW4(at, a, b, c, d) \
	MOVQ      at+0(AX), R11           \
	MOVQ      at+8(AX), R12           \
	MOVQ      at+16(AX), R13          \
	MOVQ      at+24(AX), DX           \
	VMOVUPS.Z (R11)(SI*1), K1, a      \
	VMOVUPS.Z (R12)(SI*1), K1, b      \
	VMOVUPS.Z (R13)(SI*1), K1, c      \
	VMOVUPS.Z (DX)(SI*1), K1, d

// func transposeAVX512(p *panel)
// src is [lane][step]: panel.rows points at 16 rows, each panel.k lanes long.
TEXT ·transposeAVX512(SB), NOSPLIT, $0-8
	MOVQ p+0(FP), AX
	MOVQ panel_dst(AX), DI
	MOVQ panel_stride(AX), R9
	MOVQ panel_k(AX), CX
	XORQ SI, SI
	LEAQ panel_rows(AX), AX

block:
	MOVQ    CX, R10
	MOVL    $0xffff, BX
	CMPQ    CX, $16
	JGE     full
	MOVL    $1, BX
	SHLQ    CX, BX
	DECQ    BX
	JMP     masked

full:
	MOVQ $16, R10

masked:
	KMOVW BX, K1
	ROW4(0, Z0, Z1, Z2, Z3)
	ROW4(32, Z4, Z5, Z6, Z7)
	ROW4(64, Z8, Z9, Z10, Z11)
	ROW4(96, Z12, Z13, Z14, Z15)
	T1(Z0, Z1, Z16, Z17)
	T1(Z2, Z3, Z18, Z19)
	T1(Z4, Z5, Z20, Z21)
	T1(Z6, Z7, Z22, Z23)
	T1(Z8, Z9, Z24, Z25)
	T1(Z10, Z11, Z26, Z27)
	T1(Z12, Z13, Z28, Z29)
	T1(Z14, Z15, Z30, Z31)

	// Z(4i+j): rows 4i to 4i+3 of the columns j, 4+j, 8+j and 12+j.
	T2(Z16, Z18, Z0, Z1)
	T2(Z17, Z19, Z2, Z3)
	T2(Z20, Z22, Z4, Z5)
	T2(Z21, Z23, Z6, Z7)
	T2(Z24, Z26, Z8, Z9)
	T2(Z25, Z27, Z10, Z11)
	T2(Z28, Z30, Z12, Z13)
	T2(Z29, Z31, Z14, Z15)

	// Out come the columns j, 4+j, 8+j and 12+j in Z(j), Z(4+j), Z(8+j) and Z(12+j).
	QUARTERS(Z0, Z4, Z8, Z12, Z16, Z17, Z18, Z19)
	QUARTERS(Z1, Z5, Z9, Z13, Z20, Z21, Z22, Z23)
	QUARTERS(Z2, Z6, Z10, Z14, Z24, Z25, Z26, Z27)
	QUARTERS(Z3, Z7, Z11, Z15, Z28, Z29, Z30, Z31)
	OUT(Z0)
	OUT(Z1)
	OUT(Z2)
	OUT(Z3)
	OUT(Z4)
	OUT(Z5)
	OUT(Z6)
	OUT(Z7)
	OUT(Z8)
	OUT(Z9)
	OUT(Z10)
	OUT(Z11)
	OUT(Z12)
	OUT(Z13)
	OUT(Z14)
	OUT(Z15)

next:
	ADDQ $64, SI
	SUBQ $16, CX
	JGT  block
	VZEROUPPER
	RET
