//go:build !purego

#include "textflag.h"

// Sixteen lanes of all fields are summed at a time; dim is a multiple of 16.

// func forwardAVX512(emb, sums, y []float32, fields, dim int)
TEXT ·forwardAVX512(SB), NOSPLIT, $0-88
	MOVQ  emb_base+0(FP), SI
	MOVQ  sums_base+24(FP), DI
	MOVQ  y_base+48(FP), DX
	MOVQ  y_len+56(FP), CX
	MOVQ  fields+72(FP), R8
	MOVQ  dim+80(FP), R9
	SHLQ  $2, R9                // bytes of an embedding
	MOVQ  R8, R10
	IMULQ R9, R10               // bytes of a sample
	TESTQ CX, CX
	JZ    done

sample:
	VPXORD Z3, Z3, Z3 // square of sums less sum of squares
	XORQ   R11, R11

lanes:
	VPXORD Z0, Z0, Z0
	VPXORD Z1, Z1, Z1
	LEAQ   (SI)(R11*1), R12
	MOVQ   R8, R13

field:
	VMOVUPS     (R12), Z2
	VADDPS      Z2, Z0, Z0
	VFMADD231PS Z2, Z2, Z1
	ADDQ        R9, R12
	DECQ        R13
	JNZ         field
	VMOVUPS     Z0, (DI)(R11*1)
	VSUBPS      Z1, Z3, Z3
	VFMADD231PS Z0, Z0, Z3
	ADDQ        $64, R11
	CMPQ        R11, R9
	JLT         lanes

	VEXTRACTF64X4 $1, Z3, Y4
	VADDPS        Y4, Y3, Y3
	VEXTRACTF128  $1, Y3, X4
	VADDPS        X4, X3, X3
	VHADDPS       X3, X3, X3
	VHADDPS       X3, X3, X3
	MOVL          $0x3f000000, AX // 0.5
	VMOVD         AX, X4
	VMULSS        X4, X3, X3
	VADDSS        (DX), X3, X3
	VMOVSS        X3, (DX)
	ADDQ          R10, SI
	ADDQ          R9, DI
	ADDQ          $4, DX
	DECQ          CX
	JNZ           sample

done:
	VZEROUPPER
	RET

// func backwardAVX512(emb, sums, dy, demb []float32, fields, dim int)
TEXT ·backwardAVX512(SB), NOSPLIT, $0-112
	MOVQ  emb_base+0(FP), SI
	MOVQ  sums_base+24(FP), DI
	MOVQ  dy_base+48(FP), DX
	MOVQ  dy_len+56(FP), CX
	MOVQ  demb_base+72(FP), BX
	MOVQ  fields+96(FP), R8
	MOVQ  dim+104(FP), R9
	SHLQ  $2, R9
	MOVQ  R8, R10
	IMULQ R9, R10
	TESTQ CX, CX
	JZ    backdone

backsample:
	VBROADCASTSS (DX), Z3
	XORQ         R11, R11

backlanes:
	VMOVUPS (DI)(R11*1), Z0
	MOVQ    R11, R12
	MOVQ    R8, R13

backfield:
	VSUBPS      (SI)(R12*1), Z0, Z1
	VMOVUPS     (BX)(R12*1), Z2
	VFMADD231PS Z3, Z1, Z2
	VMOVUPS     Z2, (BX)(R12*1)
	ADDQ        R9, R12
	DECQ        R13
	JNZ         backfield
	ADDQ        $64, R11
	CMPQ        R11, R9
	JLT         backlanes
	ADDQ        R10, SI
	ADDQ        R10, BX
	ADDQ        R9, DI
	ADDQ        $4, DX
	DECQ        CX
	JNZ         backsample

backdone:
	VZEROUPPER
	RET
