package modelspec

import "github.com/monolith-go/monolith/events/model"

// Vocabulary is how the ids of a feature become those of its rows, for training and serving alike. Of
// the zero Vocabulary they are the same.
type Vocabulary struct{ size, divisor int64 }

// VocabularyOf is that of a feature of a valid spec.
func VocabularyOf(f *model.Feature) Vocabulary {
	v := f.GetVocabulary()
	return Vocabulary{int64(v.GetSize()), int64(v.GetDivisor())}
}

// Bounded says whether ids change at all.
func (v Vocabulary) Bounded() bool { return v.size > 0 }

// Take is an id from outside as one within a slot: of a vocabulary any number is one.
func (v Vocabulary) Take(id int64) (int64, bool) {
	if v.size > 0 {
		id = max(id, 0) % v.size
	}
	return id, id >= 0 && id <= MaxID
}

// Rows is how many rows an id reads.
func (v Vocabulary) Rows() int {
	if v.divisor > 0 {
		return 2
	}
	return 1
}

// Append appends the feature ids of the rows that a feature id reads.
func (v Vocabulary) Append(rows []int64, fid int64) []int64 {
	if v.size == 0 {
		return append(rows, fid)
	}
	slot, id := SlotOf(fid), fid&MaxID%v.size
	if v.divisor == 0 {
		return append(rows, FID(slot, id))
	}
	return append(rows, FID(slot, id%v.divisor), FID(slot, v.divisor+id/v.divisor))
}

// Most is the greatest number of rows that the ids of a slot have; 0: no bound.
func (v Vocabulary) Most() int64 {
	if v.divisor == 0 {
		return v.size
	}
	return v.divisor + (v.size-1)/v.divisor + 1
}

// Reads is how many rows a sample reads that has one id of each feature.
func Reads(spec *model.ModelSpec) (n int) {
	for _, f := range spec.GetFeatures() {
		n += VocabularyOf(f).Rows()
	}
	return n
}

// vocabulary checks how a feature's ids are bounded.
func (c *complaints) vocabulary(what string, f *model.Feature) {
	v := f.GetVocabulary()
	switch {
	case v == nil:
	case v.GetSize() < 1 || v.GetSize() > MaxID+1:
		c.add("%s has a vocabulary of size %d: give 1 to %d", what, v.GetSize(), int64(MaxID+1))
	case v.GetDivisor() >= v.GetSize():
		c.add("%s has a vocabulary of size %d with the divisor %d: give a lesser one, or none", what, v.GetSize(), v.GetDivisor())
	case v.GetDivisor() > 0 && f.GetPooling() != model.Feature_SUM:
		c.add("%s has a divisor in its vocabulary and the pooling %v: the rows of remainder and quotient are summed, so give SUM, or no divisor", what, f.GetPooling())
	}
}
