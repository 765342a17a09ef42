//go:build !purego

#include "textflag.h"

// Each loop takes what is left in pieces of 32 (dot) or 16, then 8, then single
// elements, so nothing beyond the slices is touched and alignment does not matter.
// Every element of axpy goes through the same operations whichever piece it falls in.

// func dotAVX2(a, b []float32) float32
TEXT ·dotAVX2(SB), NOSPLIT, $0-52
	MOVQ   a_base+0(FP), SI
	MOVQ   a_len+8(FP), CX
	MOVQ   b_base+24(FP), DI
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3

dot32:
	CMPQ        CX, $32
	JLT         dot8
	VMOVUPS     (SI), Y4
	VMOVUPS     32(SI), Y5
	VMOVUPS     64(SI), Y6
	VMOVUPS     96(SI), Y7
	VFMADD231PS (DI), Y4, Y0
	VFMADD231PS 32(DI), Y5, Y1
	VFMADD231PS 64(DI), Y6, Y2
	VFMADD231PS 96(DI), Y7, Y3
	ADDQ        $128, SI
	ADDQ        $128, DI
	SUBQ        $32, CX
	JMP         dot32

dot8:
	CMPQ        CX, $8
	JLT         dotsum
	VMOVUPS     (SI), Y4
	VFMADD231PS (DI), Y4, Y0
	ADDQ        $32, SI
	ADDQ        $32, DI
	SUBQ        $8, CX
	JMP         dot8

dotsum:
	VADDPS       Y1, Y0, Y0
	VADDPS       Y3, Y2, Y2
	VADDPS       Y2, Y0, Y0
	VEXTRACTF128 $1, Y0, X1
	VADDPS       X1, X0, X0
	VHADDPS      X0, X0, X0
	VHADDPS      X0, X0, X0

dot1:
	TESTQ       CX, CX
	JE          dotdone
	VMOVSS      (SI), X4
	VFMADD231SS (DI), X4, X0
	ADDQ        $4, SI
	ADDQ        $4, DI
	DECQ        CX
	JMP         dot1

dotdone:
	VMOVSS X0, ret+48(FP)
	VZEROUPPER
	RET

// func axpyAVX2(alpha float32, x, y []float32)
TEXT ·axpyAVX2(SB), NOSPLIT, $0-56
	VBROADCASTSS alpha+0(FP), Y0
	MOVQ         x_base+8(FP), SI
	MOVQ         x_len+16(FP), CX
	MOVQ         y_base+32(FP), DI

axpy16:
	CMPQ        CX, $16
	JLT         axpy8
	VMOVUPS     (DI), Y1
	VMOVUPS     32(DI), Y2
	VFMADD231PS (SI), Y0, Y1
	VFMADD231PS 32(SI), Y0, Y2
	VMOVUPS     Y1, (DI)
	VMOVUPS     Y2, 32(DI)
	ADDQ        $64, SI
	ADDQ        $64, DI
	SUBQ        $16, CX
	JMP         axpy16

axpy8:
	CMPQ        CX, $8
	JLT         axpy1
	VMOVUPS     (DI), Y1
	VFMADD231PS (SI), Y0, Y1
	VMOVUPS     Y1, (DI)
	ADDQ        $32, SI
	ADDQ        $32, DI
	SUBQ        $8, CX
	JMP         axpy8

axpy1:
	TESTQ       CX, CX
	JE          axpydone
	VMOVSS      (DI), X1
	VFMADD231SS (SI), X0, X1
	VMOVSS      X1, (DI)
	ADDQ        $4, SI
	ADDQ        $4, DI
	DECQ        CX
	JMP         axpy1

axpydone:
	VZEROUPPER
	RET

// func axpy4AVX2(a0, a1, a2, a3 float32, x0, x1, x2, x3, y []float32)
TEXT ·axpy4AVX2(SB), NOSPLIT, $0-136
	VBROADCASTSS a0+0(FP), Y0
	VBROADCASTSS a1+4(FP), Y1
	VBROADCASTSS a2+8(FP), Y2
	VBROADCASTSS a3+12(FP), Y3
	MOVQ         x0_base+16(FP), R8
	MOVQ         x1_base+40(FP), R9
	MOVQ         x2_base+64(FP), R10
	MOVQ         x3_base+88(FP), R11
	MOVQ         y_base+112(FP), DI
	MOVQ         y_len+120(FP), CX
	XORQ         AX, AX                // bytes done

four16:
	CMPQ        CX, $16
	JLT         four8
	VMOVUPS     (DI)(AX*1), Y4
	VMOVUPS     32(DI)(AX*1), Y5
	VFMADD231PS (R8)(AX*1), Y0, Y4
	VFMADD231PS 32(R8)(AX*1), Y0, Y5
	VFMADD231PS (R9)(AX*1), Y1, Y4
	VFMADD231PS 32(R9)(AX*1), Y1, Y5
	VFMADD231PS (R10)(AX*1), Y2, Y4
	VFMADD231PS 32(R10)(AX*1), Y2, Y5
	VFMADD231PS (R11)(AX*1), Y3, Y4
	VFMADD231PS 32(R11)(AX*1), Y3, Y5
	VMOVUPS     Y4, (DI)(AX*1)
	VMOVUPS     Y5, 32(DI)(AX*1)
	ADDQ        $64, AX
	SUBQ        $16, CX
	JMP         four16

four8:
	CMPQ        CX, $8
	JLT         four1
	VMOVUPS     (DI)(AX*1), Y4
	VFMADD231PS (R8)(AX*1), Y0, Y4
	VFMADD231PS (R9)(AX*1), Y1, Y4
	VFMADD231PS (R10)(AX*1), Y2, Y4
	VFMADD231PS (R11)(AX*1), Y3, Y4
	VMOVUPS     Y4, (DI)(AX*1)
	ADDQ        $32, AX
	SUBQ        $8, CX
	JMP         four8

four1:
	TESTQ       CX, CX
	JE          fourdone
	VMOVSS      (DI)(AX*1), X4
	VFMADD231SS (R8)(AX*1), X0, X4
	VFMADD231SS (R9)(AX*1), X1, X4
	VFMADD231SS (R10)(AX*1), X2, X4
	VFMADD231SS (R11)(AX*1), X3, X4
	VMOVSS      X4, (DI)(AX*1)
	ADDQ        $4, AX
	DECQ        CX
	JMP         four1

fourdone:
	VZEROUPPER
	RET
