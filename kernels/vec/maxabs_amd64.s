//go:build !purego

#include "textflag.h"

// The greatest of absolute values, compared as integers: NaN stands above infinity.

// func maxBitsBlocksAVX2(x []float32) uint32
TEXT ·maxBitsBlocksAVX2(SB), NOSPLIT, $0-28
	MOVQ         x_base+0(FP), SI
	MOVQ         x_len+8(FP), CX
	VPCMPEQD     Y4, Y4, Y4
	VPSRLD       $1, Y4, Y4    // all but the sign
	VPXOR        Y0, Y0, Y0
	VPXOR        Y1, Y1, Y1
	VPXOR        Y2, Y2, Y2
	VPXOR        Y3, Y3, Y3

max32:
	CMPQ    CX, $32
	JLT     max8
	VPAND   (SI), Y4, Y5
	VPAND   32(SI), Y4, Y6
	VPAND   64(SI), Y4, Y7
	VPAND   96(SI), Y4, Y8
	VPMAXUD Y5, Y0, Y0
	VPMAXUD Y6, Y1, Y1
	VPMAXUD Y7, Y2, Y2
	VPMAXUD Y8, Y3, Y3
	ADDQ    $128, SI
	SUBQ    $32, CX
	JMP     max32

max8:
	CMPQ    CX, $8
	JLT     maxall
	VPAND   (SI), Y4, Y5
	VPMAXUD Y5, Y0, Y0
	ADDQ    $32, SI
	SUBQ    $8, CX
	JMP     max8

maxall:
	VPMAXUD      Y1, Y0, Y0
	VPMAXUD      Y3, Y2, Y2
	VPMAXUD      Y2, Y0, Y0
	VEXTRACTI128 $1, Y0, X1
	VPMAXUD      X1, X0, X0
	VPSHUFD      $0x4e, X0, X1
	VPMAXUD      X1, X0, X0
	VPSHUFD      $0xb1, X0, X1
	VPMAXUD      X1, X0, X0
	VMOVD        X0, AX
	MOVL         AX, ret+24(FP)
	VZEROUPPER
	RET

// func maxBitsAVX512(x []float32) uint32
TEXT ·maxBitsAVX512(SB), NOSPLIT, $0-28
	MOVQ         x_base+0(FP), SI
	MOVQ         x_len+8(FP), CX
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
	MOVL        AX, ret+24(FP)
	VZEROUPPER
	RET
