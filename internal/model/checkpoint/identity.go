package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/durable"
)

// Identity tells what was written into a folder: the SHA-256 of its manifest, which holds a
// checksum of every file. "" for a folder without one.
func Identity(dir fs.FS) (string, error) {
	text, err := ManifestText(dir)
	return IdentityOf(text), err
}

// Written is the identity of what this process has just written into dir, and its size.
func Written(dir string) (identity string, size uint64, err error) {
	if identity, err = Identity(os.DirFS(dir)); err != nil {
		return "", 0, err
	}
	n, err := DirSize(dir)
	return identity, uint64(n), err
}

// Checksums are the CRC-32C of the files that the manifest text names.
func Checksums(manifest []byte) (map[string]uint32, error) {
	var m struct {
		Files map[string]uint32 `json:"files"`
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	for name := range m.Files {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("%s names %q, which is not in the folder", ManifestName, name)
		}
	}
	return m.Files, nil
}

// ManifestText is the manifest of a folder, nil where it has none.
func ManifestText(dir fs.FS) ([]byte, error) {
	f, err := dir.Open(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSmall+1))
	if err == nil && len(text) > maxSmall {
		err = fmt.Errorf("%s is longer than %d bytes", ManifestName, maxSmall)
	}
	return text, err
}

// IdentityOf is the identity of a folder with that manifest.
func IdentityOf(manifest []byte) string {
	if manifest == nil {
		return ""
	}
	sum := sha256.Sum256(manifest)
	return hex.EncodeToString(sum[:])
}

// VerifyFiles compares a folder with its own manifest: every file named is there with its
// checksum. A folder without one, which another system exported, passes.
func VerifyFiles(ctx context.Context, dir fs.FS) error {
	text, err := ManifestText(dir)
	if err != nil || text == nil {
		return err
	}
	sums, err := Checksums(text)
	if err != nil {
		return err
	}
	for name, want := range sums {
		got, err := FileSum(ctx, dir, name)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s has checksum %08x where %s says %08x", name, got, ManifestName, want)
		}
	}
	return nil
}

// FileSum is the CRC-32C of a file.
func FileSum(ctx context.Context, dir fs.FS, name string) (uint32, error) {
	f, err := dir.Open(filepath.ToSlash(name))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h := crc32.New(castagnoli)
	if _, err := io.Copy(h, durable.UntilDone(ctx, f)); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return h.Sum32(), nil
}
