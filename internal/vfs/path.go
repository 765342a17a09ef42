package vfs

import (
	"path"
	"path/filepath"
	"strings"
)

// scheme begins the paths of HDFS.
const scheme = "hdfs:"

// Remote says whether path lies in HDFS.
func Remote(path string) bool { return strings.HasPrefix(path, scheme+"/") }

// IsAbs says whether path needs no working folder: all of HDFS do not.
func IsAbs(path string) bool { return Remote(path) || filepath.IsAbs(path) }

// Abs is path as from the working folder.
func Abs(path string) (string, error) {
	if Remote(path) {
		return Clean(path), nil
	}
	return filepath.Abs(path)
}

// Clean is the shortest path to the same place.
func Clean(path string) string {
	if !Remote(path) {
		return filepath.Clean(path)
	}
	authority, at := split(path)
	return scheme + "//" + authority + at
}

// Join is the path of what is in the folder dir, by the names below it.
func Join(dir string, names ...string) string {
	if !Remote(dir) {
		return filepath.Join(append([]string{dir}, names...)...)
	}
	authority, at := split(dir)
	return scheme + "//" + authority + path.Join(append([]string{at}, names...)...)
}

// Dir is the folder that path lies in.
func Dir(p string) string {
	if !Remote(p) {
		return filepath.Dir(p)
	}
	authority, at := split(p)
	return scheme + "//" + authority + path.Dir(at)
}

// Base is the last name of path.
func Base(p string) string {
	if !Remote(p) {
		return filepath.Base(p)
	}
	_, at := split(p)
	return path.Base(at)
}

// split is the cluster that a path of HDFS names, which may be "", and the place in it.
func split(p string) (authority, at string) {
	rest := strings.TrimPrefix(p, scheme)
	if named, ok := strings.CutPrefix(rest, "//"); ok {
		authority, rest, _ = strings.Cut(named, "/")
	}
	return authority, path.Clean("/" + rest)
}
