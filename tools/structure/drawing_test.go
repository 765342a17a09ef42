package structure

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
)

// drawing is docs/drawings/layers.svg: boxes are parts of the tree, by the folders in
// them, and arrows lead from a part to one that it imports.
type drawing struct {
	boxes  map[string][]string
	arrows map[[2]string]bool
}

func readDrawing(t *testing.T) drawing {
	t.Helper()
	f, err := os.Open(root + "/docs/drawings/layers.svg")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	d := drawing{map[string][]string{}, map[[2]string]bool{}}
	for in := xml.NewDecoder(f); ; {
		token, err := in.Token()
		if errors.Is(err, io.EOF) {
			return d
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		is := map[string]string{}
		for _, a := range element.Attr {
			is[a.Name.Local] = a.Value
		}
		if tree := is["data-tree"]; tree != "" {
			d.boxes[tree] = strings.Fields(tree)
		}
		if is["data-from"] != "" {
			d.arrows[[2]string{is["data-from"], is["data-to"]}] = true
		}
	}
}

// box is the one with the longest folder that path lies in; "" for helpers and tests'
// machines, which are not drawn.
func (d drawing) box(path string) string {
	found, longest := "", ""
	for box, folders := range d.boxes {
		for _, folder := range folders {
			if within(path, folder) && len(folder) > len(longest) {
				found, longest = box, folder
			}
		}
	}
	return found
}

// leads says whether arrows lead from one box to another.
func (d drawing) leads(from, to string) bool {
	seen := map[string]bool{}
	var reach func(at string) bool
	reach = func(at string) bool {
		for a := range d.arrows {
			if a[0] != at {
				continue
			}
			if a[1] == to {
				return true
			}
			if !seen[a[1]] {
				seen[a[1]] = true
				if reach(a[1]) {
					return true
				}
			}
		}
		return false
	}
	return reach(from)
}

// TestDrawing holds that the picture of the layers shows the tree: each import follows
// arrows, and each arrow is an import.
func TestDrawing(t *testing.T) {
	d := readDrawing(t)
	if len(d.boxes) < 10 {
		t.Fatalf("%d boxes: has the drawing's form changed?", len(d.boxes))
	}
	for a := range d.arrows {
		if d.boxes[a[0]] == nil || d.boxes[a[1]] == nil {
			t.Fatalf("the arrow %s -> %s has no box at its end", a[0], a[1])
		}
		if d.leads(a[1], a[0]) {
			t.Fatalf("the arrows lead from %s back to itself", a[0])
		}
	}
	imported := map[[2]string]string{}
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		from := d.box(path)
		for _, i := range p.Imports {
			to, ours := strings.CutPrefix(i, module)
			if other := d.box(to); ours && from != "" && other != "" && from != other {
				imported[[2]string{from, other}] = path + " -> " + to
			}
		}
	}
	for edge, example := range imported {
		if !d.leads(edge[0], edge[1]) {
			t.Errorf("no arrows lead from %s to %s, and %s", edge[0], edge[1], example)
		}
	}
	for a := range d.arrows {
		if imported[a] == "" {
			t.Errorf("the arrow %s -> %s is no import", a[0], a[1])
		}
	}
}
