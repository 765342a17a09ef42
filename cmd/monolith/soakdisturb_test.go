package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/bus/kafka"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/archiving"
	"github.com/monolith-go/monolith/loadtest/demo"
	"github.com/monolith-go/monolith/projections/fleet"
	"github.com/monolith-go/monolith/projections/lineage"
)

// trimInTheMiddle archives the log and removes all of it but the last seconds. Owners go on
// deciding on facts that are gone from the log, and whoever begins anew reads the archive.
func trimInTheMiddle(s *soak) {
	if code, out, stderr := s.tool("archive", "--dir", s.archive, "--segment-events", "64"); code != exitOK {
		s.t.Fatalf("archive: exit %d %s%s", code, out, stderr)
	}
	conn, out := s.Config.Logs, new(bytes.Buffer)
	conn.Archive = s.archive
	// The command keeps twenty minutes at least, which no test can wait for.
	if err := archiving.Trim(s.soon(), conn, 0, time.Second, true, out); err != nil || !strings.Contains(out.String(), "events were removed") {
		s.t.Fatalf("trim: %v %s", err, out)
	}
	s.decides("behind a trim")
	if code, out, stderr := s.tool("events", "--filter", "jobStarted"); code != exitOK || !strings.Contains(out, "jobStarted") {
		s.t.Errorf("the beginning cannot be read: exit %d %s%s", code, out, stderr)
	}
}

// saves has the chief make a checkpoint.
func (s *soak) saves(why string) {
	s.t.Helper()
	_, err := s.job.Checkpoint(s.soon(), why)
	s.must("make a checkpoint "+why, err)
}

// decides has the chief and the portal decide something, each on its own aggregate.
func (s *soak) decides(why string) {
	s.t.Helper()
	s.saves(why)
	_, err := s.job.Load(s.soon(), &model.Load{ModelName: host.ModelName, ModelDir: s.Exports(), Job: host.JobName, Replicas: uint32(s.Config.Replicas)})
	s.must("load the model "+why, err)
}

// partitionsAdded gives the topic one partition more, and writes to it at once. The job
// takes it up as a fact and learns it from its beginning.
func partitionsAdded(s *soak) {
	added := int32(s.Config.Partitions)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 10_000
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = host.RatingsTopic, added+1
	req.Topics = append(req.Topics, topic)
	res, err := req.RequestWith(s.soon(), s.kafkaClient())
	if err == nil {
		err = kerr.ErrorForCode(res.Topics[0].ErrorCode)
	}
	s.must("add a partition", err)
	s.Config.Partitions++
	s.traffic.note(func() { s.traffic.partitions = s.Config.Partitions })
	s.must("wait for the fact", demo.Await(s.soon(), s.job.Lineage, func(l lineage.State) bool { return l.Jobs[host.JobName].Started.V.GetPartitions() == added+1 }))
	s.until("the new partition to be learnt", func() (bool, string) {
		next, err := s.job.Trained(s.ctx, s.Config.Shards)
		return err == nil && next[added] > 0, fmt.Sprint(next, err)
	})
}

func (s *soak) kafkaClient(more ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	c, err := kgo.NewClient(append(more, kgo.SeedBrokers(s.Brokers()...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	s.must("make a Kafka client", err)
	s.t.Cleanup(c.Close)
	return c
}

// transactionalProducer commits and aborts by turns, while others write between. The last
// transaction stays open for a while: what is behind it waits for its end.
func transactionalProducer(s *soak) {
	c := s.kafkaClient(kgo.TransactionalID("soak"))
	for i := range 4 {
		commit := kgo.TransactionEndTry(i%2 == 0)
		s.must("begin a transaction", c.BeginTransaction())
		records := s.ledger.records(20*s.Config.Partitions, s.Config.Partitions)
		for _, r := range records {
			k := &kgo.Record{Topic: r.Topic, Partition: r.Partition, Value: r.Value}
			for name, v := range r.Headers {
				k.Headers = append(k.Headers, kgo.RecordHeader{Key: name, Value: []byte(v)})
			}
			s.must("write in a transaction", c.ProduceSync(s.soon(), k).FirstErr())
		}
		if i == 3 {
			s.flows("behind an open transaction")
		}
		s.must("end the transaction", c.EndTransaction(s.soon(), commit))
		if commit {
			s.ledger.note(s.ledger.acked, records)
		} else {
			s.ledger.note(s.ledger.never, records)
		}
	}
	s.learnsOn("behind the last marker")
}

// learnsOn waits until every shard has learnt what the topic holds at this moment, which
// goes on.
func (s *soak) learnsOn(what string) {
	s.t.Helper()
	ends := s.learnt()
	if len(ends) != s.Config.Partitions {
		s.t.Errorf("%s: %d partitions are learnt, want %d", what, len(ends), s.Config.Partitions)
	}
}

// recordsFrom2102 writes good ratings with a clock that is far ahead, one batch after the
// other: they are parked, and the time by which rows expire stays where it was.
func recordsFrom2102(s *soak) {
	writer := kafka.NewWriter(kafka.WriterConfig{Brokers: s.Brokers()})
	defer writer.Close()
	before := s.refusedFor("2102-01-01")
	const batches = 3
	for range batches {
		records := s.ledger.records(s.Config.Partitions, s.Config.Partitions)
		for i := range records {
			records[i].Time = time.Date(2102, 1, 1, 0, 0, 0, 0, time.UTC)
		}
		s.ledger.note(s.ledger.never, records)
		_, err := writer.Write(s.soon(), records...)
		s.must("write records from 2102", err)
		s.learnsOn("from 2102")
	}
	want := batches * s.Config.Partitions
	s.ledger.refused += want
	if got := s.refusedFor("2102-01-01") - before; got != want {
		s.t.Errorf("%d records are parked because of their date, want %d", got, want)
	}
}

// refusedFor is how many letters name the reason.
func (s *soak) refusedFor(reason string) (n int) {
	s.t.Helper()
	for _, p := range s.letters() {
		if strings.Contains(p.Reason, reason) {
			n++
		}
	}
	return n
}

const letterStream = "MONOLITH_DLQ"

// fullLetters fills the dead letters with those of another namespace. What is refused then
// is counted, whatever comes behind it is learnt and decided, and once they are purged
// letters are written again.
func fullLetters(s *soak) {
	nc := s.plain()
	js, err := jetstream.New(nc)
	s.must("open JetStream", err)
	s.counted()
	roomy := s.limitLetters(js, 0)
	s.fill(nc)
	letters, counted := s.parked()
	s.refuse(nc)
	s.until("what is refused to be counted", func() (bool, string) {
		l, c := s.parked()
		return l == letters && c == counted+refusals, fmt.Sprintf("%d letters and %d counted, were %d and %d", l, c, letters, counted)
	})
	s.decides("with full letters")
	s.learnsOn("with full letters")
	if code, out, stderr := s.tool("dlq", "ls"); code != exitOK || !strings.Contains(out, "\n-") {
		s.t.Errorf("dlq ls shows no summary: exit %d %s%s", code, out, stderr)
	}
	s.purge()
	s.refuse(nc)
	s.until("letters to be written again", func() (bool, string) {
		l, c := s.parked()
		return l == refusals && c == 0, fmt.Sprintf("%d letters and %d counted, want %d", l, c, refusals)
	})
	s.limitLetters(js, roomy)
}

// limitLetters sets the stream's limit, as `nats stream edit --max-bytes` does; 0: to a
// little more than what it takes now, with room for the share of each source. It returns
// the limit that was.
func (s *soak) limitLetters(js jetstream.JetStream, limit int64) (was int64) {
	s.t.Helper()
	stream, err := js.Stream(s.soon(), letterStream)
	s.must("find the letters", err)
	cfg := stream.CachedInfo().Config
	was, cfg.MaxBytes = cfg.MaxBytes, limit
	if limit == 0 {
		cfg.MaxBytes = 8 * (int64(stream.CachedInfo().State.Bytes) + 32<<10)
	}
	_, err = js.UpdateStream(s.soon(), cfg)
	s.must("limit the letters", err)
	return was
}

const elsewhere = "elsewhere" // another namespace on the same NATS

// fill publishes letters of another namespace until the stream takes none.
func (s *soak) fill(nc *nats.Conn) {
	s.t.Helper()
	for size := 16 << 10; size >= 16; size /= 4 {
		for {
			subject := fmt.Sprintf("mdlq.%s.junk.%d", elsewhere, time.Now().UnixNano())
			m, err := nc.Request(subject, make([]byte, size), opsWithin)
			s.must("publish on "+subject, err)
			if strings.Contains(string(m.Data), "maximum bytes exceeded") {
				break
			}
			if !strings.Contains(string(m.Data), `"seq"`) {
				s.t.Fatalf("publish on %s: %s", subject, m.Data)
			}
		}
	}
}

// refusals is how many messages refuse has refused.
const refusals = 2 + 2

// refuse publishes what the trainers and the portal cannot take.
func (s *soak) refuse(nc *nats.Conn) {
	s.t.Helper()
	for range 2 {
		s.put("not json", nil)
		s.publish(nc, "monolith.demo.model.movies.request", []byte("not json"))
	}
	s.ledger.refused += refusals
}

// purge removes all letters, those of the other namespace too.
func (s *soak) purge() {
	s.t.Helper()
	letters, counted := s.parked()
	s.ledger.removed += letters + counted
	for _, bzid := range []string{s.Config.Logs.BZID, elsewhere} {
		if code, out, stderr := opsTool("dlq", "purge", "--yes", "--nats", s.Config.Logs.NATS, "--bzid", bzid); code != exitOK || !strings.Contains(out, "removed") {
			s.t.Fatalf("dlq purge of %s: exit %d %s%s", bzid, code, out, stderr)
		}
	}
}

const hungTask = "serving-0-1"

// hungModelServer stops the process of a model server. Predictions are made by the other
// replica, the log says what happened, and the supervisor puts another process in its place.
func hungModelServer(s *soak) {
	from, err := s.job.Bus.Log().Last(s.soon())
	s.must("find the end of the log", err)
	hung := s.serverPID()
	if !descendant(hung) {
		s.t.Fatalf("process %d is no model server of ours", hung)
	}
	s.must("stop the model server", syscall.Kill(hung, syscall.SIGSTOP))
	s.flows("while a model server hangs")
	s.until("another process", func() (bool, string) {
		now := s.serverPID()
		return now != 0 && now != hung, fmt.Sprintf("%d is there, %d hangs", now, hung)
	})
	s.whole()
	code, out, stderr := s.tool("events", "--since", fmt.Sprint(from+1), "--json", "--filter", hungTask)
	for _, want := range []string{"does not answer about", "processExited", "processStarted"} {
		if code != exitOK || !strings.Contains(out, want) {
			s.t.Errorf("the log does not say %q: exit %d %s%s", want, code, out, stderr)
		}
	}
}

// serverPID is the process of the model server that can hang, 0 while it says none.
func (s *soak) serverPID() int {
	raw, err := os.ReadFile(filepath.Join(s.Config.Dir, "servers", hungTask, "addr.json"))
	if err != nil {
		return 0
	}
	var at struct{ PID int }
	if json.Unmarshal(raw, &at) != nil {
		return 0
	}
	return at.PID
}

// descendant tells whether this process, or one that it started, has started pid.
func descendant(pid int) bool {
	for _, p := range descendants(os.Getpid()) {
		if p.pid == pid {
			return true
		}
	}
	return false
}

// whole waits until every replica serves and nobody has a problem.
func (s *soak) whole() {
	s.t.Helper()
	_, err := s.job.AwaitServing(s.soon(), host.ModelName, s.Config.Shards, s.Config.Replicas)
	s.must("wait for every replica", err)
	s.until("every problem to be over", func() (ok bool, say string) {
		s.job.Fleet.Read(func(f fleet.State) {
			for name, c := range f.Containers {
				if problem := c.Container.V.GetProblem(); c.Alive && problem != "" {
					say += name + ": " + problem + "\n"
				}
			}
		})
		status, body, err := opsGet(s.ctx, "http://"+s.StatusAddr()+"/readyz")
		return say == "" && err == nil && status == http.StatusOK, fmt.Sprint(say, status, body, err)
	})
}

// authenticationBlip gives NATS another password, as a rotation that goes wrong, and takes
// it back once every role has said what is wrong. Predictions go on meanwhile, Kafka
// takes the ratings, and afterwards every role is back by itself.
func authenticationBlip(s *soak) {
	s.whole()
	logged := len(s.log.String())
	s.must("change the password", s.server.rotate("another"))
	s.until("every role to say that it is refused", func() (bool, string) {
		status, body, err := opsGet(s.ctx, "http://"+s.StatusAddr()+"/readyz")
		say := fmt.Sprint(status, " ", body, err)
		for _, task := range s.Tasks {
			ok := false
			for line := range strings.Lines(body) {
				ok = ok || strings.HasPrefix(line, task.Name+": nats: ") && strings.Contains(strings.ToLower(line), "authorization")
			}
			if !ok {
				return false, task.Name + " does not: " + say
			}
		}
		return status == http.StatusServiceUnavailable, say
	})
	s.flows("while NATS refuses everybody")
	s.server.password.Store("right")
	s.whole()
	s.saves("after an authentication blip")
	s.learnsOn("after an authentication blip")
	if told := s.log.String()[logged:]; strings.Contains(told, "a role ended and is started again") {
		s.t.Errorf("a role did not outlive it:\n%s", tail(told))
	}
}
