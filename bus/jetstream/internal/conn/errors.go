package conn

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus"
)

// Codes of the server that mean something to a writer.
const (
	codeNoPeers       = 10005 // for the replicas of a stream: servers of the cluster are not up yet
	CodeNoMessage     = 10037 // at that sequence, or of that subject
	codeInsufficient  = 10023 // resources of the server
	codeStorageLimit  = 10047 // reserved storage of the server
	codeTooLarge      = 10054 // the message
	CodeWrongLast     = 10071 // the expectation is not met
	CodeNoStream      = 10059
	codeStoreFailed   = 10077 // limit or disk
	codeIDInProcess   = 10158 // the same id is being stored
	codeUpdateInWork  = 10164 // another update of that subject is in flight
	codeIncomplete    = 10176 // the batch lacks a message: one was lost or refused
	codeHeaderTooLong = 10097
	CodeDuplicate     = 10201 // a batch holds an id that is stored
	codeTooManyOpen   = 10210 // batches
)

// APIError is the server's answer to a publish.
type APIError struct {
	Code        int    `json:"code"`
	ErrCode     int    `json:"err_code"`
	Description string `json:"description"`
}

func (e *APIError) Error() string {
	return fmt.Sprintf("%s (nats error %d)", e.Description, e.ErrCode)
}

// Busy says that the same publish may succeed a moment later.
func (e *APIError) Busy() bool {
	switch e.ErrCode {
	case codeIDInProcess, codeUpdateInWork, codeIncomplete:
		return true
	}
	return e.Away()
}

// Away says that it is not the messages that the server objects to.
func (e *APIError) Away() bool {
	switch e.ErrCode {
	case codeTooManyOpen, codeNoPeers:
		return true
	case codeInsufficient, codeStorageLimit, codeStoreFailed, codeIDInProcess, codeUpdateInWork, codeIncomplete:
		return false
	}
	return e.Code >= 500
}

// Sentinel is what the error means to the caller.
func (e *APIError) Sentinel() error {
	switch e.ErrCode {
	case CodeWrongLast:
		return fmt.Errorf("%w: %w", bus.ErrConflict, e)
	case codeInsufficient, codeStorageLimit, codeStoreFailed:
		return fmt.Errorf("%w: nothing was stored; raise the stream's limit or free disk space: %w", bus.ErrFull, e)
	case codeTooLarge, codeHeaderTooLong:
		return fmt.Errorf("%w: %w", bus.ErrTooLarge, e)
	}
	if e.Busy() {
		return fmt.Errorf("%w: %w", bus.ErrUnavailable, e)
	}
	return e
}

// Failure gives an error of nats.go the sentinel that says what to do about it.
func Failure(err error) error {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrKeyNotFound):
		return fmt.Errorf("%w: %w", bus.ErrNotFound, err)
	case errors.As(err, &api):
		return (&APIError{Code: api.Code, ErrCode: int(api.ErrorCode), Description: api.Description}).Sentinel()
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", bus.ErrTooLarge, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled),
		errors.Is(err, nats.ErrTimeout), errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse),
		errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed),
		errors.Is(err, nats.ErrConnectionReconnecting), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrStaleConnection),
		errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	return err
}
