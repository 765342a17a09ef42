package powercut

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// create makes a file or directory as a process would.
func (d *disk) create(dir *node, name string, mode uint32) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.node(mode)
	d.rename(step{dir, name, n})
	return n
}

func (d *disk) put(n *node, text string, off int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.write(n, []byte(text), off)
}

// names lists the tree below n, directories with a slash.
func names(n *node, prefix string) (out []string) {
	for name, c := range n.entries {
		if c.isDir() {
			out = append(append(out, prefix+name+"/"), names(c, prefix+name+"/")...)
		} else {
			out = append(out, prefix+name+"="+string(c.data))
		}
	}
	slices.Sort(out)
	return out
}

// cutCases are what is done to a disk, and what a power cut leaves of it under each policy.
var cutCases = map[string]struct {
	do              func(d *disk)
	journal, strict string
}{
	"nothing is synced": {
		do: func(d *disk) { d.put(d.create(d.root, "a", 0o644), "x", 0) },
	},
	"the file is synced, its name is not": {
		do: func(d *disk) {
			a := d.create(d.root, "a", 0o644)
			d.put(a, "x", 0)
			d.sync(a)
		},
		journal: "a=x",
	},
	"both are synced, then more is written": {
		do: func(d *disk) {
			a := d.create(d.root, "a", 0o644)
			d.put(a, "x", 0)
			d.sync(a)
			d.sync(d.root)
			d.put(a, "yy", 0)
		},
		journal: "a=x", strict: "a=x",
	},
	"the name is synced, the data is not": {
		do: func(d *disk) {
			d.put(d.create(d.root, "a", 0o644), "x", 0)
			d.sync(d.root)
		},
		journal: "a=", strict: "a=",
	},
	"a file is replaced by renaming, as everybody does": {
		do: func(d *disk) {
			a := d.create(d.root, "a", 0o644)
			d.put(a, "old", 0)
			d.sync(a)
			d.sync(d.root)
			b := d.create(d.root, "a.tmp", 0o644)
			d.put(b, "new", 0)
			d.sync(b)
			d.mu.Lock()
			d.rename(step{d.root, "a.tmp", nil}, step{d.root, "a", b})
			d.mu.Unlock()
		},
		journal: "a.tmp=new a=old", strict: "a=old",
	},
	"another file's sync commits the journal": {
		do: func(d *disk) {
			a := d.create(d.root, "a", 0o644)
			d.sync(d.root)
			d.mu.Lock()
			d.rename(step{d.root, "a", nil})
			d.mu.Unlock()
			d.sync(d.create(d.root, "b", 0o644))
			d.put(a, "nobody sees it", 0)
		},
		journal: "b=", strict: "a=",
	},
	"a directory is synced, its parent is not": {
		do: func(d *disk) {
			dir := d.create(d.root, "dir", dirType|0o755)
			a := d.create(dir, "a", 0o644)
			d.put(a, "x", 0)
			d.sync(a)
			d.sync(dir)
		},
		journal: "dir/ dir/a=x",
	},
	"a file is cut short": {
		do: func(d *disk) {
			a := d.create(d.root, "a", 0o644)
			d.put(a, "long", 0)
			d.sync(a)
			d.sync(d.root)
			d.mu.Lock()
			d.resize(a, 1)
			d.mu.Unlock()
		},
		journal: "a=long", strict: "a=long",
	},
}

func TestWhatACutLeaves(t *testing.T) {
	for name, tc := range cutCases {
		t.Run(name, func(t *testing.T) {
			for policy, want := range map[Policy]string{Journal: tc.journal, Strict: tc.strict} {
				d := newDisk(policy)
				tc.do(d)
				if got := strings.Join(names(d.after(Nothing, nil).root, ""), " "); got != want {
					t.Errorf("policy %d: %q, want %q", policy, got, want)
				}
			}
		})
	}
}

// TestSomeIsLeft draws many cuts of one state: pages survive each by itself, and never a
// byte that nobody wrote there.
func TestSomeIsLeft(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	whole, torn, lost, long, short, named, unnamed := 0, 0, 0, 0, 0, 0, 0
	for range 200 {
		d := newDisk(Strict)
		a := d.create(d.root, "a", 0o644)
		d.put(a, strings.Repeat("o", 2*pageSize), 0)
		d.sync(a)
		d.sync(d.root)
		d.put(a, strings.Repeat("n", 3*pageSize), 0)
		d.create(d.root, "b", 0o644)
		after := d.after(Some, rng).root
		if after.entries["b"] == nil {
			unnamed++
		} else {
			named++
		}
		data := after.entries["a"].data
		switch len(data) {
		case 3 * pageSize:
			long++
		case 2 * pageSize:
			short++
		default:
			t.Fatalf("seed %d: %d bytes are left", seed, len(data))
		}
		for p := range 2 {
			page := data[p*pageSize : (p+1)*pageSize]
			n := bytes.Count(page, []byte("n"))
			switch {
			case n+bytes.Count(page, []byte("o")) != pageSize || n%sectorSize != 0 || !bytes.HasPrefix(page, bytes.Repeat([]byte("n"), n)):
				t.Fatalf("seed %d: page %d holds what nobody wrote", seed, p)
			case n == pageSize:
				whole++
			case n == 0:
				lost++
			default:
				torn++
			}
		}
	}
	for what, n := range map[string]int{"whole": whole, "torn": torn, "lost": lost, "long": long, "short": short, "named": named, "unnamed": unnamed} {
		if n == 0 {
			t.Errorf("seed %d: of 200 cuts none left a thing %s", seed, what)
		}
	}
}

// Names that nobody can sync any more, since their folder is gone, are not waited for.
func TestUnsynced(t *testing.T) {
	d := newDisk(Strict)
	dir := d.create(d.root, "dir", dirType|0o755)
	d.create(dir, "a", 0o644)
	d.create(d.root, "b", 0o644)
	if got := d.unsynced(); !slices.Equal(got, []string{"dir", "dir/a", "b"}) {
		t.Errorf("not on disk: %q", got)
	}
	d.sync(d.root)
	if got := d.unsynced(); !slices.Equal(got, []string{"dir/a"}) {
		t.Errorf("not on disk behind a sync of the root: %q", got)
	}
	d.mu.Lock()
	d.rename(step{d.root, "dir", nil})
	d.mu.Unlock()
	d.sync(d.root)
	if got := d.unsynced(); len(got) != 0 {
		t.Errorf("not on disk without the folder: %q", got)
	}
}

func TestHardLinksStayOneFile(t *testing.T) {
	d := newDisk(Journal)
	a := d.create(d.root, "a", 0o644)
	d.mu.Lock()
	d.rename(step{d.root, "b", a})
	d.mu.Unlock()
	d.put(a, "x", 0)
	d.sync(a)
	after := d.after(Nothing, nil)
	if after.root.entries["a"] != after.root.entries["b"] || after.root.entries["a"].links != 2 {
		t.Error("two names of one file became two files")
	}
}
