package stream

import (
	"errors"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// A leader's answer is a message, or says why there is none.
func TestWhatALeaderAnswers(t *testing.T) {
	for answer, want := range map[string]string{
		`{"message":{"seq":7,"subject":"a","time":"2026-11-25T00:00:00Z","data":"eA=="}}`:                     "",
		`{"message":{"seq":7,"subject":"a","hdrs":"TkFUUy8xLjANCk5hdHMtTXNnLUlkOiBtDQoNCg==","data":"eA=="}}`: "",
		`{"message":{"seq":7,"subject":"a","hdrs":"eA=="}}`:                                                   "the headers of sequence 7 do not decode",
		`{}`: "holds no message",
		`x`:  "does not decode",
		`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`:                                 bus.ErrNotFound.Error(),
		`{"error":{"code":503,"err_code":1,"description":"away"},"message":{"seq":7,"subject":"a","data":"eA=="}}`: bus.ErrUnavailable.Error(),
	} {
		m, err := parseGot("S", []byte(answer))
		if want == "" {
			id := ""
			if strings.Contains(answer, "hdrs") {
				id = "m"
			}
			if err != nil || m.Seq != 7 || m.Subject != "a" || string(m.Data) != "x" || m.ID() != id {
				t.Errorf("%s: %+v, %v", answer, m, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %q", answer, m, err, want)
		}
	}
}

// A direct read's answer is a message, or a status.
func TestWhatADirectReadAnswers(t *testing.T) {
	whole := map[string]string{"Nats-Sequence": "7", "Nats-Time-Stamp": "2026-11-25T00:00:00Z", "Nats-Subject": "a", "Nats-Stream": "S", "Nats-Msg-Id": "m"}
	for _, tc := range []struct{ header, value, want string }{
		{"", "", ""},
		{"Status", "404", bus.ErrNotFound.Error()},
		{"Status", "408", "the server answers 408"},
		{"Nats-Sequence", "x", "no sequence"},
		{"Nats-Time-Stamp", "x", "no time"},
	} {
		reply := &nats.Msg{Header: nats.Header{}, Data: []byte("xyz")}
		for k, v := range whole {
			reply.Header.Set(k, v)
		}
		if tc.header != "" {
			reply.Header.Set(tc.header, tc.value)
		}
		m, err := parseStored("S", reply)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %s: %+v, %v", tc.header, tc.value, m, err)
			}
			continue
		}
		if err != nil || m.Seq != 7 || m.Subject != "a" || m.ID() != "m" || m.Size() != 3 || len(m.Header) != 1 {
			t.Errorf("%+v, %v", m, err)
		}
	}
}

// The length of what was sent without its data is that of the data.
func TestSizes(t *testing.T) {
	for said, want := range map[string]int{"": 2, "5": 5, "x": 2} {
		m := &Message{Header: map[string][]string{}, Data: []byte("ab")}
		if said != "" {
			m.Header["Nats-Msg-Size"] = []string{said}
		}
		if got := m.Size(); got != want {
			t.Errorf("said to be %q: %d bytes, want %d", said, got, want)
		}
	}
}

// FuzzAnswers decodes whatever a server may send.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"message":{"seq":7,"subject":"a","hdrs":"TkFUUy8xLjANCg0K","data":"eA=="}}`))
	f.Add([]byte(`{"error":{"err_code":10037}}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		m, err := parseGot("S", answer)
		if (m == nil) == (err == nil) {
			t.Errorf("%q: %+v, %v", answer, m, err)
		}
		var api *conn.APIError
		if errors.As(err, &api) && api.ErrCode == conn.CodeNoMessage {
			t.Errorf("%q: a message that is not there is %v", answer, err)
		}
	})
}
