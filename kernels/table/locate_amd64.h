// slot: address 0, key or number 8, counter 16, seen 24, k 28; 32 bytes.
// head: seq 0, k 4, cur 8, n 16, split 20, next 24, nextN 32, nextK 36, form 40; 64 bytes.
// bucket: words 0, high 48, state 60; 64 bytes.
// view: chunks 0, count 8, shift 16, mask 24, size 32, lines 40, times 48, its shift 56,
// its mask 64.
//
// Loads are not reordered with loads on this architecture, nor stores with stores, which
// is all that comparing seq before and after needs.

// Both step1: SI id or hash, DI heads, DX slot, AX hash, CX head, BX counter, R11 what it
// was, R14 k. One steps on and looks for the rest of n itself.

#define STEP1(moved, go) \
	SHLQ  $6, AX; \
	MOVQ  AX, R12; \
	SHRQ  $32, R12; \
	MOVL  16(CX), R13; \
	IMULQ R12, R13; \
	SHRQ  $32, R13; \
	MOVL  20(CX), R15; \
	CMPQ  R13, R15; \
	JCS   moved; \
	MOVL  4(CX), R14; \
	MOVQ  8(CX), R15; \
go: \
	SHLXQ R14, AX, AX; \
	SHLQ  $6, R13; \
	ADDQ  R15, R13; \
	PREFETCHT0 (R13); \
	MOVQ  R13, 0(DX); \
	MOVQ  AX, 8(DX); \
	MOVQ  BX, 16(DX); \
	MOVL  R11, 24(DX); \
	MOVL  R14, 28(DX); \
	ADDQ  $32, DX; \
	ADDQ  $8, SI

#define STEP1MOVED(go) \
	MOVL  32(CX), R13; \
	IMULQ R12, R13; \
	SHRQ  $32, R13; \
	MOVL  36(CX), R14; \
	MOVQ  24(CX), R15; \
	JMP   go

// Both step2: CX list, DX slot, BX counter, SI bucket, R12 view, R13 more, R15 the mask of
// key and distance, AX its complement, R8 the entries that match, R9 state, R14 k.

#define STEP2ENTRY(bad) \
	MOVL  (CX), DX; \
	SHLQ  $5, DX; \
	ADDQ  DI, DX; \
	MOVQ  16(DX), BX; \
	MOVL  24(DX), R11; \
	TESTL $1, R11; \
	JNZ   bad; \
	CMPL  R11, (BX); \
	JNE   bad; \
	MOVQ  (DX), SI; \
	MOVL  28(DX), R14; \
	MOVL  $2, AX; \
	SHLXQ R14, AX, AX; \
	DECQ  AX; \
	SHLQ  $5, AX; \
	MOVQ  AX, R15; \
	NOTQ  R15

#define STEP2FOUND(none, bad, fetch, lines, next) \
	MOVL    60(SI), R9; \
	ANDL    R9, R8; \
	ANDL    $0x3f, R8; \
	JZ      none; \
	TZCNTL  R8, R8; \
	ANDQ    (SI)(R8*8), AX; \
	SHRQ    $5, AX; \
	MOVWLZX 48(SI)(R8*2), R10; \
	INCL    R14; \
	SHLXQ   R14, R10, R10; \
	ORQ     R10, AX; \
	MOVQ    AX, 8(DX); \
	MOVQ    16(R12), R14; \
	SHRXQ   R14, AX, R10; \
	CMPQ    R10, 8(R12); \
	JCC     bad; \
	MOVQ    (R12), R14; \
	MOVQ    (R14)(R10*8), R10; \
	ANDQ    24(R12), AX; \
	IMULQ   32(R12), AX; \
	ADDQ    R10, AX; \
	MOVQ    AX, (DX); \
	MOVQ    48(R12), R14; \
	TESTQ   R14, R14; \
	JZ      fetch; \
	MOVQ    8(DX), R10; \
	MOVQ    56(R12), R15; \
	SHRXQ   R15, R10, R15; \
	MOVQ    (R14)(R15*8), R15; \
	ANDQ    64(R12), R10; \
	LEAQ    (R15)(R10*4), R15; \
	PREFETCHT0 (R15); \
fetch: \
	MOVQ    40(R12), R10; \
	TESTQ   R10, R10; \
	JZ      next; \
lines: \
	PREFETCHT0 (AX); \
	ADDQ    $64, AX; \
	DECQ    R10; \
	JNZ     lines; \
	JMP     next

#define STEP2MORE(miss, next) \
	BTL     $7, R9; \
	JCC     miss; \
	MOVQ    8(DX), R10; \
	TESTL   $31, R10; \
	JNZ     miss; \
	LEAL    6(R14), R8; \
	SHRXQ   R8, R10, R8; \
	MOVQ    $0x9e3779b97f4a7c15, R15; \
	IMULQ   R15, R8; \
	SHRQ    $59, R8; \
	MOVL    $31, R15; \
	BZHIL   R14, R15, R15; \
	ANDL    R15, R8; \
	CMPL    R8, $1; \
	ADCL    $0, R8; \
	ORQ     R8, R10; \
	MOVQ    R10, 8(DX); \
	SHLQ    $6, R8; \
	ADDQ    R8, SI; \
	PREFETCHT0 (SI); \
	MOVQ    SI, (DX); \
	MOVL    (CX), AX; \
	MOVL    AX, (R13); \
	ADDQ    $4, R13; \
	JMP     next
