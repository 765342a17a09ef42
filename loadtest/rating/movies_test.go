package rating

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadMovies(t *testing.T) {
	in := "\xef\xbb\xbf" + MoviesHeader + "\r\n" +
		"1,Toy Story (1995),Adventure|Animation\r\n" +
		"11,\"American President, The (1995)\",Comedy|Drama\n" +
		"12.0, \"Say \"\"Yes\"\" (of course) (1996) \" , Drama | Of Its Own\n" +
		"13,Babylon 5,(no genres listed)\n" +
		"14,Untimely (x995),\n" +
		"x,No Movie (1990),Drama\n" +
		"15,,Drama\n" +
		"16,Two fields"
	var broken []int
	got, err := ReadMovies(strings.NewReader(in), func(b Broken) { broken = append(broken, b.Line) })
	if err != nil {
		t.Fatal(err)
	}
	want := Movies{
		1:  {"Toy Story", 1995, []string{"Adventure", "Animation"}},
		11: {"American President, The", 1995, []string{"Comedy", "Drama"}},
		12: {`Say "Yes" (of course)`, 1996, []string{"Drama", "Of Its Own"}},
		13: {"Babylon 5", 0, nil},
		14: {"Untimely (x995)", 0, nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]int{7, 8, 9}, broken); diff != "" {
		t.Errorf("broken lines: %s", diff)
	}
	if _, err := ReadMovies(strings.NewReader(Header+"\n"), nil); err == nil || !strings.Contains(err.Error(), MoviesHeader) {
		t.Errorf("a file of ratings was read as movies: %v", err)
	}
}

func TestGenreIDsAreTold(t *testing.T) {
	seen := map[int64]string{}
	for _, g := range append([]string{"Of Its Own", "Another"}, Genres...) {
		id := GenreID(g)
		if was, twice := seen[id]; twice || id < 1 || id > MaxID {
			t.Errorf("%s has id %d (which is %q's)", g, id, was)
		}
		seen[id] = g
	}
	if GenreID("Action") != 1 || GenreID("Western") != 19 {
		t.Error("ids of genres moved: tables that were learnt before would be misread")
	}
}
