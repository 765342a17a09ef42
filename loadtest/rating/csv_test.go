package rating

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestCSV(t *testing.T) {
	long := "1,2," + strings.Repeat("9", 3*MaxLine) + ",4"
	in := Header + "\r\n" +
		"1,10,4.0,100\r\n" +
		"2,20,3.5,200\n" +
		"\n" +
		"3,thirty,3.0,300\n" +
		long + "\n" +
		"4,40,5.5,400\n" +
		"5,50,NaN,500\n" +
		"6,60,4.0\r\n" +
		"7,70,4.0,700,x\n" +
		"8,80,1.0,800" // no end of line
	var broken []Broken
	c, err := NewCSV(strings.NewReader(in), func(b Broken) { broken = append(broken, b) })
	if err != nil {
		t.Fatal(err)
	}
	var got []Rating
	for r, ok := c.Next(); ok; r, ok = c.Next() {
		got = append(got, r)
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	want := []Rating{{1, 10, 4, 100}, {2, 20, 3.5, 200}, {8, 80, 1, 800}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ratings (-want +got):\n%s", diff)
	}
	wantBroken := []Broken{
		{5, `movieId "thirty" is not a whole number`, []byte("3,thirty,3.0,300")},
		{6, "the line is longer than 4096 bytes", []byte(long[:MaxLine])},
		{7, "invalid rating: rating 5.5 is not within 0 and 5", []byte("4,40,5.5,400")},
		{8, "invalid rating: rating NaN is not within 0 and 5", []byte("5,50,NaN,500")},
		{9, "the row has 3 fields, not 4", []byte("6,60,4.0")},
		{10, "the row has 5 fields, not 4", []byte("7,70,4.0,700,x")},
	}
	if diff := cmp.Diff(wantBroken, broken); diff != "" {
		t.Errorf("broken rows (-want +got):\n%s", diff)
	}
}

// TestCSVOfOtherWriters reads what spreadsheets and databases write: quoted fields, and
// spaces behind the commas.
func TestCSVOfOtherWriters(t *testing.T) {
	for _, in := range []string{
		"\"userId\",\"movieId\",\"rating\",\"timestamp\"\r\n\"1\",\"10\",\"4.0\",\"100\"\r\n",
		"userId, movieId, rating, timestamp\n1, 10, 4.0 , 100\n",
		Header + "\n 1,\"10\",4.0,100",
		Header + "\n\" 1\" ,\"10\"\t, 4.0,100 ",
		Header + "\n1.0,10.00,4,1e2\n",
	} {
		got, err := ReadCSV(strings.NewReader(in), func(b Broken) { t.Errorf("%q: line %d: %s", in, b.Line, b.Reason) })
		if diff := cmp.Diff([]Rating{{1, 10, 4, 100}}, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", in, err, diff)
		}
	}
	var broken []string
	_, err := ReadCSV(strings.NewReader(Header+"\n\"1\"0,10,4.0,100\n\"1,10,4.0,100\n"), func(b Broken) { broken = append(broken, b.Reason) })
	if err != nil || len(broken) != 2 || !strings.HasPrefix(broken[0], "the row is no CSV: ") || strings.Contains(broken[0], "line 1") {
		t.Errorf("%v, %q", err, broken)
	}
}

func TestCSVLineBound(t *testing.T) {
	for _, tc := range []struct {
		name  string
		size  int
		end   string
		whole bool
	}{
		{"exactly", MaxLine, "\n", true},
		{"exactly, CRLF", MaxLine, "\r\n", true},
		{"exactly, at the end", MaxLine, "", true},
		{"one more", MaxLine + 1, "\n", false},
		{"one more, at the end", MaxLine + 1, "", false},
		{"many more, at the end", 5 * MaxLine, "", false},
	} {
		row := strings.Repeat("0", tc.size-len("1,2,3,4")) + "1,2,3,4"
		var broken int
		rs, err := ReadCSV(strings.NewReader(Header+"\n"+row+tc.end), func(Broken) { broken++ })
		if err != nil {
			t.Fatalf("%s: %v", tc.name, err)
		}
		if whole := len(rs) == 1 && broken == 0; whole != tc.whole || len(rs)+broken != 1 {
			t.Errorf("%s: %d ratings, %d broken", tc.name, len(rs), broken)
		}
	}
}

func TestCSVHeader(t *testing.T) {
	for _, ok := range []string{Header, Header + "\n", "\xef\xbb\xbf" + Header + "\r\n"} {
		if rs, err := ReadCSV(strings.NewReader(ok), nil); err != nil || len(rs) != 0 {
			t.Errorf("ReadCSV(%q) = %v, %v", ok, rs, err)
		}
	}
	for _, bad := range []string{"", "\n", "1,2,3.0,4\n", "movieId,title,genres\n", strings.Repeat("x", 3*MaxLine)} {
		if _, err := ReadCSV(strings.NewReader(bad), nil); err == nil || !strings.Contains(err.Error(), Header) {
			t.Errorf("ReadCSV(%.20q): %v, want an error that shows the header", bad, err)
		}
	}
}

func TestCSVReadError(t *testing.T) {
	full := errors.New("disk on fire")
	in := io.MultiReader(strings.NewReader(Header+"\n1,2,3.0,4\n5,6"), iotest.ErrReader(full))
	rs, err := ReadCSV(in, func(b Broken) { t.Errorf("a row cut by a read error was called broken: %+v", b) })
	if !errors.Is(err, full) || len(rs) != 1 {
		t.Errorf("ReadCSV = %v, %v", rs, err)
	}
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("1,2,3.5,4\r\n\n5,6,x,7\n8,9,1,1"))
	f.Add([]byte(strings.Repeat("9", MaxLine+3) + "\n1,2,3,4"))
	f.Add([]byte("\"1\",2,3,4\n\x00\n"))
	f.Fuzz(func(t *testing.T, rows []byte) {
		n := 0
		in := append([]byte(Header+"\n"), rows...)
		c, err := NewCSV(iotest.HalfReader(bytes.NewReader(in)), func(b Broken) {
			n++
			if len(b.Raw) > MaxLine || b.Reason == "" || b.Line < 2 {
				t.Fatalf("bad report %+v", b)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, ok := c.Next(); ok; r, ok = c.Next() {
			n++
			if err := r.Validate(); err != nil {
				t.Fatal(err)
			}
		}
		lines := 0
		for line := range bytes.SplitSeq(rows, []byte("\n")) {
			if len(bytes.TrimSuffix(line, []byte("\r"))) > 0 {
				lines++
			}
		}
		if c.Err() != nil || n != lines {
			t.Fatalf("%d rows handed out, %d lines: %v", n, lines, c.Err())
		}
	})
}
