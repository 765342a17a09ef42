package nn

func add(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func mul(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

// scale rounds the product before it adds, on every processor.
func scale(dst, x []float32, factor, shift float32) {
	x = x[:len(dst)]
	for i := range dst {
		dst[i] = float32(x[i]*factor) + shift
	}
}

func relu(dst, x, _ []float32) {
	for i, v := range x[:len(dst)] {
		if v < 0 {
			v = 0
		}
		dst[i] = v
	}
}

func mask(dst, x, y []float32) {
	x = x[:len(dst)]
	for i, v := range y[:len(dst)] {
		dst[i] = x[i]
		if v <= 0 {
			dst[i] = 0
		}
	}
}

func moved(dst, x, _ []float32) { copy(dst, x) }
