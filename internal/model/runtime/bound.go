package runtime

// rowIDs are the ids of the rows that a feature reads, once the batch is complete.
func (b *Batch) rowIDs(f int) *column {
	if b.e.features[f].rows.Bounded() {
		return &b.bounded[f]
	}
	return &b.ids[f]
}

// bound makes the ids of rows of what features with a vocabulary have.
func (b *Batch) bound() {
	for f := range b.ids {
		rows := b.e.features[f].rows
		if !rows.Bounded() {
			continue
		}
		from, to := &b.ids[f], &b.bounded[f]
		to.truncate(0)
		for sample := range b.Len() {
			begin := len(to.ids)
			for _, id := range from.of(sample) {
				to.ids = rows.Append(to.ids, id)
			}
			to.end(len(to.ids) - begin)
		}
	}
}
