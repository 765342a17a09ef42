package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/internal/mtls"
)

// ErrNoAuthorities is of keys by which other hosts cannot be told from anybody.
var ErrNoAuthorities = errors.New("transfers need the authorities of other hosts: name them with --transfer-tls-ca or --tls-ca")

// Keys are what both ends of a transfer show: those of transfers, or else those of all ports. near is
// whether there are none and plain text was not asked for by name.
func Keys(own, shared mtls.Files, insecure bool) (keys *tls.Config, near bool, err error) {
	files := own.Or(shared)
	if insecure {
		files = mtls.Files{}
	}
	if files != (mtls.Files{}) && files.CA == "" {
		return nil, false, ErrNoAuthorities
	}
	if keys, err = files.Load(); err != nil {
		return nil, false, fmt.Errorf("transfers: %w", err)
	}
	return keys, keys == nil && !insecure, nil
}

// MayAsk are the sources that may be asked, and an error that names the others: nothing that is in plain text comes from
// another machine unless that was asked for by name.
func (c *Client) MayAsk(all []Source) (asked []Source, err error) {
	if !c.conf.Near {
		return all, nil
	}
	var beyond []string
	for _, from := range all {
		if mtls.Local(from.Address) {
			asked = append(asked, from)
		} else {
			beyond = append(beyond, fmt.Sprintf("%s (%s)", from.Host, from.Address))
		}
	}
	if beyond == nil {
		return asked, nil
	}
	err = fmt.Errorf("not asked, for neither end would be authenticated: %s; name certificates with --transfer-tls-cert, -key and -ca or with --%s-cert, -key and -ca for all ports, or allow it with --insecure-transfer",
		strings.Join(beyond, ", "), mtls.Shared)
	c.beyond.Do(func() { c.conf.Log.Warn("hosts on other machines are not asked for copies", "err", err) })
	return asked, err
}
