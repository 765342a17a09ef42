package input

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// What is a digit, a bracket or a byte away from a usual record is read, or refused, alike the first time and
// when its keys stand where they are expected.
func TestAlmostUsual(t *testing.T) {
	usual := `{"userId":17,"movieId":12345678901234,"rating":4,"timestamp":964982703}`
	d := New(modelspec.MovieRanking(), strict)
	for at := range len(usual) {
		for _, c := range []byte(` 0159-+.eE",:{}[]` + "\x00\x80") {
			near := []byte(usual)
			near[at] = c
			for _, record := range [][]byte{near, []byte(usual[:at]), []byte(usual[:at] + string(c) + usual[at:])} {
				if _, err := d.Decode([]byte(usual)); err != nil {
					t.Fatal(err)
				}
				alike(t, d, record)
			}
		}
	}
}

// The short road is taken: a record of one number in each field leaves nothing for the whole reader.
func TestUsualMembers(t *testing.T) {
	d := New(modelspec.MovieRanking(), Options{})
	for user := range 3 {
		record := fmt.Appendf(nil, `{"userId":%d,"movieId":2,"rating":4,"timestamp":964982703}`, user+1)
		if _, err := d.Decode(record); err != nil {
			t.Fatal(err)
		}
		if looked := d.found[d.index["userId"]].number; (looked == 0) != (user == 0) {
			t.Errorf("record %d: its user was read as %d on the short road", user, looked)
		}
	}
}
