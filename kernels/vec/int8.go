package vec

// FromInt8Scaled sets dst[i] to src[i]*scale.
func FromInt8Scaled(dst []float32, src []int8, scale float32) {
	n := min(len(dst), len(src))
	if n == 0 {
		return
	}
	chosen.fromInt8(dst[:n], src[:n], scale)
}

// AddInt8Scaled adds src[i]*scale, rounded, to dst[i]: the same bits as FromInt8Scaled
// followed by Add.
func AddInt8Scaled(dst []float32, src []int8, scale float32) {
	n := min(len(dst), len(src))
	if n == 0 {
		return
	}
	chosen.addInt8(dst[:n], src[:n], scale)
}

func fromInt8Go(dst []float32, src []int8, scale float32) {
	src = src[:len(dst)]
	for i, q := range src {
		dst[i] = float32(q) * scale
	}
}

func addInt8Go(dst []float32, src []int8, scale float32) {
	src = src[:len(dst)]
	for i, q := range src {
		dst[i] += float32(float32(q) * scale)
	}
}
