//go:build !purego

#include "textflag.h"
#include "locate_amd64.h"

// stage: slots 0, n 8, from 16, sum 24, grads 32, sums 40, dim 48, rate 56, decay 60,
// times 64, shift 72, mask 80, second 88, ahead 96, lines 104, hashes 112, heads 120,
// slots1 128, slots2 136, list 144, rows 152, more 160,
// counter 168.

// SOME takes the next rows of a stage, eight at most, and the bursts behind as far; it
// ends at done. Then: DX slot, CX left, R8 from, R9 sum, R10 grads, R11 sums, R12 bytes of
// a gradient, R13 ahead, R15 lines, and K2 the odd weights at the end all the time.

#define SOME(all, done) \
	MOVQ  s+0(FP), AX; \
	MOVQ  8(AX), CX; \
	TESTQ CX, CX; \
	JZ    done; \
	CMPQ  CX, $8; \
	JLE   all; \
	MOVL  $8, CX; \
all: \
	SUBQ  CX, 8(AX); \
	MOVQ  CX, 0(SP); \
	CALL  lookAhead<>(SB); \
	MOVQ  s+0(FP), AX; \
	MOVQ  0(SP), CX; \
	MOVQ  0(AX), DX; \
	MOVQ  16(AX), R8; \
	MOVQ  24(AX), R9; \
	MOVQ  32(AX), R10; \
	MOVQ  40(AX), R11; \
	MOVQ  48(AX), R12; \
	SHLQ  $2, R12; \
	MOVQ  96(AX), R13; \
	MOVQ  104(AX), R15

#define START \
	MOVQ  s+0(FP), AX; \
	MOVQ  48(AX), BX; \
	ANDQ  $15, BX; \
	MOVL  $-1, CX; \
	BZHIL BX, CX, CX; \
	KMOVW CX, K2; \
	VBROADCASTSS 56(AX), Z31; \
	VBROADCASTSS 60(AX), Z30; \
	VPXORQ       Z29, Z29, Z29

// AHEAD asks for the row of a later slot.

#define AHEAD(lines, none) \
	TESTQ R13, R13; \
	JZ    none; \
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

// ROW sets DI to the row, SI to its gradient and AX to the bytes of that.

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

// NEXT stamps the row and goes on. What has not changed need not go back to memory.

#define NEXT(stamped, skip, row, some) \
	MOVQ  s+0(FP), SI; \
	MOVQ  8(DX), AX; \
	MOVQ  72(SI), BX; \
	SHRXQ BX, AX, DI; \
	MOVQ  64(SI), BX; \
	MOVQ  (BX)(DI*8), DI; \
	ANDQ  80(SI), AX; \
	MOVL  88(SI), BX; \
	CMPL  BX, (DI)(AX*4); \
	JEQ   stamped; \
	MOVL  BX, (DI)(AX*4); \
stamped: \
skip: \
	ADDQ $32, DX; \
	ADDQ $4, R8; \
	ADDQ $4, R9; \
	DECQ CX; \
	JNZ  row; \
	MOVQ s+0(FP), AX; \
	MOVQ DX, 0(AX); \
	MOVQ R8, 16(AX); \
	MOVQ R9, 24(AX); \
	JMP  some

// func adagradStageAVX512(s *stage)
TEXT ·adagradStageAVX512(SB), NOSPLIT, $8-8
	START

some:
	SOME(all, done)

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
	JZ        stamp
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

stamp:
	NEXT(stamped, skip, row, some)

done:
	VZEROUPPER
	RET

// func sgdStageAVX512(s *stage)
TEXT ·sgdStageAVX512(SB), NOSPLIT, $8-8
	START

some:
	SOME(all, done)

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
	JZ        stamp
	VMOVUPS.Z (DI), K2, Z0
	VMOVUPS.Z (SI), K2, Z1
	VMULPS    Z1, Z31, Z1
	VSUBPS    Z1, Z0, Z0
	VMOVUPS   Z0, K2, (DI)

stamp:
	NEXT(stamped, skip, row, some)

done:
	VZEROUPPER
	RET

// lookAhead does the first step for the next ids of a stage and the second one for the
// next slots. AX stage, CX how many. It leaves the upper Z registers and K2 alone.
TEXT lookAhead<>(SB), NOSPLIT, $24-0
	MOVQ  AX, 0(SP)
	MOVQ  CX, 8(SP)
	MOVQ  CX, 16(SP)
	MOVQ  112(AX), SI
	TESTQ SI, SI
	JZ    second
	MOVQ  120(AX), DI
	MOVQ  128(AX), DX
	MOVQ  168(AX), R8

loop1:
	MOVQ (SI), AX
	MOVQ AX, CX
	SHRQ $58, CX
	SHLQ $6, CX
	ADDQ DI, CX
	LEAQ (CX)(R8*1), BX
	MOVL (BX), R11           // before anything else of the head
	STEP1(moved, go)
	DECQ 8(SP)
	JNZ  loop1
	MOVQ 0(SP), AX
	MOVQ SI, 112(AX)
	MOVQ DX, 128(AX)

second:
	MOVQ  136(AX), DI
	TESTQ DI, DI
	JZ    done
	MOVQ  144(AX), CX
	MOVQ  152(AX), R12
	MOVQ  160(AX), R13

loop2:
	STEP2ENTRY(bad)
	VPBROADCASTQ 8(DX), Z1
	VPBROADCASTQ R15, Z2
	VPXORQ       (SI), Z1, Z1
	VPTESTNMQ    Z2, Z1, K1
	KMOVB        K1, R8
	STEP2FOUND(none, bad, fetch, lines, next)

none:
	STEP2MORE(miss, next)

miss:
	MOVQ $0, (DX)
	JMP  next

bad:
	MOVQ $0, (DX)
	MOVL $1, 24(DX)

next:
	ADDQ $4, CX
	DECQ 16(SP)
	JNZ  loop2
	MOVQ 0(SP), AX
	MOVQ CX, 144(AX)
	MOVQ R13, 160(AX)

done:
	RET

moved:
	STEP1MOVED(go)
