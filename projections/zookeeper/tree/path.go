package tree

import (
	"strings"
	"unicode/utf8"
)

// Bounds of what a tree takes.
const (
	MaxPath = 8 << 10 // bytes
	MaxACL  = 1_000   // entries of an access list
)

// ValidPath is ZooKeeper's rule for a path that is to exist, and one of ours: it is not
// longer than MaxPath.
func ValidPath(path string) bool {
	if path == "" || path[0] != '/' || len(path) > MaxPath {
		return false
	}
	if path == "/" {
		return true
	}
	from := 1 // where the step at hand begins
	for i := 1; i <= len(path); i++ {
		switch {
		case i == len(path) || path[i] == '/':
			if step := path[from:i]; step == "" || step == "." || step == ".." {
				return false
			}
			from = i + 1
		case path[i] <= 0x1f || path[i] == 0x7f:
			return false
		case path[i] >= utf8.RuneSelf:
			return validText(path)
		}
	}
	return true
}

// validText is ValidPath of any text.
func validText(path string) bool {
	for step := range strings.SplitSeq(path[1:], "/") {
		if !ValidName(step) {
			return false
		}
	}
	return true
}

// ValidName says whether name can be one step of a path as ZooKeeper allows it.
func ValidName(name string) bool {
	if name == "" || name == "." || name == ".." || !utf8.ValidString(name) {
		return false
	}
	for _, c := range name {
		// ZooKeeper looks at UTF-16: what lies beyond it is surrogates there.
		if c == '/' || c <= 0x1f || (c >= 0x7f && c <= 0x9f) || (c >= 0xd800 && c <= 0xf8ff) || c >= 0xfff0 {
			return false
		}
	}
	return true
}

// Special says whether path is one of ZooKeeper's own: no client deletes them.
func Special(path string) bool {
	return path == "/" || path == "/zookeeper" || path == "/zookeeper/quota" || path == "/zookeeper/config"
}

// SplitPath is a path's parent and last step as ZooKeeper cuts them for create and
// delete, which it does before it looks at the rest; false: BadArguments.
func SplitPath(path string) (parent, name string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 || strings.IndexByte(path, 0) >= 0 {
		return "", "", false
	}
	return path[:max(i, 1)], path[i+1:], true
}
