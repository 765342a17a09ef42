//go:build !purego

#include "textflag.h"


// A missing row adds zeros, as in Go, which shows in the sign of a zero.
//
// POOL adds, for strips of 16*R numbers or the rest of one, the rows of n slots to out.
// DX slot, CX left, DI out, SI row, R8 bytes into the stored row, AX numbers left.

#define CHECK(bad) \
	MOVQ  16(DX), BX; \
	MOVL  24(DX), R12; \
	TESTL $1, R12; \
	JNZ   bad; \
	CMPL  R12, (BX); \
	JNE   bad

#define LOADF32(at, K, REG) VMOVUPS.Z (at*4)(SI), K, REG
#define LOADF16(at, K, REG) VCVTPH2PS.Z (at*2)(SI), K, REG
#define LOADINT8(at, K, REG) \
	VPMOVSXBD.Z at(SI), K, REG; \
	VCVTDQ2PS REG, REG; \
	VMULPS Z31, REG, REG

// R13 is how far ahead the slots lie whose rows are asked for now, R15 the lines of each,
// 0 once that is done; R9 and R14 are scratch.

#define AHEAD(lines, none) \
	TESTQ R15, R15; \
	JZ    none; \
	MOVQ  (DX)(R13*1), R14; \
	TESTQ R14, R14; \
	JZ    none; \
	MOVQ  R15, R9; \
lines: \
	PREFETCHT0 (R14); \
	ADDQ  $64, R14; \
	DECQ  R9; \
	JNZ   lines; \
none:

#define POOL(LOAD, shift, lines4, none4, lines1, none1, strip4, row4, missing4, next4, strip1, full1, row1, missing1, next1, bad, done) \
	XORQ    R8, R8; \
	KXNORW  K1, K1, K1; \
strip4: \
	CMPQ    AX, $64; \
	JCS     strip1; \
	MOVQ    R10, DX; \
	MOVQ    R11, CX; \
	VMOVUPS (DI), Z0; \
	VMOVUPS 64(DI), Z1; \
	VMOVUPS 128(DI), Z2; \
	VMOVUPS 192(DI), Z3; \
row4: \
	AHEAD(lines4, none4) \
	CHECK(bad); \
	MOVQ    (DX), SI; \
	TESTQ   SI, SI; \
	JZ      missing4; \
	ADDQ    R8, SI; \
	LOAD(0, K1, Z4); \
	LOAD(16, K1, Z5); \
	LOAD(32, K1, Z6); \
	LOAD(48, K1, Z7); \
	CMPL    R12, (BX); \
	JNE     bad; \
	VADDPS  Z4, Z0, Z0; \
	VADDPS  Z5, Z1, Z1; \
	VADDPS  Z6, Z2, Z2; \
	VADDPS  Z7, Z3, Z3; \
	JMP     next4; \
missing4: \
	VADDPS  Z30, Z0, Z0; \
	VADDPS  Z30, Z1, Z1; \
	VADDPS  Z30, Z2, Z2; \
	VADDPS  Z30, Z3, Z3; \
next4: \
	ADDQ    $32, DX; \
	DECQ    CX; \
	JNZ     row4; \
	VMOVUPS Z0, (DI); \
	VMOVUPS Z1, 64(DI); \
	VMOVUPS Z2, 128(DI); \
	VMOVUPS Z3, 192(DI); \
	XORQ    R15, R15; \
	ADDQ    $256, DI; \
	ADDQ    $(64<<shift), R8; \
	SUBQ    $64, AX; \
	JMP     strip4; \
strip1: \
	TESTQ   AX, AX; \
	JZ      done; \
	CMPQ    AX, $16; \
	JCC     full1; \
	MOVL    $-1, BX; \
	BZHIL   AX, BX, BX; \
	KMOVW   BX, K1; \
full1: \
	MOVQ    R10, DX; \
	MOVQ    R11, CX; \
	VMOVUPS.Z (DI), K1, Z0; \
row1: \
	AHEAD(lines1, none1) \
	CHECK(bad); \
	MOVQ    (DX), SI; \
	TESTQ   SI, SI; \
	JZ      missing1; \
	ADDQ    R8, SI; \
	LOAD(0, K1, Z4); \
	CMPL    R12, (BX); \
	JNE     bad; \
	VADDPS  Z4, Z0, Z0; \
	JMP     next1; \
missing1: \
	VADDPS  Z30, Z0, Z0; \
next1: \
	ADDQ    $32, DX; \
	DECQ    CX; \
	JNZ     row1; \
	VMOVUPS Z0, K1, (DI); \
	XORQ    R15, R15; \
	SUBQ    $16, AX; \
	JLE     done; \
	ADDQ    $64, DI; \
	ADDQ    $(16<<shift), R8; \
	JMP     strip1

// func poolRowsAVX512(slots *slot, n int, out *float32, dim, kind int, worth float32, ahead, lines int) bool
TEXT ·poolRowsAVX512(SB), NOSPLIT, $0-65
	MOVQ         slots+0(FP), R10
	MOVQ         n+8(FP), R11
	MOVQ         out+16(FP), DI
	MOVQ         dim+24(FP), AX
	MOVQ         kind+32(FP), R9
	VBROADCASTSS worth+40(FP), Z31
	VPXORQ       Z30, Z30, Z30
	MOVQ         ahead+48(FP), R13
	MOVQ         lines+56(FP), R15
	CMPQ         R9, $2
	JEQ          half
	JHI          int8

	POOL(LOADF32, 2, fl4, fo4, fl1, fo1, fs4, fr4, fm4, fn4, fs1, ff1, fr1, fm1, fn1, bad, done)

half:
	POOL(LOADF16, 1, hl4, ho4, hl1, ho1, hs4, hr4, hm4, hn4, hs1, hf1, hr1, hm1, hn1, bad, done)

int8:
	POOL(LOADINT8, 0, il4, io4, il1, io1, is4, ir4, im4, in4, is1, if1, ir1, im1, in1, bad, done)

done:
	MOVB $1, ret+64(FP)
	VZEROUPPER
	RET

bad:
	MOVB $0, ret+64(FP)
	VZEROUPPER
	RET
