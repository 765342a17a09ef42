package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/monolith-go/monolith/bus/kafka"
)

// clicksSpec is a model that has nothing of the demo's: texts as ids, another topic, another label.
const clicksSpec = `name: clicks
seed: 1
features:
- {name: device, slot: 1, table: device, ids: HASH}
- {name: ad, field: adId, slot: 2, table: ad}
tables:
- {name: device, dim: 1, initializer: {zeros: {}}}
- {name: ad, dim: 1, initializer: {zeros: {}}}
outputs:
- {name: w, type: ADDN, slices: ["*"]}
layers:
- {name: logit, add: {bias: true}, inputs: [w]}
tasks:
- {logit: logit, label: {field: clicked, threshold: 1}}
dense_optimizer: {adagrad: {learning_rate: 0.05, initial_accumulator_value: 0.1}}
`

// TestUpOfAnyModel runs `monolith up --spec` on a topic of clicks, loads the model with the line that the
// banner shows, and asks REST: devices called "bot" never click, and nobody clicks the second ad.
func TestUpOfAnyModel(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clicks.yaml")
	if err := os.WriteFile(file, []byte(clicksSpec), 0o600); err != nil {
		t.Fatal(err)
	}
	h := handsUp(t, "--spec", file, "--ratings-topic", "clicks", "--shards", "1", "--replicas", "1", "--trainers", "1", "--partitions", "1")
	recs := make([]kafka.Record, 6000)
	for i := range recs {
		device, ad, clicked := "phone", 1+i/2%2, 0
		if i%2 == 0 {
			device = "bot"
		} else if ad == 1 {
			clicked = 1
		}
		recs[i] = kafka.Record{Topic: "clicks", Value: fmt.Appendf(nil, `{"device":%q,"adId":%d,"clicked":%d}`, device, ad, clicked)}
	}
	w := kafka.NewWriter(kafka.WriterConfig{Brokers: []string{h.told("Kafka")}})
	defer w.Close()
	if _, err := w.Write(t.Context(), recs...); err != nil {
		t.Fatal(err)
	}
	h.until("a first export", func() (bool, string) {
		_, err := os.Stat(filepath.Join(h.told("exports"), "entry", "1"))
		return err == nil, fmt.Sprint(err)
	})
	h.types(regexp.MustCompile(`(?m)^Load the model: (.*)$`).FindStringSubmatch(h.banner)[1])
	url := h.told("REST") + ":predict"
	h.until("clicks are told from what is none", func() (bool, string) {
		scores, said := askREST(t, url, `{"instances":[{"device":"phone","ad":1},{"device":"bot","ad":1},{"device":"phone","ad":2}]}`)
		return len(scores) == 3 && scores[0] > 0.6 && scores[1] < 0.4 && scores[2] < 0.4, said
	})
}

// askREST are the predictions of an answer, and its body.
func askREST(t *testing.T, url, body string) (scores []float64, said string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err.Error()
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err.Error()
	}
	var answer struct{ Predictions []float64 }
	_ = json.Unmarshal(data, &answer) // what is no answer has no predictions
	return answer.Predictions, string(data)
}
