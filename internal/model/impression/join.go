package impression

import "strconv"

// Headers of a record on the training topic that name the answer which it is about; a record without
// them is as good for learning.
const (
	HeaderRequest  = "request-id" // of the Predict that scored it; absent: not scored
	HeaderPosition = "position"   // in that request's batch
)

// RatingsTopic is the training topic unless configured otherwise.
const RatingsTopic = "ratings"

// Key names one row of one request.
type Key struct {
	RequestID string
	Row       int
}

// KeyOf reads which row a training record is about; ok is false where it does not say.
func KeyOf(headers map[string]string) (k Key, ok bool) {
	row, err := strconv.Atoi(headers[HeaderPosition])
	k = Key{headers[HeaderRequest], row}
	return k, k.RequestID != "" && err == nil && row >= 0
}

// Of is whose answers are meant: a model's or, with a version, that version's.
type Of struct {
	Model   string
	Version int64
}

// Answer is what a join needs of an impression.
type Answer struct {
	Score  float64
	TimeUS int64
	TookUS int64
}

// Joiner finds the answer that a training record is about. It holds at least the newest Limit answers
// and at most twice as many; 0: all of them. It is not safe for concurrent use.
type Joiner struct {
	Limit int

	young, old map[who]Answer // a full young one becomes old, and what was old is forgotten
}

type who struct {
	of  Of
	key Key
}

// Add notes an impression as an answer of; the first of several of one row stands.
func (j *Joiner) Add(of Of, i *Impression) {
	w := who{of, Key{i.RequestID, i.Row}}
	if _, again := j.Answer(of, w.key); again {
		return
	}
	if j.young == nil {
		j.young = map[who]Answer{}
	}
	j.young[w] = Answer{float64(i.Score), i.TimeUS, i.TookUS}
	if j.Limit > 0 && len(j.young) >= j.Limit {
		j.young, j.old = nil, j.young
	}
}

// Answer is the one that was given for a row.
func (j *Joiner) Answer(of Of, k Key) (a Answer, ok bool) {
	if a, ok = j.young[who{of, k}]; !ok {
		a, ok = j.old[who{of, k}]
	}
	return a, ok
}

// Forget drops an answer.
func (j *Joiner) Forget(of Of, k Key) {
	delete(j.young, who{of, k})
	delete(j.old, who{of, k})
}
