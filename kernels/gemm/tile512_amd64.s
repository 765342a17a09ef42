//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// One tile of C: up to 14 rows by 32 columns in Z0 to Z27, row r in Z(2r) and Z(2r+1).
// The loop over k is written out for each number of rows; what comes before and after it
// is shared and leaves when the rows are done. K1 and K2 hold the columns.
//
// A step reads 64 bytes of the packed panel of A, of which each row is one broadcast, and
// 128 bytes of B, and asks for a line at R14 that a later tile will read; a tile that ends
// with a mask asks for that before the loop. In the bf16 loop a step is two k: each 32-bit lane is a pair. The
// assembler does not know VDPBF16PS; DP spells its EVEX bytes: Z30 times Z28 or Z29, added
// to the accumulator.

#define FROW(off, c0, c1) \
	VBROADCASTSS off(SI), Z30 \
	VFMADD231PS  Z28, Z30, c0 \
	VFMADD231PS  Z29, Z30, c1

#define DP(head, tail) \
	LONG $head \
	WORD $tail

#define DROW(off, h0, t0, h1, t1) \
	VPBROADCASTD off(SI), Z30 \
	DP(h0, t0) \
	DP(h1, t1)

#define F1(o) FROW(o+0, Z0, Z1)
#define F2(o) F1(o); FROW(o+4, Z2, Z3)
#define F3(o) F2(o); FROW(o+8, Z4, Z5)
#define F4(o) F3(o); FROW(o+12, Z6, Z7)
#define F5(o) F4(o); FROW(o+16, Z8, Z9)
#define F6(o) F5(o); FROW(o+20, Z10, Z11)
#define F7(o) F6(o); FROW(o+24, Z12, Z13)
#define F8(o) F7(o); FROW(o+28, Z14, Z15)
#define F9(o) F8(o); FROW(o+32, Z16, Z17)
#define F10(o) F9(o); FROW(o+36, Z18, Z19)
#define F11(o) F10(o); FROW(o+40, Z20, Z21)
#define F12(o) F11(o); FROW(o+44, Z22, Z23)
#define F13(o) F12(o); FROW(o+48, Z24, Z25)
#define F14(o) F13(o); FROW(o+52, Z26, Z27)

#define D1(o) DROW(o+0, 0x401e9262, 0xc652, 0x40169262, 0xce52)
#define D2(o) D1(o); DROW(o+4, 0x401e9262, 0xd652, 0x40169262, 0xde52)
#define D3(o) D2(o); DROW(o+8, 0x401e9262, 0xe652, 0x40169262, 0xee52)
#define D4(o) D3(o); DROW(o+12, 0x401e9262, 0xf652, 0x40169262, 0xfe52)
#define D5(o) D4(o); DROW(o+16, 0x401e1262, 0xc652, 0x40161262, 0xce52)
#define D6(o) D5(o); DROW(o+20, 0x401e1262, 0xd652, 0x40161262, 0xde52)
#define D7(o) D6(o); DROW(o+24, 0x401e1262, 0xe652, 0x40161262, 0xee52)
#define D8(o) D7(o); DROW(o+28, 0x401e1262, 0xf652, 0x40161262, 0xfe52)
#define D9(o) D8(o); DROW(o+32, 0x401e8262, 0xc652, 0x40168262, 0xce52)
#define D10(o) D9(o); DROW(o+36, 0x401e8262, 0xd652, 0x40168262, 0xde52)
#define D11(o) D10(o); DROW(o+40, 0x401e8262, 0xe652, 0x40168262, 0xee52)
#define D12(o) D11(o); DROW(o+44, 0x401e8262, 0xf652, 0x40168262, 0xfe52)
#define D13(o) D12(o); DROW(o+48, 0x401e0262, 0xc652, 0x40160262, 0xce52)
#define D14(o) D13(o); DROW(o+52, 0x401e0262, 0xd652, 0x40160262, 0xde52)

// STEP4 is one of four steps of whole panels of B, which lie one behind the other.
#define STEP4(o, b, STEPS) \
	VMOVUPS b(DI), Z28    \
	VMOVUPS 64+b(DI), Z29 \
	STEPS(o)

// LOOP runs STEPS for every step of k: four at a time where panels are whole, as masks and
// counting take a tenth of the multiply-adders' time on an Intel processor.
#define LOOP(label, four, rest, one, STEPS) \
label: \
	TESTQ      R12, R12       \
	JZ         one            \
	SUBQ       $4, CX         \
	JLT        rest     \
four: \
	PREFETCHT1 (R14)          \
	PREFETCHT1 (R14)(R15*1)   \
	PREFETCHT1 (R14)(R15*2)   \
	PREFETCHT1 (R14)(R13*1)   \
	LEAQ       (R14)(R15*4), R14 \
	STEP4(0, 0, STEPS)        \
	STEP4(64, 128, STEPS)     \
	STEP4(128, 256, STEPS)    \
	STEP4(192, 384, STEPS)    \
	ADDQ       $256, SI       \
	ADDQ       $512, DI       \
	SUBQ       $4, CX         \
	JGE        four           \
rest: \
	ADDQ       $4, CX         \
	JZ         finish         \
one: \
	VMOVUPS.Z (DI), K1, Z28   \
	VMOVUPS.Z 64(DI), K2, Z29 \
	PREFETCHT1 (R14)          \
	ADDQ      R15, R14        \
	STEPS(0)                  \
	ADDQ      $64, SI         \
	ADDQ      R8, DI          \
	DECQ      CX              \
	JNZ       one             \
	JMP       finish

#define LOAD(c0, c1) \
	VMOVUPS.Z (R10), K1, c0   \
	VMOVUPS.Z 64(R10), K2, c1 \
	ADDQ      R9, R10         \
	DECQ      R11             \
	JZ        loop

#define MASK(c0, c1) \
	VMOVUPS.Z (R10), K1, Z28       \
	VMOVUPS.Z 64(R10), K2, Z29     \
	VCMPPS    $22, Z31, Z28, K3    \
	VCMPPS    $22, Z31, Z29, K4    \
	VMOVAPS.Z c0, K3, c0           \
	VMOVAPS.Z c1, K4, c1           \
	ADDQ      R12, R10             \
	DECQ      R11                  \
	JZ        store

#define STORE(c0, c1) \
	VMOVUPS c0, K1, (R10)   \
	VMOVUPS c1, K2, 64(R10) \
	ADDQ    R9, R10         \
	DECQ    R11             \
	JZ      done

#define BOTH(c0, c1) \
	VMOVAPS Z28, c0 \
	VMOVAPS Z29, c1

// VMAXPS gives its last source, the value, where either is NaN and where both are zero.
#define RELU(c0, c1) \
	VMAXPS c0, Z31, c0 \
	VMAXPS c1, Z31, c1

#define ROWS(DO) \
	DO(Z0, Z1) \
	DO(Z2, Z3) \
	DO(Z4, Z5) \
	DO(Z6, Z7) \
	DO(Z8, Z9) \
	DO(Z10, Z11) \
	DO(Z12, Z13) \
	DO(Z14, Z15) \
	DO(Z16, Z17) \
	DO(Z18, Z19) \
	DO(Z20, Z21) \
	DO(Z22, Z23) \
	DO(Z24, Z25) \
	DO(Z26, Z27)

#define BEGIN \
	MOVQ   t+0(FP), AX      \
	MOVQ   tile_a(AX), SI   \
	MOVQ   tile_b(AX), DI   \
	MOVQ   tile_c(AX), DX   \
	MOVQ   tile_steps(AX), CX  \
	MOVQ   tile_ldb(AX), R8 \
	MOVQ   tile_ldc(AX), R9 \
	MOVQ   tile_rows(AX), BX \
	MOVQ   tile_ahead(AX), R14 \
	MOVQ   tile_pace(AX), R15 \
	MOVQ   tile_cols(AX), R13 \
	KMOVW  R13, K1 \
	SHRQ   $16, R13 \
	KMOVW  R13, K2 \
	VPXORD Z31, Z31, Z31 \
	CMPQ   tile_finish(AX), $2 \
	JNE    begin \
	MOVQ   BX, R11 \
	MOVQ   tile_mask(AX), R10 \
	MOVQ   tile_ldm(AX), R12 \
ask: \
	PREFETCHT0 (R10) \
	PREFETCHT0 64(R10) \
	ADDQ   R12, R10 \
	DECQ   R11 \
	JNZ    ask \
begin: \
	MOVQ   BX, R11 \
	MOVQ   DX, R10 \
	MOVQ   tile_start(AX), R12 \
	CMPQ   R12, $1 \
	JEQ    fromc \
	MOVQ   tile_bias(AX), R10 \
	VPXORD Z28, Z28, Z28 \
	VPXORD Z29, Z29, Z29 \
	CMPQ   R12, $0 \
	JEQ    same \
	VMOVUPS.Z (R10), K1, Z28 \
	VMOVUPS.Z 64(R10), K2, Z29 \
same: \
	ROWS(BOTH) \
	JMP    loop \
fromc: \
	ROWS(LOAD)

// WHOLE sets R12 to 1 where steps of B are 128 bytes one behind the other, of which all are
// read, else to 0, and R13 to three times R15.
#define WHOLE \
	MOVQ tile_cols(AX), R12 \
	INCQ R12 \
	SHRQ $32, R12 \
	LEAQ (R15)(R15*2), R13 \
	CMPQ R8, $128 \
	JEQ  whole \
	XORQ R12, R12 \
whole: \

#define END \
finish: \
	MOVQ   BX, R11 \
	MOVQ   tile_finish(AX), R12 \
	CMPQ   R12, $1 \
	JLT    store \
	JGT    masked \
	ROWS(RELU) \
	JMP    store \
masked: \
	MOVQ   tile_mask(AX), R10 \
	MOVQ   tile_ldm(AX), R12 \
	ROWS(MASK) \
store: \
	MOVQ   BX, R11 \
	MOVQ   DX, R10 \
	ROWS(STORE) \
done: \
	VZEROUPPER \
	RET

#define TILE(M1, M2, M3, M4, M5, M6, M7, M8, M9, M10, M11, M12, M13, M14) \
	BEGIN \
loop: \
	TESTQ CX, CX \
	JZ    finish \
	WHOLE \
	CMPQ  BX, $14 \
	JEQ   k14 \
	CMPQ  BX, $13 \
	JEQ   k13 \
	CMPQ  BX, $12 \
	JEQ   k12 \
	CMPQ  BX, $11 \
	JEQ   k11 \
	CMPQ  BX, $10 \
	JEQ   k10 \
	CMPQ  BX, $9 \
	JEQ   k9 \
	CMPQ  BX, $8 \
	JEQ   k8 \
	CMPQ  BX, $7 \
	JEQ   k7 \
	CMPQ  BX, $6 \
	JEQ   k6 \
	CMPQ  BX, $5 \
	JEQ   k5 \
	CMPQ  BX, $4 \
	JEQ   k4 \
	CMPQ  BX, $3 \
	JEQ   k3 \
	CMPQ  BX, $2 \
	JEQ   k2 \
	CMPQ  BX, $1 \
	JEQ   k1 \
	LOOP(k14, four14, rest14, one14, M14) \
	LOOP(k13, four13, rest13, one13, M13) \
	LOOP(k12, four12, rest12, one12, M12) \
	LOOP(k11, four11, rest11, one11, M11) \
	LOOP(k10, four10, rest10, one10, M10) \
	LOOP(k9, four9, rest9, one9, M9) \
	LOOP(k8, four8, rest8, one8, M8) \
	LOOP(k7, four7, rest7, one7, M7) \
	LOOP(k6, four6, rest6, one6, M6) \
	LOOP(k5, four5, rest5, one5, M5) \
	LOOP(k4, four4, rest4, one4, M4) \
	LOOP(k3, four3, rest3, one3, M3) \
	LOOP(k2, four2, rest2, one2, M2) \
	LOOP(k1, four1, rest1, one1, M1) \
	END

// func tileAVX512(t *tile)
TEXT ·tileAVX512(SB), NOSPLIT, $0-8
	TILE(F1, F2, F3, F4, F5, F6, F7, F8, F9, F10, F11, F12, F13, F14)

// func tileBF16(t *tile)
TEXT ·tileBF16(SB), NOSPLIT, $0-8
	TILE(D1, D2, D3, D4, D5, D6, D7, D8, D9, D10, D11, D12, D13, D14)

