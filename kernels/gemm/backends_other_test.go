//go:build !amd64 || purego

package gemm

import "testing"

func pairs() [][2]*backend { return [][2]*backend{{plain, plainRound}} }

func TestTheFastestIsChosen(t *testing.T) {
	if f, b := Backends(); f != "plain" || b != "plain+round" {
		t.Errorf("%s and %s are in use in a build without others", f, b)
	}
}

func backends8() []*backend8 { return []*backend8{plain8} }
