// Package ensemble keeps a real ZooKeeper ensemble the same as the znode view, in both
// directions: it writes the tree there, same paths and same bytes, holds its ephemerals
// with a session of its own, repairs drift, and hands what foreign clients write there
// to an [Importer], which makes facts of it.
//
// Two connections share the work. Writes, and the session that holds ephemerals, are
// go-zookeeper's. It has no addWatch, and after a reconnect its watches may be gone
// without a word, so reads and watches go over a connection of our own that is never
// resumed: when it breaks, another one is opened and everything is compared anew.
//
// What is a foreign write of data, and what an echo, is decided by zxids alone (see decide): a
// mark in the ensemble, written in the same multi as every write, says up to which
// sequence and which zxid both sides have been the same, and which zxids since then were
// the mirror's own. Its version fences: a mirror whose term is over can write no more. Access
// lists have no zxid; they are decided by how often they were set (see decideACL).
package ensemble
