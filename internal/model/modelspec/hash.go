package modelspec

import "github.com/go-faster/city"

// HashID is the id that text has in a feature of ids HASH: the lower 48 bits of its CityHash64.
func HashID(text []byte) int64 { return int64(city.Hash64(text)) & MaxID }
