package main

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// expand lists the packages that the patterns name, as the lists name them ("./bus/mem/" is
// bus/mem), each once. Of FOLDER/... what tests share is left out: packages called something
// with test at its end.
func expand(patterns []string) ([]string, error) {
	var pkgs []string
	for _, p := range patterns {
		root, below := strings.CutSuffix(filepath.ToSlash(p), "/...")
		if root = filepath.Clean(root); !below {
			pkgs = append(pkgs, root)
			continue
		}
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && (d.Name() == "testdata" || strings.HasSuffix(d.Name(), "test")):
				return fs.SkipDir
			case d.IsDir() || !strings.HasSuffix(d.Name(), ".go") || strings.HasSuffix(d.Name(), "_test.go"):
			default:
				pkgs = append(pkgs, filepath.Dir(path))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(pkgs)
	return slices.Compact(pkgs), nil
}
