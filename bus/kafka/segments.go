package kafka

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/durable"
)

// checkFolder reads every segment of the embedded broker's folder before the broker
// does. The broker by itself drops all that lies behind a damaged batch, and takes a
// folder whose topics.json lost a name for a new one; both would give acked offsets away
// a second time. Damage is an error here. What may be no damage is the end of a
// partition's last segment, where a crash leaves a batch half written that was never
// acked: it is cut off, kept in a file beside it, and logged.
func checkFolder(dir string, log *slog.Logger) error {
	topics, err := readTopics(dir)
	if err != nil {
		return err
	}
	folders, err := os.ReadDir(filepath.Join(dir, "partitions"))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("kafka broker: %w", err)
	}
	var errs []error
	for _, f := range folders {
		part := partitionFolder{path: filepath.Join(dir, "partitions", f.Name()), log: log}
		if err := part.list(); err != nil {
			errs = append(errs, err)
			continue
		}
		if len(part.segments) == 0 {
			continue // nothing was ever written
		}
		if topics == nil {
			return fmt.Errorf("kafka broker: %s holds records, but topics.json or meta.json is missing in %s: restore them from a backup of the folder, or name another folder", part.path, dir)
		}
		t, ok := topics[topicOf(f.Name())]
		if !ok || partitionOf(f.Name()) >= t.Partitions {
			errs = append(errs, fmt.Errorf("kafka broker: %s holds records, but topics.json in %s names no such partition: restore topics.json from a backup of the folder, or move that folder away", part.path, dir))
			continue
		}
		part.compacted = strings.Contains(t.Configs["cleanup.policy"], "compact")
		errs = append(errs, part.check())
	}
	return errors.Join(errs...)
}

// storedTopic is what of topics.json tells which folders the broker owns.
type storedTopic struct {
	Name       string            `json:"name"`
	Partitions int               `json:"partitions"`
	Configs    map[string]string `json:"configs"`
}

// readTopics returns the topics that the broker will find; nil: it will find none and
// begin anew.
func readTopics(dir string) (map[string]storedTopic, error) {
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); os.IsNotExist(err) {
		return nil, nil
	}
	raw, err := os.ReadFile(filepath.Join(dir, "topics.json"))
	if os.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("kafka broker: %w", err)
	}
	var file struct {
		Topics []storedTopic `json:"topics"`
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("kafka broker: %s is damaged: restore it from a backup of the folder: %w", filepath.Join(dir, "topics.json"), err)
	}
	topics := map[string]storedTopic{}
	for _, t := range file.Topics {
		topics[t.Name] = t
	}
	return topics, nil
}

// topicOf and partitionOf take a folder's name "<escaped topic>-<partition>" apart.
func topicOf(folder string) string {
	name := folder[:max(strings.LastIndexByte(folder, '-'), 0)]
	if t, err := url.PathUnescape(name); err == nil {
		return t
	}
	return name
}

func partitionOf(folder string) int {
	n, err := strconv.Atoi(folder[strings.LastIndexByte(folder, '-')+1:])
	if err != nil || n < 0 {
		return 1 << 30
	}
	return n
}

// partitionFolder is the log of one partition on disk.
type partitionFolder struct {
	path      string
	log       *slog.Logger
	compacted bool    // offsets may have holes
	segments  []int64 // base offsets, ascending
}

func (p *partitionFolder) list() error {
	files, err := os.ReadDir(p.path)
	if err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".dat")
		if base, err := strconv.ParseInt(name, 10, 64); ok && err == nil {
			p.segments = append(p.segments, base)
		}
	}
	slices.Sort(p.segments)
	return nil
}

func (p *partitionFolder) file(base int64, ext string) string {
	return filepath.Join(p.path, strconv.FormatInt(base, 10)+ext)
}

func (p *partitionFolder) check() error {
	next := int64(-1) // offset that must follow
	for i, base := range p.segments {
		raw, err := os.ReadFile(p.file(base, ".dat"))
		if err != nil {
			return fmt.Errorf("kafka broker: %w", err)
		}
		if next < 0 {
			next = base
		}
		var index []indexEntry
		at := 0
		for at < len(raw) {
			b, err := readBatch(raw[at:])
			whole := err == nil // as no crash leaves one that was not acked
			if whole && (b.first < next || b.first > next && !p.compacted) {
				err = fmt.Errorf("its offset is %d where %d was due", b.first, next)
			}
			if err != nil {
				if whole || i < len(p.segments)-1 || followed(raw[at:], next) {
					return fmt.Errorf("kafka broker: the batch of offset %d in %s is damaged (byte %d: %w), and records lie there or behind it: restore the folder from a backup", next, p.file(base, ".dat"), at, err)
				}
				if err := p.cut(base, raw, at, next, err); err != nil {
					return err
				}
				break
			}
			index = append(index, b.index)
			at, next = at+b.size, b.last+1
		}
		if p.compacted {
			continue // which drops the ends of transactions
		}
		if err := p.mendIndex(base, index); err != nil {
			return err
		}
	}
	return nil
}

// cut moves what lies behind byte at of the last segment into a file of its own.
func (p *partitionFolder) cut(base int64, raw []byte, at int, offset int64, why error) error {
	aside := p.file(base, fmt.Sprintf(".cut-at-%d", offset))
	if err := writeSynced(aside, raw[at:]); err != nil {
		return fmt.Errorf("kafka broker: keep the damaged end of %s: %w", p.file(base, ".dat"), err)
	}
	f, err := os.OpenFile(p.file(base, ".dat"), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	if err := errors.Join(f.Truncate(int64(at)), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("kafka broker: cut the damaged end of %s: %w", p.file(base, ".dat"), err)
	}
	p.log.Error("the last batch of a partition is damaged, as a crash leaves one that was not acked: it was cut off and kept aside",
		"segment", p.file(base, ".dat"), "offset", offset, "bytes", len(raw)-at, "kept", aside, "err", why)
	return nil
}

// batch is what the header of a record batch says.
type batch struct {
	size        int
	first, last int64
	index       indexEntry
}

const (
	batchHeader = 61 // bytes before the records
	attrTxn     = 0x10
	attrControl = 0x20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// readBatch checks the batch that raw begins with. Its checksum leaves out the offset
// and the leader epoch.
func readBatch(raw []byte) (batch, error) {
	if len(raw) < batchHeader {
		return batch{}, fmt.Errorf("%d bytes are no whole batch", len(raw))
	}
	be := binary.BigEndian
	size := 12 + int64(int32(be.Uint32(raw[8:])))
	switch {
	case size < batchHeader || size > int64(len(raw)):
		return batch{}, fmt.Errorf("it claims %d bytes, there are %d", size, len(raw))
	case raw[16] != 2:
		return batch{}, fmt.Errorf("its format is %d, not 2", raw[16])
	}
	if sum := crc32.Checksum(raw[21:size], castagnoli); sum != be.Uint32(raw[17:]) {
		return batch{}, fmt.Errorf("its checksum is %08x, its content has %08x", be.Uint32(raw[17:]), sum)
	}
	first, attrs := int64(be.Uint64(raw)), be.Uint16(raw[21:])
	return batch{
		size: int(size), first: first, last: first + int64(int32(be.Uint32(raw[23:]))),
		index: indexEntry{epoch: be.Uint32(raw[12:]), inTx: attrs&attrTxn != 0 && attrs&attrControl == 0},
	}, nil
}

// followed says whether any whole batch above offset lies behind the beginning of raw.
func followed(raw []byte, offset int64) bool {
	for at := 1; at+batchHeader <= len(raw); at++ {
		if raw[at+16] != 2 || int64(binary.BigEndian.Uint64(raw[at:])) < offset {
			continue
		}
		if b, err := readBatch(raw[at:]); err == nil && b.last >= b.first {
			return true
		}
	}
	return false
}

// indexEntry is what the broker keeps of a batch in the .idx file beside the segment.
type indexEntry struct {
	epoch uint32
	inTx  bool
}

const indexBytes = 15 // version, checksum, epoch, a timestamp, flags

func (e indexEntry) append(b []byte) []byte {
	at := len(b)
	b = append(b, 1, 0)
	b = binary.LittleEndian.AppendUint32(b, e.epoch)
	b = append(b, make([]byte, 9)...)
	if e.inTx {
		b[at+14] = 1
	}
	b[at+1] = byte(crc32.Checksum(b[at+2:], castagnoli))
	return b
}

// mendIndex writes the index anew if it does not say of each batch what the batch says.
// The broker writes it after the segment and appends to it blindly, so that a crash in
// between shifts all later entries by one, and takes an aborted transaction for a
// committed one.
func (p *partitionFolder) mendIndex(base int64, want []indexEntry) error {
	raw, err := os.ReadFile(p.file(base, ".idx"))
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("kafka broker: %w", err)
	}
	same := len(raw) == len(want)*indexBytes
	for i := 0; same && i < len(want); i++ {
		b := raw[i*indexBytes:][:indexBytes]
		same = b[0] == 1 && b[1] == byte(crc32.Checksum(b[2:], castagnoli)) &&
			binary.LittleEndian.Uint32(b[2:]) == want[i].epoch && (b[14] == 1) == want[i].inTx
	}
	if same {
		return nil
	}
	p.log.Warn("the index of a segment does not fit it and is written anew", "segment", p.file(base, ".dat"))
	var anew []byte
	for _, e := range want {
		anew = e.append(anew)
	}
	if err := replaceSynced(p.file(base, ".idx"), anew); err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	return nil
}

// replaceSynced makes path appear whole or stay as it was, whatever is cut off when.
func replaceSynced(path string, data []byte) error {
	return durable.Replace(path, 0o644, func(f *os.File) error { _, err := f.Write(data); return err })
}

func writeSynced(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}
