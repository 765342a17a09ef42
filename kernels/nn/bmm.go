package nn

import (
	"github.com/monolith-go/monolith/kernels/graph"
	"github.com/monolith-go/monolith/kernels/vec"
)

// batchMatMul multiplies a sample's matrices: rows by k and k by cols.
type batchMatMul struct {
	kind          graph.Kind
	rows, k, cols int
}

func (m *batchMatMul) run(l *Lane, s *step) error {
	l.byRows(s, m, max(1, cheap/m.k))
	return nil
}

func (m *batchMatMul) do(l *Lane, s *step, lo, hi int) {
	for n := lo; n < hi; n++ {
		dst, x, y := l.views[s.out].row(n), l.views[s.in[0]].row(n), l.views[s.in[1]].row(n)
		switch m.kind {
		case graph.NT:
			m.nt(dst, x, y)
		case graph.TN:
			m.tn(dst, x, y)
		default:
			for i := range m.rows {
				rowTimes(dst[i*m.cols:][:m.cols], x[i*m.k:][:m.k], y)
			}
		}
	}
}

func (m *batchMatMul) nt(dst, x, y []float32) {
	for i := range m.rows {
		for j := range m.cols {
			dst[i*m.cols+j] = vec.Dot(x[i*m.k:][:m.k], y[j*m.k:][:m.k])
		}
	}
}

func (m *batchMatMul) tn(dst, x, y []float32) {
	clear(dst)
	for c := range m.k {
		for i, v := range x[c*m.rows:][:m.rows] {
			vec.Axpy(v, y[c*m.cols:][:m.cols], dst[i*m.cols:])
		}
	}
}

// rowTimes sets dst to a row times a matrix of as many rows, each as long as dst.
func rowTimes(dst, row, matrix []float32) {
	clear(dst)
	m := len(dst)
	for ; len(row) >= 4; row, matrix = row[4:], matrix[4*m:] {
		vec.Axpy4(row[0], row[1], row[2], row[3], matrix[:m], matrix[m:2*m], matrix[2*m:3*m], matrix[3*m:4*m], dst)
	}
	for i, v := range row {
		vec.Axpy(v, matrix[i*m:][:m], dst)
	}
}
