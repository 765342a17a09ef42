package checkpoint

import (
	"math"
	"path"
	"testing"
)

// Names are those that facts and folders of released versions have.
func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Name[int64](12): "model.ckpt-12", Name[uint64](math.MaxUint64): "model.ckpt-18446744073709551615",
		InfoName[int64](12): "ckpt.info-12", Part(3, 0): "model.ckpt-3/ps_0", Part(3, 10): "model.ckpt-3/ps_10",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, id := range []int64{1, 12, math.MaxInt64} {
		if got, ok := ID(Name(id)); !ok || got != id {
			t.Errorf("%s is of %d, %v", Name(id), got, ok)
		}
		if got, ok := InfoID(InfoName(id)); !ok || got != id {
			t.Errorf("%s is of %d, %v", InfoName(id), got, ok)
		}
		if matches, err := path.Match(Pattern, Name(id)); !matches || err != nil {
			t.Errorf("%s: %v", Name(id), err)
		}
		for _, text := range []string{Name(id), Name(id)[len(prefix):]} {
			if got, err := Parse(text); got != id || err != nil {
				t.Errorf("%s is %d, %v", text, got, err)
			}
		}
		if !IsPart(Part(id, 7)) {
			t.Errorf("%s is no part", Part(id, 7))
		}
	}
	for _, name := range []string{"", "12", "model.ckpt-", "model.ckpt-0", "model.ckpt--3", "model.ckpt-01", "model.ckpt-+1", "model.ckpt-x", "model.ckpt-9223372036854775808", "ckpt.info-1", "model.ckpt-1.assets"} {
		if id, ok := ID(name); ok {
			t.Errorf("%q is checkpoint %d", name, id)
		}
	}
	for _, name := range []string{"", "x", "0", "-3", "model.ckpt-0", "model.ckpt-", "ckpt.info-1", "dir/model.ckpt-1", "99999999999999999999"} {
		if id, err := Parse(name); err == nil {
			t.Errorf("%q is checkpoint %d", name, id)
		}
	}
	for _, text := range []string{"", "model.ckpt-1", "model.ckpt-1/", "model.ckpt-1/ps_", "model.ckpt-1/ps_01", "model.ckpt-1/ps_-1", "model.ckpt-1/ps_0/x", "model.ckpt-01/ps_0", "/model.ckpt-1/ps_0", "../model.ckpt-1/ps_0", "model.ckpt-1//ps_0", "model.ckpt-1/entry", "model.ckpt-1/ps_99999"} {
		if IsPart(text) {
			t.Errorf("%q is a part", text)
		}
	}
}
