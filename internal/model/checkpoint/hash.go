package checkpoint

import (
	"fmt"

	"github.com/monolith-go/monolith/kernels/table"
)

// HashShard is the Hash that WriteShard would put into the manifest of s, without
// writing anything.
func HashShard(s *Shard) (string, error) {
	infos, err := tableInfos(s)
	if err != nil {
		return "", fmt.Errorf("hash shard: %w", err)
	}
	names, _, err := variableInfos(s.Dense)
	if err != nil {
		return "", fmt.Errorf("hash shard: %w", err)
	}
	bands, err := bandInfos(s, new(Manifest))
	if err != nil {
		return "", fmt.Errorf("hash shard: %w", err)
	}
	filters, err := filterInfos(s)
	if err != nil {
		return "", fmt.Errorf("hash shard: %w", err)
	}
	for i := range infos {
		rows, err := ordered(&infos[i], s.Tables[infos[i].Name])
		if err != nil {
			return "", fmt.Errorf("hash shard: %w", err)
		}
		h := table.NewHasher(infos[i].Dim)
		for _, r := range rows {
			h.Add(r)
		}
		infos[i].Hash = h.Sum()
	}
	return contentHash(infos, filters, names, s.Dense, bands), nil
}
