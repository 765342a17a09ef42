package writer

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// Those who ask for one key have it one at a time, those who ask for others beside them, and
// a key that nobody asks for any more is forgotten.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := turns{of: map[string]*turn{}}
		having, most := 0, 0
		next := make(chan struct{})
		asked := func() {
			end, err := x.take(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			having++
			most = max(most, having)
			<-next
			having--
			end()
		}
		for range 3 {
			go asked()
			synctest.Wait()
		}
		if end, err := x.take(t.Context(), "b"); err != nil {
			t.Error(err)
		} else {
			end()
		}
		gone, hangUp := context.WithCancel(t.Context())
		hangUp()
		if _, err := x.take(gone, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("who waits no longer has it: %v", err)
		}
		next <- struct{}{}
		synctest.Wait()
		go asked() // while another one has it, who waited
		synctest.Wait()
		for range 3 {
			if having != 1 {
				t.Errorf("%d have it", having)
			}
			next <- struct{}{}
			synctest.Wait()
		}
		if having != 0 || most != 1 || len(x.of) != 0 {
			t.Errorf("%d have it, at most %d had; %d keys are remembered", having, most, len(x.of))
		}
	})
}
