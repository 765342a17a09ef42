// Package vfstest is the contract of a file system.
package vfstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/vfs"
)

// Run holds that what lies in the empty folder dir behaves as [vfs.FileSystem] says.
func Run(t *testing.T, dir string) {
	at, err := vfs.For(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := at.MkdirAll(dir); err != nil {
		t.Fatal(err)
	}
	for name, check := range map[string]func(*testing.T, vfs.FileSystem, string){
		"write and read": written, "missing": nothing, "existing": existing, "read from the middle": sought, "rename": renamed,
		"list": listed, "glob": globbed, "remove": removed, "text": text, "copy a file": copied, "copy a tree": tree,
	} {
		t.Run(name, func(t *testing.T) {
			own := vfs.Join(dir, strings.ReplaceAll(name, " ", "-"))
			if err := at.MkdirAll(own); err != nil {
				t.Fatal(err)
			}
			check(t, at, own)
		})
	}
}

// Write makes a file of it.
func Write(t *testing.T, path, content string) {
	t.Helper()
	at, err := vfs.For(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := at.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	f, err := vfs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func written(t *testing.T, at vfs.FileSystem, dir string) {
	for name, content := range map[string]string{"empty": "", "one": "x", "large": strings.Repeat("0123456789abcdef", 200_000)} {
		path := vfs.Join(dir, name)
		Write(t, path, content)
		if got := read(t, path); got != content {
			t.Errorf("%s: read %d bytes where %d were written", name, len(got), len(content))
		}
		info, err := at.Stat(path)
		if err != nil || info.Size() != int64(len(content)) || info.IsDir() || info.Name() != name {
			t.Errorf("Stat(%s) = %+v, %v", name, info, err)
		}
		f, err := at.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if opened, err := f.Stat(); err != nil || opened.Size() != info.Size() || !opened.ModTime().Equal(info.ModTime()) {
			t.Errorf("an open file says %+v, %v, its path %+v", opened, err, info)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

func nothing(t *testing.T, at vfs.FileSystem, dir string) {
	none := vfs.Join(dir, "none")
	_, err := at.Stat(none)
	wantErr(t, "Stat", err, fs.ErrNotExist)
	_, err = at.Open(none)
	wantErr(t, "Open", err, fs.ErrNotExist)
	_, err = at.ReadDir(none)
	wantErr(t, "ReadDir", err, fs.ErrNotExist)
	_, err = at.Create(vfs.Join(none, "below"))
	wantErr(t, "Create below", err, fs.ErrNotExist)
	wantErr(t, "Rename", at.Rename(none, vfs.Join(dir, "other")), fs.ErrNotExist)
	if err := at.RemoveAll(none); err != nil {
		t.Errorf("RemoveAll: %v", err)
	}
}

func existing(t *testing.T, at vfs.FileSystem, dir string) {
	path := vfs.Join(dir, "file")
	Write(t, path, "first")
	_, err := at.Create(path)
	wantErr(t, "Create", err, fs.ErrExist)
	if got := read(t, path); got != "first" {
		t.Errorf("the file holds %q after that", got)
	}
	if err := at.MkdirAll(dir); err != nil {
		t.Errorf("MkdirAll of a folder that is there: %v", err)
	}
	if err := at.MkdirAll(path); err == nil {
		t.Error("MkdirAll made a folder of a file")
	}
	_, err = at.ReadDir(path)
	wantErr(t, "ReadDir", err, syscall.ENOTDIR)
}

func sought(t *testing.T, at vfs.FileSystem, dir string) {
	path := vfs.Join(dir, "file")
	Write(t, path, strings.Repeat("abcdefghij", 100_000))
	f, err := at.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tc := range []struct {
		offset int64
		whence int
		want   string
	}{{700_003, io.SeekStart, "defg"}, {-4, io.SeekEnd, "ghij"}, {5, io.SeekStart, "fghi"}} {
		if _, err := f.Seek(tc.offset, tc.whence); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 4)
		if _, err := io.ReadFull(f, got); err != nil || string(got) != tc.want {
			t.Errorf("at %d: %q, %v", tc.offset, got, err)
		}
	}
	if n, err := f.Seek(0, io.SeekCurrent); err != nil || n != 9 {
		t.Errorf("it stands at %d, %v", n, err)
	}
}

func renamed(t *testing.T, at vfs.FileSystem, dir string) {
	a, b := vfs.Join(dir, "a"), vfs.Join(dir, "b")
	Write(t, a, "new")
	Write(t, b, "old")
	if err := at.Rename(a, b); err != nil {
		t.Fatal(err)
	}
	if got := read(t, b); got != "new" {
		t.Errorf("the replaced file holds %q", got)
	}
	_, err := at.Stat(a)
	wantErr(t, "the old name", err, fs.ErrNotExist)
	for _, folder := range []string{"full", "moved"} {
		if err := at.MkdirAll(vfs.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
		Write(t, vfs.Join(dir, folder, "file"), folder)
	}
	if err := at.Rename(vfs.Join(dir, "moved"), vfs.Join(dir, "full")); err == nil {
		t.Error("a folder replaced one that holds something")
	}
	if err := at.Rename(vfs.Join(dir, "moved"), vfs.Join(dir, "there")); err != nil {
		t.Fatal(err)
	}
	if got := read(t, vfs.Join(dir, "there", "file")); got != "moved" {
		t.Errorf("the folder's file holds %q", got)
	}
}

func names(all []fs.FileInfo) (out []string) {
	for _, i := range all {
		out = append(out, i.Name())
	}
	return out
}

func listed(t *testing.T, at vfs.FileSystem, dir string) {
	if all, err := at.ReadDir(dir); err != nil || len(all) != 0 {
		t.Fatalf("an empty folder holds %v, %v", names(all), err)
	}
	Write(t, vfs.Join(dir, "b"), "12")
	Write(t, vfs.Join(dir, "a"), "1")
	if err := at.MkdirAll(vfs.Join(dir, "c", "d")); err != nil {
		t.Fatal(err)
	}
	all, err := at.ReadDir(dir)
	if err != nil || !slices.Equal(names(all), []string{"a", "b", "c"}) || all[0].Size() != 1 || all[1].Size() != 2 || !all[2].IsDir() {
		t.Errorf("the folder holds %v, %v", names(all), err)
	}
}

func globbed(t *testing.T, at vfs.FileSystem, dir string) {
	for _, day := range []string{"day=1", "day=2", "other"} {
		if err := at.MkdirAll(vfs.Join(dir, day)); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"part-1", "part-0", "_SUCCESS"} {
			Write(t, vfs.Join(dir, day, name), name)
		}
	}
	for pattern, want := range map[string][]string{
		"day=*/part-*":     {"day=1/part-0", "day=1/part-1", "day=2/part-0", "day=2/part-1"},
		"day=[2-9]/part-?": {"day=2/part-0", "day=2/part-1"},
		"*/_SUCCESS/*":     nil,
		"day=1/part-0":     {"day=1/part-0"},
		"day=3/part-0":     nil,
		"none*/x":          nil,
	} {
		got, err := vfs.Glob(vfs.Join(dir, pattern))
		for i := range got {
			got[i] = strings.TrimPrefix(got[i], dir+"/")
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", pattern, got, err, want)
		}
	}
	if _, err := vfs.Glob(vfs.Join(dir, "[")); err == nil {
		t.Error("a pattern without an end was taken")
	}
}

func removed(t *testing.T, at vfs.FileSystem, dir string) {
	if err := at.MkdirAll(vfs.Join(dir, "a", "b")); err != nil {
		t.Fatal(err)
	}
	Write(t, vfs.Join(dir, "a", "b", "c"), "x")
	if err := at.RemoveAll(vfs.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	_, err := at.Stat(vfs.Join(dir, "a"))
	wantErr(t, "what was removed", err, fs.ErrNotExist)
}

func text(t *testing.T, _ vfs.FileSystem, dir string) {
	path := vfs.Join(dir, "text")
	Write(t, path, "twelve bytes")
	if got, err := vfs.ReadText(t.Context(), path, 12); err != nil || string(got) != "twelve bytes" {
		t.Errorf("ReadText = %q, %v", got, err)
	}
	if _, err := vfs.ReadText(t.Context(), path, 11); err == nil {
		t.Error("a text above its limit was read")
	}
	_, err := vfs.ReadText(t.Context(), vfs.Join(dir, "none"), 12)
	wantErr(t, "ReadText of none", err, fs.ErrNotExist)
}

func copied(t *testing.T, at vfs.FileSystem, dir string) {
	from, to, ctx := vfs.Join(dir, "from"), vfs.Join(dir, "to"), t.Context()
	Write(t, from, "content")
	for range 2 { // the second replaces
		if err := vfs.CopyFile(ctx, from, to, vfs.Copying{}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, to); got != "content" {
			t.Errorf("the copy holds %q", got)
		}
	}
	wantErr(t, "a file that is to be kept", vfs.CopyFile(ctx, from, to, vfs.Copying{Keep: true}), fs.ErrExist)
	none := vfs.Join(dir, "none")
	if err := vfs.CopyFile(ctx, none, to, vfs.Copying{}); err != nil {
		t.Errorf("a source that is not there is passed over: %v", err)
	}
	wantErr(t, "a source that must be there", vfs.CopyFile(ctx, none, to, vfs.Copying{Strict: true, Tries: 1}), fs.ErrNotExist)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	wantErr(t, "an end", vfs.CopyFile(ended, from, to, vfs.Copying{}), context.Canceled)
	if all, err := at.ReadDir(dir); err != nil || !slices.Equal(names(all), []string{"from", "to"}) {
		t.Errorf("the folder holds %v, %v: nothing unfinished stays", names(all), err)
	}
}

func tree(t *testing.T, at vfs.FileSystem, dir string) {
	from, to, ctx := vfs.Join(dir, "from"), vfs.Join(dir, "new", "to"), t.Context()
	want := map[string]string{}
	for i := range 3 {
		folder := vfs.Join(from, fmt.Sprintf("d%d", i), "deeper")
		if err := at.MkdirAll(folder); err != nil {
			t.Fatal(err)
		}
		for j := range 4 {
			path := vfs.Join(folder, fmt.Sprintf("f%d", j))
			content := string(bytes.Repeat([]byte{byte('a' + i)}, 1000*j))
			Write(t, path, content)
			want[strings.TrimPrefix(path, from)] = content
		}
	}
	for _, workers := range []int{0, 4} {
		if err := vfs.CopyTree(ctx, from, to, vfs.Copying{Workers: workers}); err != nil {
			t.Fatal(err)
		}
		for name, content := range want {
			if got := read(t, vfs.Join(to, name)); got != content {
				t.Errorf("%s: %d bytes, want %d", name, len(got), len(content))
			}
		}
		if workers == 0 {
			Write(t, vfs.Join(to, "older"), "goes")
		}
	}
	_, err := at.Stat(vfs.Join(to, "older"))
	wantErr(t, "what was in the replaced tree", err, fs.ErrNotExist)
	if all, err := at.ReadDir(vfs.Dir(to)); err != nil || !slices.Equal(names(all), []string{"to"}) {
		t.Errorf("beside the copy are %v, %v", names(all), err)
	}
	none := vfs.Join(dir, "none")
	if err := vfs.CopyTree(ctx, none, to, vfs.Copying{}); err != nil {
		t.Errorf("a source that is not there is passed over: %v", err)
	}
	wantErr(t, "a source that must be there", vfs.CopyTree(ctx, none, to, vfs.Copying{Strict: true}), fs.ErrNotExist)
	if got := read(t, vfs.Join(to, "d1", "deeper", "f1")); got != want["/d1/deeper/f1"] {
		t.Error("the copy went although there was nothing to copy")
	}
}
