package canary

import (
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	const declared = `"declared":{"modelName":"m","stable":"7","candidate":"9","share":0.1,"mode":"ANSWER","expiresMs":"1767323045000"}`
	for name, tc := range map[string]struct{ reply, want string }{
		"it runs": {`{` + declared + `,"decided":null,"stable":{"version":"7","ratings":"12","auc":0.75,"p99Ms":2.5},"candidate":{"version":"9"},"places":[{"container":"a","sub_model":"entry","available":true},{"container":"b","sub_model":"ps_0","available":false,"reason":"its server is loading it"}]}`,
			"m, 0.1 of requests, answer; it runs until 2026-01-02T03:04:05Z\n" +
				"           VERSION  RATINGS  AUC      CALIBRATION  P50 MS   P99 MS\n" +
				"stable     7        12       0.75     unknown      unknown  2.5\n" +
				"candidate  9        0        unknown  unknown      unknown  unknown\n" +
				"entry of version 9 on a is AVAILABLE\n" +
				"ps_0 of version 9 on b is not AVAILABLE: its server is loading it\n"},
		"it has a verdict": {`{` + declared + `,"decided":{"verdict":"ROLLED_BACK","reason":"it is worse"},"stable":null,"candidate":null}`,
			"m, 0.1 of requests, answer; rolled back: it is worse\n" +
				"           VERSION  RATINGS  AUC      CALIBRATION  P50 MS   P99 MS\n" +
				"stable     0        0        unknown  unknown      unknown  unknown\n" +
				"candidate  0        0        unknown  unknown      unknown  unknown\n"},
	} {
		var out strings.Builder
		if err := text(&out, []byte(tc.reply)); err != nil || out.String() != tc.want {
			t.Errorf("%s: %v\n%q, want\n%q", name, err, out.String(), tc.want)
		}
	}
	if err := text(new(strings.Builder), []byte("?")); err == nil {
		t.Error("an answer that is no JSON was printed")
	}
}
