//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// The assembler does not know AMX; each macro spells the bytes of the instruction in the
// comment behind it, which a test has GNU as assemble.
#define LDTILECFG   BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0x00             // ldtilecfg [rax]
#define TILERELEASE BYTE $0xc4; BYTE $0xe2; BYTE $0x78; BYTE $0x49; BYTE $0xc0             // tilerelease
#define ZERO0       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc0             // tilezero tmm0
#define ZERO1       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xc8             // tilezero tmm1
#define ZERO2       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xd0             // tilezero tmm2
#define ZERO3       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xd8             // tilezero tmm3
#define ZERO4       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xe0             // tilezero tmm4
#define ZERO5       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xe8             // tilezero tmm5
#define ZERO6       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xf0             // tilezero tmm6
#define ZERO7       BYTE $0xc4; BYTE $0xe2; BYTE $0x7b; BYTE $0x49; BYTE $0xf8             // tilezero tmm7
#define LOAD0       BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x04; BYTE $0x12 // tileloadd tmm0,[rdx+r10*1]
#define LOAD1       BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x4c; BYTE $0x12; BYTE $0x40 // tileloadd tmm1,[rdx+r10*1+64]
#define LOAD2       BYTE $0xc4; BYTE $0x82; BYTE $0x7b; BYTE $0x4b; BYTE $0x14; BYTE $0x13 // tileloadd tmm2,[r11+r10*1]
#define LOAD3       BYTE $0xc4; BYTE $0x82; BYTE $0x7b; BYTE $0x4b; BYTE $0x5c; BYTE $0x13; BYTE $0x40 // tileloadd tmm3,[r11+r10*1+64]
#define LOADA0      BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x24; BYTE $0x06 // tileloadd tmm4,[rsi+r8*1]
#define LOADA1      BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0xac; BYTE $0x06; LONG $0x400 // tileloadd tmm5,[rsi+r8*1+1024]
#define LOADB0      BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x34; BYTE $0x0f // tileloadd tmm6,[rdi+r9*1]
#define LOADB1      BYTE $0xc4; BYTE $0xa2; BYTE $0x7b; BYTE $0x4b; BYTE $0x7c; BYTE $0x0f; BYTE $0x40 // tileloadd tmm7,[rdi+r9*1+64]
#define DOT0        BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xc4             // tdpbf16ps tmm0,tmm4,tmm6
#define DOT1        BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xcc             // tdpbf16ps tmm1,tmm4,tmm7
#define DOT2        BYTE $0xc4; BYTE $0xe2; BYTE $0x4a; BYTE $0x5c; BYTE $0xd5             // tdpbf16ps tmm2,tmm5,tmm6
#define DOT3        BYTE $0xc4; BYTE $0xe2; BYTE $0x42; BYTE $0x5c; BYTE $0xdd             // tdpbf16ps tmm3,tmm5,tmm7
#define STORE0      BYTE $0xc4; BYTE $0xa2; BYTE $0x7a; BYTE $0x4b; BYTE $0x04; BYTE $0x12 // tilestored [rdx+r10*1],tmm0
#define STORE1      BYTE $0xc4; BYTE $0xa2; BYTE $0x7a; BYTE $0x4b; BYTE $0x4c; BYTE $0x12; BYTE $0x40 // tilestored [rdx+r10*1+64],tmm1
#define STORE2      BYTE $0xc4; BYTE $0x82; BYTE $0x7a; BYTE $0x4b; BYTE $0x14; BYTE $0x13 // tilestored [r11+r10*1],tmm2
#define STORE3      BYTE $0xc4; BYTE $0x82; BYTE $0x7a; BYTE $0x4b; BYTE $0x5c; BYTE $0x13; BYTE $0x40 // tilestored [r11+r10*1+64],tmm3

// func sweepAMX(s *sweep)
// Tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B. A bias is loaded with no bytes from row to row.
TEXT ·sweepAMX(SB), NOSPLIT, $0-8
	MOVQ s+0(FP), AX
	LEAQ sweep_config(AX), AX
	LDTILECFG
	MOVQ s+0(FP), AX
	MOVQ sweep_c(AX), DX
	MOVQ sweep_tiles(AX), R13
	MOVBLZX sweep_low(AX), R14
	MOVBLZX sweep_right(AX), R15
	MOVQ $64, R8
	MOVQ $128, R9

tile:
	MOVQ DX, BX
	MOVQ sweep_ldc(AX), R10
	MOVQ sweep_start(AX), R12
	ZERO0
	ZERO1
	ZERO2
	ZERO3
	CMPQ R12, $0
	JEQ  multiply
	CMPQ R12, $1
	JEQ  fromc
	MOVQ sweep_bias(AX), DX
	XORQ R10, R10

fromc:
	MOVQ  R10, R11
	SHLQ  $4, R11
	ADDQ  DX, R11
	LOAD0
	TESTQ R15, R15
	JZ    left
	LOAD1

left:
	TESTQ R14, R14
	JZ    multiply
	LOAD2
	TESTQ R15, R15
	JZ    multiply
	LOAD3

multiply:
	MOVQ  sweep_a(AX), SI
	ADDQ  sweep_pastA(AX), SI
	MOVQ  sweep_b(AX), DI
	MOVQ  sweep_blocks(AX), CX
	TESTQ CX, CX
	JZ    store

block:
	LOADB0
	LOADA0
	DOT0
	LOADB1
	DOT1
	LOADA1
	DOT2
	DOT3
	ADDQ $2048, SI
	ADDQ $2048, DI
	DECQ CX
	JNZ  block

store:
	MOVQ  BX, DX
	MOVQ  sweep_ldc(AX), R10
	MOVQ  R10, R11
	SHLQ  $4, R11
	ADDQ  DX, R11
	STORE0
	TESTQ R15, R15
	JZ    leftonly
	STORE1

leftonly:
	TESTQ R14, R14
	JZ    next
	STORE2
	TESTQ R15, R15
	JZ    next
	STORE3

next:
	MOVQ sweep_nextA(AX), R12
	ADDQ R12, sweep_pastA(AX)
	ADDQ sweep_nextC(AX), DX
	DECQ R13
	JNZ  tile
	TILERELEASE
	RET

#define ROUND0 BYTE $0x62; BYTE $0xf2; BYTE $0x7e; BYTE $0x48; BYTE $0x72; BYTE $0xc0 // vcvtneps2bf16 ymm0,zmm0
#define ROUND1 BYTE $0x62; BYTE $0xf2; BYTE $0x7e; BYTE $0x48; BYTE $0x72; BYTE $0xc9 // vcvtneps2bf16 ymm1,zmm1

// func rowsBF16(p *panel)
// Rounds panel.k floats from src on and writes them 32 at a time, panel.stride apart, the
// last ones zero beyond k.
TEXT ·rowsBF16(SB), NOSPLIT, $0-8
	MOVQ   p+0(FP), AX
	MOVQ   panel_src(AX), SI
	MOVQ   panel_dst(AX), DI
	MOVQ   panel_stride(AX), R9
	MOVQ   panel_k(AX), CX
	KXNORW K1, K1, K1
	KXNORW K2, K2, K2

round:
	CMPQ  CX, $32
	JGE   all
	MOVQ  $1, BX
	SHLQ  CX, BX
	DECQ  BX
	KMOVW BX, K1
	SHRQ  $16, BX
	KMOVW BX, K2

all:
	VMOVUPS.Z (SI), K1, Z0
	VMOVUPS.Z 64(SI), K2, Z1
	ROUND0
	ROUND1
	VMOVUPS   Y0, (DI)
	VMOVUPS   Y1, 32(DI)
	ADDQ      $128, SI
	ADDQ      R9, DI
	SUBQ      $32, CX
	JGT       round
	VZEROUPPER
	RET

// whole is a configuration of full tiles.
DATA whole<>+0(SB)/8, $1
DATA whole<>+16(SB)/8, $0x0040004000400040
DATA whole<>+24(SB)/8, $0x0040004000400040
DATA whole<>+48(SB)/8, $0x1010101010101010
GLOBL whole<>(SB), RODATA|NOPTR, $64

// func spinAMX(n int)
// Four products of tiles per turn, of zeros.
TEXT ·spinAMX(SB), NOSPLIT, $0-8
	MOVQ n+0(FP), CX
	LEAQ whole<>(SB), AX
	LDTILECFG
	ZERO0
	ZERO1
	ZERO2
	ZERO3
	ZERO4
	ZERO5
	ZERO6
	ZERO7

turn:
	DOT0
	DOT1
	DOT2
	DOT3
	DECQ CX
	JNZ  turn
	TILERELEASE
	RET

// func xgetbv(what uint32) uint32
// The lower half of XCR0, or with what = 1 of the states in use. Whoever calls has seen
// AVX-512, hence OSXSAVE.
TEXT ·xgetbv(SB), NOSPLIT, $0-12
	MOVL what+0(FP), CX
	XGETBV
	MOVL AX, ret+8(FP)
	RET
