package specfile

import (
	"fmt"
	"regexp"
	"strconv"

	"gopkg.in/yaml.v3"

	"github.com/monolith-go/monolith/internal/model/modelspec"
)

// maxRange bounds the elements that a range becomes.
const maxRange = modelspec.MaxSlices

var numbers = regexp.MustCompile(`\{(\d{1,9})\.\.(\d{1,9})\}`)

// copies is how many elements an element of a list stands for by its ranges, 0 without any. Lists
// inside of it are their own elements' affair.
func copies(n *yaml.Node) (int, error) {
	count, first := 0, ""
	err := ranges(n, func(text string, from, to int) error {
		size := to - from + 1
		switch {
		case size < 1 || size > maxRange:
			return fmt.Errorf("line %d: the range %s has %d numbers: give 1 to %d, upwards", n.Line, text, max(size, 0), maxRange)
		case count > 0 && size != count:
			return fmt.Errorf("line %d: the ranges %s and %s of one element count differently: make them equally long", n.Line, first, text)
		}
		count, first = size, text
		return nil
	})
	return count, err
}

// ranges calls f for each range in n's texts.
func ranges(n *yaml.Node, f func(text string, from, to int) error) error {
	switch n.Kind {
	case yaml.ScalarNode:
		for _, m := range numbers.FindAllStringSubmatch(n.Value, -1) {
			from, _ := strconv.Atoi(m[1])
			to, _ := strconv.Atoi(m[2])
			if err := f(m[0], from, to); err != nil {
				return err
			}
		}
	case yaml.MappingNode:
		for i := 1; i < len(n.Content); i += 2 {
			if err := ranges(n.Content[i], f); err != nil {
				return err
			}
		}
	}
	return nil
}

// numbered is n with the i-th number of each range.
func numbered(n *yaml.Node, i int) *yaml.Node {
	c := *n
	switch n.Kind {
	case yaml.ScalarNode:
		c.Value = numbers.ReplaceAllStringFunc(n.Value, func(text string) string {
			from, _ := strconv.Atoi(numbers.FindStringSubmatch(text)[1])
			return strconv.Itoa(from + i)
		})
	case yaml.MappingNode:
		c.Anchor, c.Content = "", append([]*yaml.Node(nil), n.Content...)
		for k := 1; k < len(c.Content); k += 2 {
			c.Content[k] = numbered(n.Content[k], i)
		}
	}
	return &c
}
