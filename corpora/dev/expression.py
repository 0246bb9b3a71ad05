"""A small calculator: tokenizer, recursive descent parser and evaluator.

The grammar, in the usual notation:

    expression: term (('+' | '-') term)*
    term:       factor (('*' | '/' | '%') factor)*
    factor:     ('+' | '-') factor | power
    power:      atom ['^' factor]
    atom:       NUMBER | NAME | NAME '(' [arguments] ')' | '(' expression ')'
    arguments:  expression (',' expression)*

The power operator binds tighter than a sign on its left and is right
associative, so that -2^2 is -4 and 2^3^2 is 512.
"""

import math
import operator
import re
from collections import namedtuple


class ExpressionError(Exception):
    """Raised when an expression cannot be read or evaluated.

    The attribute *position* is the offset of the fault in the text.
    """

    def __init__(self, message, position):
        super().__init__("%s at position %d" % (message, position))
        self.message = message
        self.position = position


Token = namedtuple("Token", "kind value position")

_token_re = re.compile(r"""
    (?P<space>   \s+ )
  | (?P<number>  \d+ (?: \. \d* )? (?: [eE] [+-]? \d+ )? | \. \d+ )
  | (?P<name>    [A-Za-z_] \w* )
  | (?P<symbol>  [-+*/%^(),] )
""", re.VERBOSE)


def tokenize(text):
    """Yield the tokens of *text*, then one token of kind 'end'."""
    position = 0
    while position < len(text):
        match = _token_re.match(text, position)
        if match is None:
            raise ExpressionError("unexpected character %r" % text[position],
                                  position)
        kind = match.lastgroup
        value = match.group()
        if kind == "number":
            yield Token(kind, float(value), position)
        elif kind == "name":
            yield Token(kind, value, position)
        elif kind == "symbol":
            yield Token(value, value, position)
        position = match.end()
    yield Token("end", None, position)


class Node:
    """Base class of the nodes of a parsed expression."""

    def __init__(self, position):
        self.position = position

    def evaluate(self, names):
        raise NotImplementedError


class Number(Node):

    def __init__(self, value, position):
        super().__init__(position)
        self.value = value

    def evaluate(self, names):
        return self.value

    def __repr__(self):
        return "Number(%r)" % self.value


class Name(Node):

    def __init__(self, name, position):
        super().__init__(position)
        self.name = name

    def evaluate(self, names):
        try:
            value = names[self.name]
        except KeyError:
            raise ExpressionError("unknown name %r" % self.name,
                                  self.position) from None
        if callable(value):
            raise ExpressionError("%r is a function" % self.name,
                                  self.position)
        return value

    def __repr__(self):
        return "Name(%r)" % self.name


class Unary(Node):

    def __init__(self, function, operand, position):
        super().__init__(position)
        self.function = function
        self.operand = operand

    def evaluate(self, names):
        return self.function(self.operand.evaluate(names))

    def __repr__(self):
        return "Unary(%s, %r)" % (self.function.__name__, self.operand)


class Binary(Node):

    def __init__(self, function, left, right, position):
        super().__init__(position)
        self.function = function
        self.left = left
        self.right = right

    def evaluate(self, names):
        left = self.left.evaluate(names)
        right = self.right.evaluate(names)
        try:
            return self.function(left, right)
        except ZeroDivisionError:
            raise ExpressionError("division by zero", self.position) from None
        except OverflowError:
            raise ExpressionError("result too large", self.position) from None

    def __repr__(self):
        return "Binary(%s, %r, %r)" % (self.function.__name__,
                                       self.left, self.right)


class Call(Node):

    def __init__(self, name, arguments, position):
        super().__init__(position)
        self.name = name
        self.arguments = arguments

    def evaluate(self, names):
        function = names.get(self.name)
        if not callable(function):
            raise ExpressionError("unknown function %r" % self.name,
                                  self.position)
        values = [argument.evaluate(names) for argument in self.arguments]
        try:
            return function(*values)
        except (TypeError, ValueError) as exc:
            raise ExpressionError("%s(): %s" % (self.name, exc),
                                  self.position) from exc

    def __repr__(self):
        return "Call(%r, %r)" % (self.name, self.arguments)


class Parser:
    """Turn the tokens of one expression into a tree of nodes."""

    additive = {"+": operator.add, "-": operator.sub}
    multiplicative = {"*": operator.mul, "/": operator.truediv,
                      "%": operator.mod}
    signs = {"+": operator.pos, "-": operator.neg}

    def __init__(self, text):
        self.tokens = tokenize(text)
        self.token = next(self.tokens)

    def advance(self):
        """Return the current token and move to the next one."""
        token = self.token
        if token.kind != "end":
            self.token = next(self.tokens)
        return token

    def expect(self, kind):
        if self.token.kind != kind:
            found = "end of text" if self.token.kind == "end" \
                    else repr(self.token.value)
            raise ExpressionError("expected %r, found %s" % (kind, found),
                                  self.token.position)
        return self.advance()

    def parse(self):
        node = self.expression()
        if self.token.kind != "end":
            raise ExpressionError("unexpected %r" % self.token.value,
                                  self.token.position)
        return node

    def expression(self):
        return self.binary(self.additive, self.term)

    def term(self):
        return self.binary(self.multiplicative, self.factor)

    def binary(self, operators, operand):
        node = operand()
        while self.token.kind in operators:
            token = self.advance()
            node = Binary(operators[token.kind], node, operand(),
                          token.position)
        return node

    def factor(self):
        if self.token.kind in self.signs:
            token = self.advance()
            return Unary(self.signs[token.kind], self.factor(),
                         token.position)
        return self.power()

    def power(self):
        node = self.atom()
        if self.token.kind == "^":
            token = self.advance()
            node = Binary(operator.pow, node, self.factor(), token.position)
        return node

    def atom(self):
        token = self.advance()
        if token.kind == "number":
            return Number(token.value, token.position)
        if token.kind == "name":
            if self.token.kind == "(":
                return Call(token.value, self.arguments(), token.position)
            return Name(token.value, token.position)
        if token.kind == "(":
            node = self.expression()
            self.expect(")")
            return node
        if token.kind == "end":
            raise ExpressionError("unexpected end of text", token.position)
        raise ExpressionError("unexpected %r" % token.value, token.position)

    def arguments(self):
        self.expect("(")
        result = []
        if self.token.kind != ")":
            result.append(self.expression())
            while self.token.kind == ",":
                self.advance()
                result.append(self.expression())
        self.expect(")")
        return result


default_names = {
    "pi": math.pi,
    "e": math.e,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "log": math.log,
    "abs": abs,
    "min": min,
    "max": max,
}


def evaluate(text, **names):
    """Return the value of the expression *text*.

    Keyword arguments are added to the names that the expression can use.
    """
    return Parser(text).parse().evaluate({**default_names, **names})


def main():
    """Read expressions from standard input and print their values."""
    import sys
    for line in sys.stdin:
        line = line.rstrip("\n")
        if not line:
            continue
        try:
            print(evaluate(line))
        except ExpressionError as exc:
            print(line, file=sys.stderr)
            print(" " * exc.position + "^ " + exc.message, file=sys.stderr)


if __name__ == "__main__":
    main()
