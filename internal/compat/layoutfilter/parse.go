package layoutfilter

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxDepth bounds how deep an expression nests, and so the stack that reading and
// computing it take.
const maxDepth = 64

// expr computes its value from those of the names.
type expr func(vars []number) (number, error)

// parse reads an expression over names with the precedences of Python: or, and, not,
// comparisons (which chain), + -, * / // %, unary + -, and True, False, whole numbers,
// names and parentheses.
func parse(text string, names []string) (expr, error) {
	tokens, err := split(text)
	if err != nil {
		return nil, err
	}
	p := &parser{tokens: tokens, names: names}
	e, err := p.or()
	if err != nil {
		return nil, err
	}
	if p.peek() != "" {
		return nil, fmt.Errorf("%q is not expected here", p.peek())
	}
	return e, nil
}

// split cuts an expression into names, numbers and operators.
func split(text string) ([]string, error) {
	var out []string
	for i := 0; i < len(text); {
		c := text[i]
		n := 1
		switch {
		case c == ' ' || c == '\t':
			i++
			continue
		case isDigit(c):
			for i+n < len(text) && isDigit(text[i+n]) {
				n++
			}
			if i+n < len(text) && isLetter(text[i+n]) {
				return nil, fmt.Errorf("%q is no whole number", text[i:i+n+1])
			}
		case isLetter(c):
			for i+n < len(text) && (isLetter(text[i+n]) || isDigit(text[i+n])) {
				n++
			}
		case strings.HasPrefix(text[i:], "//"), strings.HasPrefix(text[i:], "=="), strings.HasPrefix(text[i:], "!="),
			strings.HasPrefix(text[i:], "<="), strings.HasPrefix(text[i:], ">="):
			n = 2
		case strings.IndexByte("+-*/%<>()", c) < 0:
			return nil, fmt.Errorf("%q is no part of a condition: use whole numbers, the names of groups, + - * / // %% == != < <= > >= and or not ( ) True False", text[i:i+1])
		}
		out = append(out, text[i:i+n])
		i += n
	}
	return out, nil
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }

type parser struct {
	tokens []string
	names  []string
	depth  int
}

func (p *parser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

// take removes the next token if it is one of those, and returns it, else "".
func (p *parser) take(tokens ...string) string {
	t := p.peek()
	if t == "" || !slices.Contains(tokens, t) {
		return ""
	}
	p.tokens = p.tokens[1:]
	return t
}

// deeper counts one level of nesting until the returned function is called.
func (p *parser) deeper() (func(), error) {
	if p.depth++; p.depth > maxDepth {
		return nil, fmt.Errorf("it nests deeper than %d levels", maxDepth)
	}
	return func() { p.depth-- }, nil
}

func (p *parser) or() (expr, error)  { return p.logical("or", true, p.and) }
func (p *parser) and() (expr, error) { return p.logical("and", false, p.not) }

// logical is a chain of one operator, which gives the first operand whose truth decides
// it, else the last.
func (p *parser) logical(op string, decides bool, operand func() (expr, error)) (expr, error) {
	first, err := operand()
	if err != nil || p.peek() != op {
		return first, err
	}
	all := []expr{first}
	for p.take(op) != "" {
		next, err := operand()
		if err != nil {
			return nil, err
		}
		all = append(all, next)
	}
	return func(vars []number) (v number, err error) {
		for _, e := range all {
			if v, err = e(vars); err != nil || v.truth() == decides {
				break
			}
		}
		return v, err
	}, nil
}

func (p *parser) not() (expr, error) {
	if p.take("not") == "" {
		return p.comparison()
	}
	out, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer out()
	e, err := p.not()
	if err != nil {
		return nil, err
	}
	return func(vars []number) (number, error) {
		v, err := e(vars)
		return truth(!v.truth()), err
	}, nil
}

// chain reads operands with operators of one precedence between them.
func (p *parser) chain(operand func() (expr, error), operators ...string) (all []expr, ops []string, err error) {
	for {
		next, err := operand()
		if err != nil {
			return nil, nil, err
		}
		all = append(all, next)
		op := p.take(operators...)
		if op == "" {
			return all, ops, nil
		}
		ops = append(ops, op)
	}
}

// comparison may be a chain: a < b < c is a < b and b < c.
func (p *parser) comparison() (expr, error) {
	all, ops, err := p.chain(p.sum, "==", "!=", "<=", ">=", "<", ">")
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return all[0], nil
	}
	return func(vars []number) (number, error) {
		a, err := all[0](vars)
		for i, op := range ops {
			if err != nil {
				return number{}, err
			}
			b, err := all[i+1](vars)
			if err != nil {
				return number{}, err
			}
			if !compare(op, a, b) {
				return truth(false), nil
			}
			a = b
		}
		return truth(true), err
	}, nil
}

func (p *parser) sum() (expr, error)     { return p.arithmetic(p.product, "+", "-") }
func (p *parser) product() (expr, error) { return p.arithmetic(p.unary, "*", "/", "//", "%") }

// arithmetic is a chain of operators of one precedence, computed from the left.
func (p *parser) arithmetic(operand func() (expr, error), operators ...string) (expr, error) {
	all, ops, err := p.chain(operand, operators...)
	if err != nil {
		return nil, err
	}
	if len(ops) == 0 {
		return all[0], nil
	}
	return func(vars []number) (number, error) {
		v, err := all[0](vars)
		for i, op := range ops {
			if err != nil {
				return number{}, err
			}
			var b number
			if b, err = all[i+1](vars); err == nil {
				v, err = binary(op, v, b)
			}
		}
		return v, err
	}, nil
}

func (p *parser) unary() (expr, error) {
	op := p.take("+", "-")
	if op == "" {
		return p.atom()
	}
	out, err := p.deeper()
	if err != nil {
		return nil, err
	}
	defer out()
	e, err := p.unary()
	if err != nil || op == "+" {
		return e, err
	}
	return func(vars []number) (number, error) {
		v, err := e(vars)
		if err != nil {
			return number{}, err
		}
		if v.float {
			return decimal(-v.f), nil
		}
		return binaryInt("-", 0, v.i)
	}, nil
}

func (p *parser) atom() (expr, error) {
	t := p.peek()
	if t == "" {
		return nil, fmt.Errorf("the condition is empty or ends too early: write True to accept whatever the pattern matches")
	}
	p.tokens = p.tokens[1:]
	constant := func(v number) (expr, error) {
		return func([]number) (number, error) { return v, nil }, nil
	}
	switch {
	case t == "(":
		out, err := p.deeper()
		if err != nil {
			return nil, err
		}
		defer out()
		e, err := p.or()
		if err == nil && p.take(")") == "" {
			err = fmt.Errorf("a closing parenthesis is missing")
		}
		return e, err
	case t == "True":
		return constant(truth(true))
	case t == "False":
		return constant(truth(false))
	case isDigit(t[0]):
		n, err := strconv.ParseInt(t, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s does not fit 64 bits", t)
		}
		if t[0] == '0' && n != 0 {
			return nil, fmt.Errorf("%s starts with a zero, which says nothing: leave it out", t)
		}
		return constant(integer(n))
	case t == "and", t == "or", t == "not", !isLetter(t[0]):
		return nil, fmt.Errorf("%q is not expected here", t)
	}
	i := slices.Index(p.names, t)
	if i < 0 {
		known := "the pattern has none"
		if len(p.names) > 0 {
			known = "the pattern has " + strings.Join(p.names, ", ")
		}
		return nil, fmt.Errorf("%s is no group of the pattern: %s", t, known)
	}
	return func(vars []number) (number, error) { return vars[i], vars[i].missing }, nil
}
