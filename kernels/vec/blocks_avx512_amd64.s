//go:build !purego

#include "textflag.h"

// Elementwise loops of 16 under the mask K1, which has all bits set but for the last
// round: then those of the elements that are left. Masked lanes touch no memory. No
// multiply is fused with an add, so every element has the bits that plain Go gives it.

#define ROUND(full) \
	CMPQ  CX, $16;   \
	JGE   full;      \
	MOVL  $1, AX;    \
	SHLL  CX, AX;    \
	DECL  AX;        \
	KMOVW AX, K1

// func addAVX512(x, y []float32)
TEXT ·addAVX512(SB), NOSPLIT, $0-48
	MOVQ   y_base+24(FP), DI
	MOVQ   y_len+32(FP), CX
	MOVQ   x_base+0(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (SI), K1, Z1
	VADDPS    Z1, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func fromFP16AVX512(dst []float32, src []uint16)
TEXT ·fromFP16AVX512(SB), NOSPLIT, $0-48
	MOVQ   dst_base+0(FP), DI
	MOVQ   dst_len+8(FP), CX
	MOVQ   src_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VCVTPH2PS.Z (SI), K1, Z0
	VMOVUPS     Z0, K1, (DI)
	ADDQ        $32, SI
	ADDQ        $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func addFP16AVX512(dst []float32, src []uint16)
TEXT ·addFP16AVX512(SB), NOSPLIT, $0-48
	MOVQ   dst_base+0(FP), DI
	MOVQ   dst_len+8(FP), CX
	MOVQ   src_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VCVTPH2PS.Z (SI), K1, Z0
	VMOVUPS.Z   (DI), K1, Z1
	VADDPS      Z1, Z0, Z0
	VMOVUPS     Z0, K1, (DI)
	ADDQ        $32, SI
	ADDQ        $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func toFP16AVX512(dst []uint16, src []float32)
TEXT ·toFP16AVX512(SB), NOSPLIT, $0-48
	MOVQ   dst_base+0(FP), DI
	MOVQ   dst_len+8(FP), CX
	MOVQ   src_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VMOVUPS.Z (SI), K1, Z0
	VCVTPS2PH $0, Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $32, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func fromInt8AVX512(dst []float32, src []int8, scale float32)
TEXT ·fromInt8AVX512(SB), NOSPLIT, $0-52
	VBROADCASTSS scale+48(FP), Z31
	MOVQ   dst_base+0(FP), DI
	MOVQ   dst_len+8(FP), CX
	MOVQ   src_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VPMOVSXBD.Z (SI), K1, Z0
	VCVTDQ2PS   Z0, Z0
	VMULPS      Z31, Z0, Z0
	VMOVUPS     Z0, K1, (DI)
	ADDQ        $16, SI
	ADDQ        $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func addInt8AVX512(dst []float32, src []int8, scale float32)
TEXT ·addInt8AVX512(SB), NOSPLIT, $0-52
	VBROADCASTSS scale+48(FP), Z31
	MOVQ   dst_base+0(FP), DI
	MOVQ   dst_len+8(FP), CX
	MOVQ   src_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VPMOVSXBD.Z (SI), K1, Z0
	VCVTDQ2PS   Z0, Z0
	VMULPS      Z31, Z0, Z0
	VMOVUPS.Z   (DI), K1, Z1
	VADDPS      Z1, Z0, Z0
	VMOVUPS     Z0, K1, (DI)
	ADDQ        $16, SI
	ADDQ        $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func sgdAVX512(w, g []float32, rate float32)
TEXT ·sgdAVX512(SB), NOSPLIT, $0-52
	VBROADCASTSS rate+48(FP), Z31
	MOVQ   w_base+0(FP), DI
	MOVQ   w_len+8(FP), CX
	MOVQ   g_base+24(FP), SI
	KXNORW K1, K1, K1

loop:
	ROUND(full)

full:
	VMOVUPS.Z (SI), K1, Z0
	VMULPS    Z31, Z0, Z0
	VMOVUPS.Z (DI), K1, Z1
	VSUBPS    Z0, Z1, Z1
	VMOVUPS   Z1, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DI
	SUBQ $16, CX
	JG   loop
	VZEROUPPER
	RET

// func adagradAVX512(w, n, g []float32, rate, decay float32)
TEXT ·adagradAVX512(SB), NOSPLIT, $0-80
	MOVQ         w_base+0(FP), DI
	MOVQ         w_len+8(FP), CX
	MOVQ         n_base+24(FP), DX
	MOVQ         g_base+48(FP), SI
	VBROADCASTSS rate+72(FP), Z31
	VBROADCASTSS decay+76(FP), Z30
	VPXORD       Z29, Z29, Z29
	KXNORW       K1, K1, K1

loop:
	ROUND(full)

full:
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (SI), K1, Z1
	VMOVUPS.Z (DX), K1, Z2
	VMULPS    Z30, Z0, Z3
	VADDPS    Z3, Z1, Z1             // d
	VMULPS    Z1, Z1, Z3
	VADDPS    Z3, Z2, Z2             // n
	VMOVUPS   Z2, K1, (DX)
	VSQRTPS   Z2, Z3
	VDIVPS    Z3, Z31, Z3            // rate / sqrt(n)
	VMULPS    Z1, Z3, Z3
	VSUBPS    Z3, Z0, Z0
	VCMPPS    $0x1e, Z29, Z2, K1, K2 // n > 0
	VMOVUPS   Z0, K2, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DX
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET

// func adamAVX512(w, m, v, g []float32, rate, c1, c2, epsilon, decay float32)
TEXT ·adamAVX512(SB), NOSPLIT, $0-116
	MOVQ         w_base+0(FP), DI
	MOVQ         w_len+8(FP), CX
	MOVQ         m_base+24(FP), DX
	MOVQ         v_base+48(FP), BX
	MOVQ         g_base+72(FP), SI
	VBROADCASTSS rate+96(FP), Z31
	VBROADCASTSS c1+100(FP), Z30
	VBROADCASTSS c2+104(FP), Z29
	VBROADCASTSS epsilon+108(FP), Z28
	VBROADCASTSS decay+112(FP), Z27
	KXNORW       K1, K1, K1

loop:
	ROUND(full)

full:
	VMOVUPS.Z (DI), K1, Z0
	VMOVUPS.Z (SI), K1, Z1
	VMOVUPS.Z (DX), K1, Z2
	VMOVUPS.Z (BX), K1, Z4
	VMULPS    Z27, Z0, Z3
	VADDPS    Z3, Z1, Z1     // d
	VSUBPS    Z2, Z1, Z3
	VMULPS    Z30, Z3, Z3
	VADDPS    Z3, Z2, Z2     // m
	VMOVUPS   Z2, K1, (DX)
	VMULPS    Z1, Z1, Z5
	VSUBPS    Z4, Z5, Z5
	VMULPS    Z29, Z5, Z5
	VADDPS    Z5, Z4, Z4     // v
	VMOVUPS   Z4, K1, (BX)
	VSQRTPS   Z4, Z4
	VADDPS    Z28, Z4, Z4
	VMULPS    Z31, Z2, Z2
	VDIVPS    Z4, Z2, Z2
	VSUBPS    Z2, Z0, Z0
	VMOVUPS   Z0, K1, (DI)
	ADDQ      $64, SI
	ADDQ      $64, DX
	ADDQ      $64, BX
	ADDQ      $64, DI
	SUBQ      $16, CX
	JG        loop
	VZEROUPPER
	RET
