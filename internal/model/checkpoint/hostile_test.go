package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A manifest whose own checksum is right and whose numbers are nonsense is refused with
// a sentence: nothing panics, and no count is believed before its bytes have come.
func TestManifestsOfNonsense(t *testing.T) {
	s, _ := complete(t)
	s.Filters = map[string][]byte{"user": []byte("state")}
	s.Dense = map[string]Variable{"v": {Shape: []uint32{2}, Values: []float32{1, 2}}}
	dir := filepath.Join(t.TempDir(), "ps_0")
	if _, err := WriteShard(dir, s); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ManifestName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Manifest, *TableInfo){
		"no dim":                         func(m *Manifest, u *TableInfo) { u.Dim = 0 },
		"a negative dim":                 func(m *Manifest, u *TableInfo) { u.Dim = -6 },
		"a huge dim":                     func(m *Manifest, u *TableInfo) { u.Dim = 1 << 62 },
		"negative slots":                 func(m *Manifest, u *TableInfo) { u.Slots = -1 },
		"huge slots":                     func(m *Manifest, u *TableInfo) { u.Slots = 1 << 62 },
		"a plane before the slots":       func(m *Manifest, u *TableInfo) { u.Opt[0].Planes[0].From = -4 },
		"a plane behind the slots":       func(m *Manifest, u *TableInfo) { u.Opt[0].Planes[0].To = 1 << 61 },
		"a plane that ends before":       func(m *Manifest, u *TableInfo) { p := &u.Opt[0].Planes[0]; p.From, p.To = p.To, p.From },
		"an integer of another size":     func(m *Manifest, u *TableInfo) { u.Opt[0].Planes[0].Integer = true },
		"an optimizer nobody knows":      func(m *Manifest, u *TableInfo) { u.Opt[0].Kind = "lion" },
		"no optimizers":                  func(m *Manifest, u *TableInfo) { u.Opt = nil },
		"more rows":                      func(m *Manifest, u *TableInfo) { u.Rows = 1 << 63 },
		"no rows":                        func(m *Manifest, u *TableInfo) { u.Rows = 0 },
		"a file elsewhere":               func(m *Manifest, u *TableInfo) { u.File = "../x"; m.Files["../x"] = 1 },
		"another file":                   func(m *Manifest, u *TableInfo) { u.File = m.Filters[0].File },
		"no file":                        func(m *Manifest, u *TableInfo) { u.File = "" },
		"a table twice":                  func(m *Manifest, u *TableInfo) { m.Tables = append(m.Tables, *u) },
		"a table less":                   func(m *Manifest, u *TableInfo) { m.Tables = nil },
		"a filter of more bytes":         func(m *Manifest, u *TableInfo) { m.Filters[0].Bytes = 1 << 63 },
		"a filter twice":                 func(m *Manifest, u *TableInfo) { m.Filters = append(m.Filters, m.Filters[0]) },
		"a variable without a shape":     func(m *Manifest, u *TableInfo) { m.Shapes = nil },
		"a huge variable":                func(m *Manifest, u *TableInfo) { m.Shapes[0] = []uint32{1 << 31, 1 << 31, 1 << 31} },
		"a variable of other dimensions": func(m *Manifest, u *TableInfo) { m.Shapes[0] = []uint32{3} },
		"a variable more": func(m *Manifest, u *TableInfo) {
			m.Variables = append(m.Variables, "w")
			m.Shapes = append(m.Shapes, []uint32{1})
		},
		"a variable twice": func(m *Manifest, u *TableInfo) {
			m.Variables = append(m.Variables, "v")
			m.Shapes = append(m.Shapes, []uint32{0})
		},
		"a spec that is none": func(m *Manifest, u *TableInfo) { m.Spec = []byte(`{"nonsense":1}`) },
		"another format":      func(m *Manifest, u *TableInfo) { m.Format = 99 },
		"no checksums":        func(m *Manifest, u *TableInfo) { m.Files = nil },
	} {
		t.Run(name, func(t *testing.T) {
			var m Manifest
			if err := json.Unmarshal(good, &m); err != nil {
				t.Fatal(err)
			}
			change(&m, &m.Tables[slices.IndexFunc(m.Tables, func(x TableInfo) bool { return x.Name == "user" })])
			text, err := seal(&m, &m.Sum)
			if err != nil || bytes.Equal(text, good) {
				t.Fatalf("nothing has changed: %v", err)
			}
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := ReadShard(dir); !errors.Is(err, ErrCorrupt) || len(fmt.Sprint(err)) < 30 {
				t.Errorf("ReadShard = %v", err)
			}
		})
	}
}
