//go:build !purego

#include "textflag.h"
#include "locate_amd64.h"

// func step1(ids *int64, n int, heads *head, counter uintptr, slots *slot)
TEXT ·step1(SB), NOSPLIT, $0-40
	MOVQ ids+0(FP), SI
	MOVQ heads+16(FP), DI
	MOVQ slots+32(FP), DX
	MOVQ $0x9e3779b97f4a7c15, R8
	MOVQ $0xbf58476d1ce4e5b9, R9
	MOVQ $0x94d049bb133111eb, R10

loop:
	MOVQ  (SI), AX
	ADDQ  R8, AX
	MOVQ  AX, BX
	SHRQ  $30, BX
	XORQ  BX, AX
	IMULQ R9, AX
	MOVQ  AX, BX
	SHRQ  $27, BX
	XORQ  BX, AX
	IMULQ R10, AX
	MOVQ  AX, BX
	SHRQ  $31, BX
	XORQ  BX, AX
	MOVQ  AX, BX
	SHRQ  $58, BX
	SHLQ  $6, BX
	ADDQ  DI, BX
	MOVQ  BX, CX
	ADDQ  counter+24(FP), BX
	MOVL  (BX), R11           // before anything else of the head
	STEP1(moved, go)
	DECQ  n+8(FP)
	JNZ   loop
	RET

moved:
	STEP1MOVED(go)

// func step1Hashed(hashes *int64, n int, heads *head, counter uintptr, slots *slot)
TEXT ·step1Hashed(SB), NOSPLIT, $0-40
	MOVQ hashes+0(FP), SI
	MOVQ heads+16(FP), DI
	MOVQ slots+32(FP), DX
	MOVQ counter+24(FP), R8

loop:
	MOVQ (SI), AX
	MOVQ AX, CX
	SHRQ $58, CX
	SHLQ $6, CX
	ADDQ DI, CX
	LEAQ (CX)(R8*1), BX
	MOVL (BX), R11           // before anything else of the head
	STEP1(moved, go)
	DECQ n+8(FP)
	JNZ  loop
	RET

moved:
	STEP1MOVED(go)

// func hashAVX512(ids *int64, n int, hashes *uint64)
TEXT ·hashAVX512(SB), NOSPLIT, $0-24
	MOVQ         ids+0(FP), SI
	MOVQ         n+8(FP), CX
	MOVQ         hashes+16(FP), DI
	MOVQ         $0x9e3779b97f4a7c15, R8
	MOVQ         $0xbf58476d1ce4e5b9, R9
	MOVQ         $0x94d049bb133111eb, R10
	VPBROADCASTQ R8, Z8
	VPBROADCASTQ R9, Z9
	VPBROADCASTQ R10, Z10
	KXNORW       K1, K1, K1

loop:
	CMPQ  CX, $8
	JCC   full
	MOVL  $-1, AX
	BZHIL CX, AX, AX
	KMOVW AX, K1

full:
	VMOVDQU64.Z (SI), K1, Z0
	VPADDQ      Z8, Z0, Z0
	VPSRLQ      $30, Z0, Z1
	VPXORQ      Z1, Z0, Z0
	VPMULLQ     Z9, Z0, Z0
	VPSRLQ      $27, Z0, Z1
	VPXORQ      Z1, Z0, Z0
	VPMULLQ     Z10, Z0, Z0
	VPSRLQ      $31, Z0, Z1
	VPXORQ      Z1, Z0, Z0
	VMOVDQU64   Z0, K1, (DI)
	ADDQ        $64, SI
	ADDQ        $64, DI
	SUBQ        $8, CX
	JG          loop
	VZEROUPPER
	RET

// func step2AVX512(slots *slot, list *uint32, n int, rows *view, more *uint32) int
TEXT ·step2AVX512(SB), NOSPLIT, $0-48
	MOVQ slots+0(FP), DI
	MOVQ list+8(FP), CX
	MOVQ rows+24(FP), R12
	MOVQ more+32(FP), R13

loop:
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
	DECQ n+16(FP)
	JNZ  loop
	SUBQ more+32(FP), R13
	SHRQ $2, R13
	MOVQ R13, ret+40(FP)
	VZEROUPPER
	RET

// func step2AVX2(slots *slot, list *uint32, n int, rows *view, more *uint32) int
TEXT ·step2AVX2(SB), NOSPLIT, $0-48
	MOVQ slots+0(FP), DI
	MOVQ list+8(FP), CX
	MOVQ rows+24(FP), R12
	MOVQ more+32(FP), R13

loop:
	STEP2ENTRY(bad)
	VPBROADCASTQ 8(DX), Y1
	MOVQ         R15, X2
	VPBROADCASTQ X2, Y2
	VPXOR        Y4, Y4, Y4
	VPXOR        32(SI), X1, X3   // before Y1 changes
	VPXOR        (SI), Y1, Y1
	VPAND        Y2, Y1, Y1
	VPAND        X2, X3, X3
	VPCMPEQQ     Y4, Y1, Y1
	VPCMPEQQ     X4, X3, X3
	VMOVMSKPD    Y1, R8
	VMOVMSKPD    X3, R10
	SHLL         $4, R10
	ORL          R10, R8
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
	DECQ n+16(FP)
	JNZ  loop
	SUBQ more+32(FP), R13
	SHRQ $2, R13
	MOVQ R13, ret+40(FP)
	VZEROUPPER
	RET

// Both step3: DX slot, CX left, DI out, R8 size, R9 bad, R10 found, R11 number of slot.

#define STEP3CHECK(bad) \
	MOVQ  16(DX), BX; \
	MOVL  24(DX), R12; \
	TESTL $1, R12; \
	JNZ   bad; \
	CMPL  R12, (BX); \
	JNE   bad

#define STEP3NEXT(loop) \
	ADDQ R8, DI; \
	ADDQ $32, DX; \
	INCL R11; \
	DECQ CX; \
	JNZ  loop

// func step3AVX512(slots *slot, n int, out unsafe.Pointer, size int, bad *uint32) uint64
TEXT ·step3AVX512(SB), NOSPLIT, $0-48
	MOVQ slots+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ out+16(FP), DI
	MOVQ size+24(FP), R8
	MOVQ bad+32(FP), R9
	XORQ R10, R10
	XORQ R11, R11
	MOVQ  R8, AX
	ANDQ  $63, AX
	MOVQ  $-1, BX
	BZHIQ AX, BX, BX
	KMOVQ BX, K1          // the odd bytes at the end

loop:
	STEP3CHECK(bad)
	MOVQ  (DX), SI
	MOVQ  R8, AX
	MOVQ  DI, R13
	TESTQ SI, SI
	JZ    zero
	CMPQ  AX, $64
	JCS   rest

copy:
	VMOVDQU64 (SI), Z0
	VMOVDQU64 Z0, (R13)
	ADDQ      $64, SI
	ADDQ      $64, R13
	SUBQ      $64, AX
	CMPQ      AX, $64
	JCC       copy

rest:
	TESTQ AX, AX
	JZ    copied
	VMOVDQU8 (SI), K1, Z0
	VMOVDQU8 Z0, K1, (R13)

copied:
	CMPL R12, (BX)
	JNE  bad
	INCQ R10

next:
	STEP3NEXT(loop)
	SUBQ bad+32(FP), R9
	SHRQ $2, R9
	SHLQ $32, R10
	ORQ  R10, R9
	MOVQ R9, ret+40(FP)
	VZEROUPPER
	RET

zero:
	VPXORQ Z0, Z0, Z0

zeros:
	CMPQ AX, $64
	JCS  zerorest
	VMOVDQU64 Z0, (R13)
	ADDQ $64, R13
	SUBQ $64, AX
	JMP  zeros

zerorest:
	TESTQ AX, AX
	JZ    next
	VMOVDQU8 Z0, K1, (R13)
	JMP   next

bad:
	MOVL R11, (R9)
	ADDQ $4, R9
	JMP  next

// func step3AVX2(slots *slot, n int, out unsafe.Pointer, size int, bad *uint32) uint64
TEXT ·step3AVX2(SB), NOSPLIT, $0-48
	MOVQ slots+0(FP), DX
	MOVQ n+8(FP), CX
	MOVQ out+16(FP), DI
	MOVQ size+24(FP), R8
	MOVQ bad+32(FP), R9
	XORQ R10, R10
	XORQ R11, R11

loop:
	STEP3CHECK(bad)
	MOVQ  (DX), SI
	MOVQ  R8, AX
	MOVQ  DI, R13
	TESTQ SI, SI
	JZ    zero

copy:
	CMPQ    AX, $32
	JCS     copy4
	VMOVDQU (SI), Y0
	VMOVDQU Y0, (R13)
	ADDQ    $32, SI
	ADDQ    $32, R13
	SUBQ    $32, AX
	JMP     copy

copy4:
	CMPQ AX, $4
	JCS  copy1
	MOVL (SI), R14
	MOVL R14, (R13)
	ADDQ $4, SI
	ADDQ $4, R13
	SUBQ $4, AX
	JMP  copy4

copy1:
	TESTQ AX, AX
	JZ    copied
	MOVBLZX (SI), R14
	MOVB R14, (R13)
	INCQ SI
	INCQ R13
	DECQ AX
	JMP  copy1

copied:
	CMPL R12, (BX)
	JNE  bad
	INCQ R10

next:
	STEP3NEXT(loop)
	SUBQ bad+32(FP), R9
	SHRQ $2, R9
	SHLQ $32, R10
	ORQ  R10, R9
	MOVQ R9, ret+40(FP)
	VZEROUPPER
	RET

zero:
	VPXOR Y0, Y0, Y0

zeros:
	CMPQ    AX, $32
	JCS     zeros1
	VMOVDQU Y0, (R13)
	ADDQ    $32, R13
	SUBQ    $32, AX
	JMP     zeros

zeros1:
	TESTQ AX, AX
	JZ    next
	MOVB  $0, (R13)
	INCQ  R13
	DECQ  AX
	JMP   zeros1

bad:
	MOVL R11, (R9)
	ADDQ $4, R9
	JMP  next
