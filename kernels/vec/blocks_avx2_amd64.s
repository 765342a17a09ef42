//go:build !purego

#include "textflag.h"

// Elementwise loops in blocks of 8: len is a multiple of 8 and at least 8. No multiply
// is fused with an add, so every element has the bits that plain Go gives it.

// func addBlocksAVX2(x, y []float32)
TEXT ·addBlocksAVX2(SB), NOSPLIT, $0-48
	MOVQ y_base+24(FP), DI
	MOVQ y_len+32(FP), CX
	MOVQ x_base+0(FP), SI

addBlocksAVX28:
	VMOVUPS (DI), Y0
	VADDPS  (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ $8, CX
	JG   addBlocksAVX28
	VZEROUPPER
	RET

// func fromFP16BlocksAVX2(dst []float32, src []uint16)
TEXT ·fromFP16BlocksAVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI

fromFP16BlocksAVX28:
	VCVTPH2PS (SI), Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ $8, CX
	JG   fromFP16BlocksAVX28
	VZEROUPPER
	RET

// func addFP16BlocksAVX2(dst []float32, src []uint16)
TEXT ·addFP16BlocksAVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI

addFP16BlocksAVX28:
	VCVTPH2PS (SI), Y0
	VADDPS    (DI), Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $16, SI
	ADDQ      $32, DI
	SUBQ $8, CX
	JG   addFP16BlocksAVX28
	VZEROUPPER
	RET

// func toFP16BlocksAVX2(dst []uint16, src []float32)
TEXT ·toFP16BlocksAVX2(SB), NOSPLIT, $0-48
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI

toFP16BlocksAVX28:
	VMOVUPS   (SI), Y0
	VCVTPS2PH $0, Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $16, DI
	SUBQ $8, CX
	JG   toFP16BlocksAVX28
	VZEROUPPER
	RET

// func fromInt8BlocksAVX2(dst []float32, src []int8, scale float32)
TEXT ·fromInt8BlocksAVX2(SB), NOSPLIT, $0-52
	VBROADCASTSS scale+48(FP), Y15
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI

fromInt8BlocksAVX28:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y15, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ $8, CX
	JG   fromInt8BlocksAVX28
	VZEROUPPER
	RET

// func addInt8BlocksAVX2(dst []float32, src []int8, scale float32)
TEXT ·addInt8BlocksAVX2(SB), NOSPLIT, $0-52
	VBROADCASTSS scale+48(FP), Y15
	MOVQ dst_base+0(FP), DI
	MOVQ dst_len+8(FP), CX
	MOVQ src_base+24(FP), SI

addInt8BlocksAVX28:
	VPMOVSXBD (SI), Y0
	VCVTDQ2PS Y0, Y0
	VMULPS    Y15, Y0, Y0
	VADDPS    (DI), Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $8, SI
	ADDQ      $32, DI
	SUBQ $8, CX
	JG   addInt8BlocksAVX28
	VZEROUPPER
	RET

// func sgdBlocksAVX2(w, g []float32, rate float32)
TEXT ·sgdBlocksAVX2(SB), NOSPLIT, $0-52
	VBROADCASTSS rate+48(FP), Y15
	MOVQ w_base+0(FP), DI
	MOVQ w_len+8(FP), CX
	MOVQ g_base+24(FP), SI

sgdBlocksAVX28:
	VMULPS  (SI), Y15, Y0
	VMOVUPS (DI), Y1
	VSUBPS  Y0, Y1, Y1
	VMOVUPS Y1, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DI
	SUBQ $8, CX
	JG   sgdBlocksAVX28
	VZEROUPPER
	RET

// func adagradBlocksAVX2(w, n, g []float32, rate, decay float32)
TEXT ·adagradBlocksAVX2(SB), NOSPLIT, $0-80
	MOVQ         w_base+0(FP), DI
	MOVQ         w_len+8(FP), CX
	MOVQ         n_base+24(FP), DX
	MOVQ         g_base+48(FP), SI
	VBROADCASTSS rate+72(FP), Y15
	VBROADCASTSS decay+76(FP), Y14
	VXORPS       Y13, Y13, Y13

adagrad8:
	VMOVUPS   (DI), Y0
	VMULPS    Y14, Y0, Y1
	VADDPS    (SI), Y1, Y1       // d
	VMULPS    Y1, Y1, Y2
	VADDPS    (DX), Y2, Y2       // n
	VMOVUPS   Y2, (DX)
	VSQRTPS   Y2, Y3
	VDIVPS    Y3, Y15, Y3        // rate / sqrt(n)
	VMULPS    Y1, Y3, Y3
	VSUBPS    Y3, Y0, Y3
	VCMPPS    $0x1e, Y13, Y2, Y4 // n > 0
	VBLENDVPS Y4, Y3, Y0, Y0
	VMOVUPS   Y0, (DI)
	ADDQ      $32, SI
	ADDQ      $32, DX
	ADDQ      $32, DI
	SUBQ      $8, CX
	JG        adagrad8
	VZEROUPPER
	RET

// func adamBlocksAVX2(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32)
TEXT ·adamBlocksAVX2(SB), NOSPLIT, $0-116
	MOVQ         w_base+0(FP), DI
	MOVQ         w_len+8(FP), CX
	MOVQ         m_base+24(FP), DX
	MOVQ         v_base+48(FP), BX
	MOVQ         g_base+72(FP), SI
	VBROADCASTSS rate+96(FP), Y15
	VBROADCASTSS c1+100(FP), Y14
	VBROADCASTSS c2+104(FP), Y13
	VBROADCASTSS epsilon+108(FP), Y12
	VBROADCASTSS decay+112(FP), Y11

adam8:
	VMOVUPS (DI), Y0
	VMULPS  Y11, Y0, Y1
	VADDPS  (SI), Y1, Y1  // d
	VMOVUPS (DX), Y2
	VSUBPS  Y2, Y1, Y3
	VMULPS  Y14, Y3, Y3
	VADDPS  Y3, Y2, Y2    // m
	VMOVUPS Y2, (DX)
	VMOVUPS (BX), Y4
	VMULPS  Y1, Y1, Y5
	VSUBPS  Y4, Y5, Y5
	VMULPS  Y13, Y5, Y5
	VADDPS  Y5, Y4, Y4    // v
	VMOVUPS Y4, (BX)
	VSQRTPS Y4, Y4
	VADDPS  Y12, Y4, Y4
	VMULPS  Y15, Y2, Y2
	VDIVPS  Y4, Y2, Y2
	VSUBPS  Y2, Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ    $32, SI
	ADDQ    $32, DX
	ADDQ    $32, BX
	ADDQ    $32, DI
	SUBQ    $8, CX
	JG      adam8
	VZEROUPPER
	RET
