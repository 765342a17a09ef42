package layout

import "fmt"

// Numbers of the fields that hold ids, in the original's messages.
const (
	exampleNamedFeature = 1

	namedFeatureName     = 1
	namedFeatureFeature  = 2
	namedFeatureSortedID = 6

	batchNamedFeatureList = 1
	batchSize             = 3

	featureListName    = 1
	featureListFeature = 2
	featureListType    = 3
	featureListShared  = 1

	featureV1List = 1
	featureV2List = 2
	fidListValue  = 1

	instanceFID      = 1
	instanceFeature  = 9
	instanceName     = 1
	instanceFIDs     = 2
	instanceFIDLists = 6
)

// ReadExamples fills b with one serialized Example for each sample. Features that the
// plan does not name are passed over unread.
func (b *Batch) ReadExamples(examples [][]byte) error {
	if err := b.Reset(len(examples)); err != nil {
		return err
	}
	for i, data := range examples {
		m := message(data)
		for {
			f, ok, err := m.next()
			if err != nil {
				return fmt.Errorf("layout: example %d: %w", i, err)
			}
			if !ok {
				break
			}
			if f.num != exampleNamedFeature || f.typ != wireBytes {
				continue
			}
			if err := b.readNamedFeature(i, f.bytes); err != nil {
				return fmt.Errorf("layout: example %d: %w", i, err)
			}
		}
	}
	return nil
}

func (b *Batch) readNamedFeature(sample int, data []byte) error {
	var name, last []byte
	var sorted int32
	parts := 0
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch {
		case f.num == namedFeatureName && f.typ == wireBytes:
			name = f.bytes
		case f.num == namedFeatureFeature && f.typ == wireBytes:
			last = f.bytes
			parts++
		case f.num == namedFeatureSortedID && f.typ == wireVarint:
			sorted = int32(f.value)
		}
	}
	if sorted > 0 {
		return SortedIDError(string(name), sorted)
	}
	feature, ok := b.plan.index[string(name)]
	if !ok {
		return nil
	}
	at := len(b.fids)
	held, err := b.readParts(data, last, parts, at)
	if err != nil {
		return fmt.Errorf("feature %q: %w", name, err)
	}
	return b.finish(feature, sample, at, held)
}

// readParts reads the Feature of a NamedFeature: last, unless it comes in several parts.
func (b *Batch) readParts(data, last []byte, parts, at int) (held ids, err error) {
	if parts <= 1 {
		return b.readFeature(last, at, 0)
	}
	for m := message(data); ; {
		f, ok, err := m.next()
		if !ok || err != nil {
			return held, err
		}
		if f.num == namedFeatureFeature && f.typ == wireBytes {
			if held, err = b.readFeature(f.bytes, at, held); err != nil {
				return held, err
			}
		}
	}
}

// SortedIDError says why a feature that carries a sorted_id cannot be read.
func SortedIDError(name string, sorted int32) error {
	return fmt.Errorf("feature %q has sorted_id %d, the number of a name in a list that is not sent along: leave sorted_id 0 and send the name", name, sorted)
}

// KindError says why a feature that holds something else than ids cannot be read. Kind
// is the field's number in Feature.
func KindError(kind int) error {
	return fmt.Errorf("it holds field %d of Feature; ids come as fid_v1_list (1) or fid_v2_list (2)", kind)
}

// ids is the field of the Feature oneof that was set last; 0 is none.
type ids uint32

// readFeature appends the ids of a Feature to those read from at on by earlier parts of
// the same one, which held says. A message that comes in parts is their sum, but a oneof
// keeps only the kind that was set last.
func (b *Batch) readFeature(data []byte, at int, held ids) (ids, error) {
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return held, err
		}
		if !ok {
			return held, nil
		}
		if f.num > 16 || f.typ != featureWire[f.num] {
			continue
		}
		if kind := ids(f.num); kind != held {
			held, b.fids = kind, b.fids[:at]
		}
		if held != featureV1List && held != featureV2List {
			continue
		}
		for list := message(f.bytes); ; {
			v, ok, err := list.next()
			if err != nil {
				return held, err
			}
			if !ok {
				break
			}
			if v.num == fidListValue {
				if b.fids, err = appendFixed64(b.fids, v); err != nil {
					return held, err
				}
			}
		}
	}
}

// featureWire is the wire type of each field of Feature.
var featureWire = [17]uint8{
	0: 255, 1: wireBytes, 2: wireBytes, 3: wireBytes, 4: wireBytes, 5: wireBytes, 6: wireBytes, 7: wireBytes, 8: wireBytes,
	9: wireBytes, 10: wireBytes, 11: wireBytes, 12: wireVarint, 13: wire32, 14: wire64, 15: wireBytes, 16: wireBytes,
}

// finish makes the ids from at on, of the kind held, a row.
func (b *Batch) finish(feature, row, at int, held ids) error {
	switch held {
	case 0, featureV2List:
	case featureV1List:
		for i, fid := range b.fids[at:] {
			b.fids[at+i] = V2FromV1(fid)
		}
	default:
		return fmt.Errorf("feature %q: %w", b.plan.features[feature].Name, KindError(int(held)))
	}
	return b.close(feature, row, at)
}

// ReadExampleBatch fills b with a serialized ExampleBatch. Of a SHARED feature only the
// first element counts; an absent one is an empty row, shared by all samples.
func (b *Batch) ReadExampleBatch(data []byte) error {
	var size int32
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return fmt.Errorf("layout: example batch: %w", err)
		}
		if !ok {
			break
		}
		if f.num == batchSize && f.typ == wireVarint {
			size = int32(f.value)
		}
	}
	if err := b.ResetColumns(int(size)); err != nil {
		return err
	}
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return fmt.Errorf("layout: example batch: %w", err)
		}
		if !ok {
			return nil
		}
		if f.num != batchNamedFeatureList || f.typ != wireBytes {
			continue
		}
		if err := b.readFeatureList(f.bytes); err != nil {
			return fmt.Errorf("layout: example batch: %w", err)
		}
	}
}

func (b *Batch) readFeatureList(data []byte) error {
	var name []byte
	var shared bool
	rows := 0
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch {
		case f.num == featureListName && f.typ == wireBytes:
			name = f.bytes
		case f.num == featureListType && f.typ == wireVarint:
			shared = int32(f.value) == featureListShared
		case f.num == featureListFeature && f.typ == wireBytes:
			rows++
		}
	}
	feature, ok := b.plan.index[string(name)]
	if !ok {
		return nil
	}
	if err := b.Column(feature, rows, shared); err != nil {
		return err
	}
	row := 0
	for m := message(data); row < b.cols[feature].n; {
		f, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			break // a SHARED list without elements
		}
		if f.num != featureListFeature || f.typ != wireBytes {
			continue
		}
		at := len(b.fids)
		held, err := b.readFeature(f.bytes, at, 0)
		if err != nil {
			return fmt.Errorf("feature %q, element %d: %w", name, row, err)
		}
		if err := b.finish(feature, row, at, held); err != nil {
			return err
		}
		row++
	}
	return nil
}

// ReadInstances fills b with one serialized Instance for each sample: features called
// fc_slot_N or slot_N from the version 1 ids of slot N, others by name, their fid before
// their fid_list.
func (b *Batch) ReadInstances(instances [][]byte) error {
	if err := b.Reset(len(instances)); err != nil {
		return err
	}
	for i, data := range instances {
		if err := b.readInstance(i, data); err != nil {
			return fmt.Errorf("layout: instance %d: %w", i, err)
		}
	}
	return nil
}

func (b *Batch) readInstance(sample int, data []byte) error {
	b.raw = b.raw[:0]
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			return b.Slotted(sample, b.raw)
		}
		switch {
		case f.num == instanceFID:
			if b.raw, err = appendFixed64(b.raw, f); err != nil {
				return err
			}
		case f.num == instanceFeature && f.typ == wireBytes:
			if err := b.readInstanceFeature(sample, f.bytes); err != nil {
				return err
			}
		}
	}
}

func (b *Batch) readInstanceFeature(sample int, data []byte) error {
	var name []byte
	at, lists := len(b.fids), false
	for m := message(data); ; {
		f, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		switch {
		case f.num == instanceName && f.typ == wireBytes:
			name = f.bytes
		case f.num == instanceFIDs:
			if b.fids, err = appendFixed64(b.fids, f); err != nil {
				return err
			}
		case f.num == instanceFIDLists && f.typ == wireBytes:
			lists = true
		}
	}
	feature, ok := b.plan.index[string(name)]
	if !ok {
		b.fids = b.fids[:at]
		return nil
	}
	if lists {
		if err := b.readFIDLists(data); err != nil {
			return fmt.Errorf("feature %q: %w", name, err)
		}
	}
	return b.close(feature, sample, at)
}

func (b *Batch) readFIDLists(data []byte) error {
	for m := message(data); ; {
		f, ok, err := m.next()
		if !ok || err != nil {
			return err
		}
		if f.num != instanceFIDLists || f.typ != wireBytes {
			continue
		}
		for list := message(f.bytes); ; {
			v, ok, err := list.next()
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if v.num == fidListValue {
				if b.fids, err = appendFixed64(b.fids, v); err != nil {
					return err
				}
			}
		}
	}
}
