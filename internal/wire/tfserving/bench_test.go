package tfserving_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// BenchmarkREST is what the REST port adds to a Predict of one user with 1,000 movies: the body
// read, the answer written.
func BenchmarkREST(b *testing.B) {
	const n = 1000
	var rows, columns bytes.Buffer
	rows.WriteString(`{"instances":[`)
	columns.WriteString(`{"inputs":{"user":[`)
	for i := range n {
		comma := ","
		if i == 0 {
			comma = ""
		}
		fmt.Fprintf(&rows, `%s{"user":7,"movie":%d}`, comma, 100000+i*37)
		fmt.Fprint(&columns, comma, 7)
	}
	columns.WriteString(`],"movie":[`)
	scores := make([]float32, n)
	for i := range n {
		if i > 0 {
			columns.WriteByte(',')
		}
		fmt.Fprint(&columns, 100000+i*37)
		scores[i] = 1 / float32(i+3)
	}
	rows.WriteString(`]}`)
	columns.WriteString(`]}}`)
	for name, body := range map[string][]byte{"rows": rows.Bytes(), "columns": columns.Bytes()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p, err := tfserving.DecodePredict(bytes.NewReader(body), two, 4096)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := tfserving.EncodePredict(p.Columnar, map[string]*tfserving.TensorProto{"score": tfserving.NewFloat(scores)}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
