package znodedata

import (
	"math"
	"testing"
)

// Texts and numbers are as Python writes them.
func TestTextsAndNumbersOfPython(t *testing.T) {
	for s, want := range map[string]string{
		"": ``, " ": ` `, "~": `~`, "\x7f": `\u007f`, "\x1f": `\u001f`, "\x00": `\u0000`, `"`: `\"`, `\`: `\\`, `\\`: `\\\\`, `a"b`: `a\"b`, "\n\r\t\b\f": `\n\r\t\b\f`, "\v": `\u000b`,
		"é": `\u00e9`, "é ~": `\u00e9 ~`, "é\x7f": `\u00e9\u007f`, "é\x1f": `\u00e9\u001f`, "\uffff": `\uffff`, "\U00010000": `\ud800\udc00`, "\U0010ffff": `\udbff\udfff`, "\xff": `\ufffd`,
	} {
		if got := string(pyString(nil, s)); got != `"`+want+`"` {
			t.Errorf("%q is written as %s, want %q", s, got, want)
		}
	}
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", -1: "-1.0", 1.5: "1.5", 0.1: "0.1", 1e-4: "0.0001", 9.9e-5: "9.9e-05", -1e-4: "-0.0001", 1e15: "1000000000000000.0", 1e16: "1e+16", -1e16: "-1e+16",
		9999999999999998: "9999999999999998.0", 1 << 53: "9007199254740992.0", 1<<53 - 1: "9007199254740991.0", math.Inf(1): "Infinity", math.Inf(-1): "-Infinity", math.MaxFloat64: "1.7976931348623157e+308", 5e-324: "5e-324",
	} {
		if got := string(pyFloat(nil, v)); got != want {
			t.Errorf("%g is written as %s, want %s", v, got, want)
		}
	}
	if a, b := string(pyFloat(nil, math.Copysign(0, -1))), string(pyFloat(nil, math.NaN())); a != "-0.0" || b != "NaN" {
		t.Errorf("-0 is %s, no number %s", a, b)
	}
}
