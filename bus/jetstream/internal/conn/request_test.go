package conn

import (
	"errors"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// Nothing but a whole ack says that a message is stored.
func TestWhatIsAnAck(t *testing.T) {
	s, err := server.NewServer(&server.Options{DontListen: true, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(wait.Patience) {
		t.Fatal("the server does not start")
	}
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil {
		t.Fatal(err)
	}
	c := &Conn{NATS: nc, link: newLink()}
	for answer, want := range map[string]string{
		`{"stream":"S","seq":7}`: "",
		`{"stream":"S"}`:         "is no ack",
		`{"seq":7}`:              "is no ack",
		`{}`:                     "is no ack",
		`x`:                      "is no ack",
		`{"error":{"code":400,"err_code":10071}}`:         "refused",
		`{"error":{"code":503},"stream":"S","seq":7}`:     "refused",
		`{"error":null,"stream":"S","seq":7,"later":"x"}`: "",
	} {
		a, err := c.Request(t.Context(), &nats.Msg{Subject: "echo", Data: []byte(answer)})
		var refused *APIError
		got := ""
		switch {
		case errors.As(err, &refused):
			got = "refused"
		case err != nil:
			got = "is no ack"
		}
		if got != want || err == nil && (a.Stream != "S" || a.Seq != 7) {
			t.Errorf("%s: %+v, %v", answer, a, err)
		}
	}
	if _, err := c.Request(t.Context(), &nats.Msg{Subject: "nobody", Data: []byte("x")}); !errors.Is(err, bus.ErrUnavailable) {
		t.Errorf("nobody answers: %v", err)
	}
}

// A server's error of its own passes, what it objects to in a message does not.
func TestWhatPasses(t *testing.T) {
	for _, tc := range []struct {
		e          APIError
		busy, away bool
		is         error
	}{
		{APIError{Code: 499}, false, false, nil},
		{APIError{Code: 500}, true, true, bus.ErrUnavailable},
		{APIError{Code: 503, ErrCode: codeStoreFailed}, false, false, bus.ErrFull},
		{APIError{Code: 503, ErrCode: codeInsufficient}, false, false, bus.ErrFull},
		{APIError{Code: 400, ErrCode: codeUpdateInWork}, true, false, bus.ErrUnavailable},
		{APIError{Code: 400, ErrCode: codeNoPeers}, true, true, bus.ErrUnavailable},
		{APIError{Code: 400, ErrCode: CodeWrongLast}, false, false, bus.ErrConflict},
		{APIError{Code: 400, ErrCode: codeTooLarge}, false, false, bus.ErrTooLarge},
	} {
		err := tc.e.Sentinel()
		if tc.e.Busy() != tc.busy || tc.e.Away() != tc.away || tc.is != nil && !errors.Is(err, tc.is) || tc.is == nil && bus.Retryable(err) {
			t.Errorf("%+v: busy %t, away %t, %v", tc.e, tc.e.Busy(), tc.e.Away(), err)
		}
	}
	if err := Failure(nil); err != nil {
		t.Errorf("no failure is %v", err)
	}
}
