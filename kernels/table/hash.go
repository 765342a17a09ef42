package table

import "math/bits"

// mix is the finaliser of SplitMix64. It permutes the 64-bit numbers.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unmix undoes mix.
func unmix(z uint64) uint64 {
	z = (z ^ z>>31 ^ z>>62) * 0x319642b2d24d8ec3
	z = (z ^ z>>27 ^ z>>54) * 0x96de1b173f119089
	return z ^ z>>30 ^ z>>60
}

// hashOf spreads ids. It permutes them too, so two ids never have one hash, and an index
// that keeps the hash keeps the id.
func hashOf(id int64) uint64 { return mix(uint64(id) + golden) }

func idOf(hash uint64) int64 { return int64(unmix(hash) - golden) }

// A hash is read from the top: shardBits for the shard, the next 32 for the home bucket
// of that shard, of which there are n, in order: equal parts of the 2^32 as near as can
// be. Of n buckets, k = floor(log2 n) bits of the position follow from the bucket; the
// key is the rest of the hash, at the top of a word, whose low 6+k bits are free.

func homeOf(hash uint64, n uint32) uint32 {
	return uint32(hash >> (32 - shardBits) & (1<<32 - 1) * uint64(n) >> 32)
}

func keyBits(hash uint64, k uint32) uint64 { return hash << shardBits << k }

// log2 is floor(log2 n), n > 0.
func log2(n uint32) uint32 { return uint32(bits.Len32(n)) - 1 }

// hashAt is the hash of what lies with this key at home in bucket home of n of a shard.
func hashAt(shard int, home, n uint32, key uint64) uint64 {
	k := log2(n)
	rest := key >> k // the key's own bits of hash << shardBits
	first := (uint64(home)<<32 + uint64(n) - 1) / uint64(n)
	at := first + (rest>>32-first)&(1<<(32-k)-1)
	return uint64(shard)<<(64-shardBits) | (at<<32|rest&(1<<32-1))>>shardBits
}
