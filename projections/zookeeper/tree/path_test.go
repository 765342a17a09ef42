package tree

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/znode"
)

// Steps of paths are as ZooKeeper allows them, to the last letter.
func TestPathsAtTheirBounds(t *testing.T) {
	for r, want := range map[rune]bool{
		0: false, 0x1f: false, 0x20: true, '.': true, 0x7e: true, 0x7f: false, 0x9f: false, 0xa0: true, 0xd7ff: true, 0xe000: false, 0xf8ff: false, 0xf900: true, 0xffef: true, 0xfff0: false, 0xffff: false, 0x10000: false,
	} {
		if r == '.' { // alone it stands for a folder
			continue
		}
		for _, path := range []string{"/" + string(r), "/a/" + string(r) + "b", "/é/" + string(r)} {
			if got := ValidPath(path); got != want {
				t.Errorf("%q: %v", path, got)
			}
		}
	}
	for path, want := range map[string]bool{
		"/": true, "/a": true, "/a/b": true, "/...": true, "/.a": true, "/a.": true, "": false, "a": false, "//": false, "/a/": false, "/a//b": false, "/.": false, "/..": false, "/a/.": false, "/a/../b": false, "/./a": false, "/é/..": false, "/é/": false, "/\xff": false,
		"/" + strings.Repeat("a", znode.MaxPath-1): true, "/" + strings.Repeat("a", znode.MaxPath): false,
	} {
		if got := ValidPath(path); got != want {
			t.Errorf("%.20q of %d bytes: %v", path, len(path), got)
		}
	}
	for path, want := range map[string][2]string{"/a": {"/", "a"}, "/a/b": {"/a", "b"}, "/": {"/", ""}, "/a/": {"/a", ""}} {
		if up, name, ok := SplitPath(path); !ok || up != want[0] || name != want[1] {
			t.Errorf("%q is %q in %q, %v", path, name, up, ok)
		}
	}
	for _, path := range []string{"", "a", "/a\x00"} {
		if _, _, ok := SplitPath(path); ok {
			t.Errorf("%q is taken apart", path)
		}
	}
	for s, want := range map[string]bool{"count=1,bytes=2": true, "count=-1,bytes=-2": true, "1,2": true, "count=1": false, "count=x,bytes=2": false, "count=1,bytes=": false, "": false} {
		if _, _, ok := parseStats(s); ok != want {
			t.Errorf("%q says how much there is: %v", s, ok)
		}
	}
}
