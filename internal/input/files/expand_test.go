package files

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes files in a new folder, which becomes the working one.
func write(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, content := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpand(t *testing.T) {
	write(t, map[string]string{
		"a1": "", "a2": "", "a10": "", "b,c": "", "[x]": "", "d/e": "", "d/f/g": "",
		"day/20260131/p": "", "day/20260202/p": "", "hour/2026013123": "", "hour/2026020100": "",
		"list": "# files\n\na2\n a1, d/*\n", "loop": "@list\n", "missing": "a1\nno-such\n",
	})
	for _, tc := range []struct {
		patterns, want, refused string
	}{
		{patterns: "a1", want: "a1"},
		{patterns: "a*", want: "a1 a10 a2"},
		{patterns: "a2,a*, ./a1 ,a10", want: "a2 a1 a10"},
		{patterns: "a?", want: "a1 a2"},
		{patterns: "[x]", want: "[x]"},
		{patterns: "d/*", want: "d/e"},
		{patterns: "@list", want: "a2 a1 d/e"},
		{patterns: "a1,@list", want: "a1 a2 d/e"},
		{patterns: "a{INT(1,9)}", want: "a1 a2"},
		{patterns: "a{ INT ( 2 , 10 ) }", want: "a2 a10"},
		{patterns: "day/{DATE(20260130,20260203)}/*", want: "day/20260131/p day/20260202/p"},
		{patterns: "day/{DATE(20260201,20260202)}/*", want: "day/20260202/p"},
		{patterns: "hour/{DATE(2026013123,2026020100)}", want: "hour/2026013123 hour/2026020100"},
		{patterns: "{INT(1,1)}{DATE(20260101,20260101)},a1", refused: "no file is there that {INT(1,1)}{DATE(20260101,20260101)} names"},
		{refused: "no pattern was given"},
		{patterns: " , ", refused: "no pattern was given"},
		{patterns: "a1,no-such", refused: "no file is there that no-such names"},
		{patterns: "no-*", refused: "no file is there that no-* names"},
		{patterns: "d", refused: "d is a folder: name the files in it, as in d/*"},
		{patterns: "a[", refused: "a[ is no pattern of names"},
		{patterns: "@no-such", refused: "read the list of files"},
		{patterns: "@loop", refused: "loop, line 1: @list stands in a list of files"},
		{patterns: "@missing", refused: "missing, line 2: no file is there that no-such names"},
		{patterns: "a{INT(3,2)}", refused: "the range from 3 to 2 is empty"},
		{patterns: "a{INT(0,99999999)}", refused: "more than 1048576 numbers"},
		{patterns: "a{INT(0,2000)}{INT(0,2000)}", refused: "more than 1048576 patterns"},
		{patterns: "a{INT(1)}", refused: "write {DATE(20260101,20260131)}"},
		{patterns: "a{DATE(20261301,20261302)}", refused: "20261301 is no date"},
		{patterns: "a{DATE(20260101,2026010100)}", refused: "2026010100 is no date like 20260101"},
		{patterns: "a{DATE(20260102,20260101)}", refused: "the range from 20260102 to 20260101 is empty"},
	} {
		t.Run(tc.patterns, func(t *testing.T) {
			got, err := Expand([]string{tc.patterns})
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Errorf("%q, %v; want %q", got, err, tc.refused)
				}
				return
			}
			if err != nil || !slices.Equal(got, strings.Fields(tc.want)) {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
	if _, err := Expand([]string{"no-such"}); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if got, err := Expand([]string{"a2", "a1,a2"}); err != nil || !slices.Equal(got, []string{"a2", "a1"}) {
		t.Errorf("two patterns: %q, %v", got, err)
	}
}
