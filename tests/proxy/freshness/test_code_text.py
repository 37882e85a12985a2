"""Which two versions of a source text are equal: those that differ in blank space and comments, and no others."""

from __future__ import annotations

import pytest

from confide_proxy.freshness import code_text

SAME = {
    "spaces": ("a.ts", "if (a) {\n  b( c );\n}\n", "if(a){\r\n\r\n    b(c);\r\n}"),
    "comments": ("a.go", "x := 1 // one\n/* two\n*/ y()\n", "x := 1\ny()\n"),
    "python": ("a.py", "def f(a,\n      b):\n    return 'x'  # told\n", 'def f(a, b):\n  return "x"\n'),
    "yaml": ("a.yml", "a:\n  b: 1 # one\n", "a:\n    b:   1\n\n# two\n"),
    "json": ("a.json", '{"a": [1, 2.50]}', '{\n "a": [\n 1,2.50 ]}\n'),
    "toml": ("a.toml", "a = 1 # one\n[b]\nc = 'x'\n", 'a=1\n\n[b]\nc = "x"'),
    "shell": ("run.sh", "# one\nmake  all\n", "make all\n# two"),
    "rust": ("a.rs", "fn f<'a>(x: &'a str) {\n  g(x); }\n", "fn f<'a>(x: &'a str) { // g\n g(x);\n}"),
    "a quote in a regular expression": ("a.js", "x.split(/['\"]/); // don't\ny();", "x.split(/['\"]/);\ny();"),
    "a comment between tags": ("a.tsx", "x = <p>{/* one */}a</p>;", "x = <p>{}a</p>;"),
    "a comment behind shell": ("run.sh", "if true; then # one\n  a\nfi\n", "if true; then\n  a\nfi\n"),
    "remarks with a colon": ("a.sh", "# why: one\n# note: a=1\n# http://one.test\nmake\n", "# why: two\nmake\n"),
    "remarks for readers": ("a.js", "/** @type {A} one */\n// @see one\nx();", "/**\n * @param one\n */\nx();"),
    "a remark on code with tags": ("a.tsx", "// one\nx = <p>a</p>;\n// two\ny();\n", "x = <p>a</p>;\n// 2\ny();\n"),
    "prose": ("a.md", "# Plan\n\nOne  step.\n", "# Plan\nOne step.\r\n"),
}
OTHER = {
    "an address in a string": ("a.ts", 'get("http://a/x");', 'get("http://a/y");'),
    "a mark in a string": ("a.rb", "say 'a # b'", "say 'a # c'"),
    "a regular expression": ("a.js", "a.replace(/\\/*$/, x); b(); /* */", "a.replace(/\\/*$/, x); c(); /* */"),
    "an indent": ("a.py", "if a:\n  b()\n  c()\n", "if a:\n  b()\nc()\n"),
    "an indent of yaml": ("a.yml", "a:\n  b:\n    c: 1\n", "a:\n  b:\n  c: 1\n"),
    "a here-document": ("run.sh", "cat <<END\n# one\nEND\n", "cat <<END\n# two\nEND\n"),
    "a text of several lines": ("a.py", 's = """\n# one\n"""\n', 's = """\n# two\n"""\n'),
    "a template": ("a.ts", "s = `\n// one\n`;", "s = `\n// two\n`;"),
    "a return and a value": ("a.js", "return\nx", "return x"),
    "two operators": ("a.c", "a = b + +c;", "a = b ++c;"),
    "blanks in a string": ("a.go", 's("a  b")', 's("a b")'),
    "a number's digits": ("a.json", '{"a": 1.0}', '{"a": 1}'),
    "a type of TOML": ("a.toml", "a = 1", "a = '1'"),
    "a string within another one": ("a.py", 'x = f"{d["#"]}" + a\n', 'x = f"{d["#"]}" + b\n'),
    "a string of several lines": ("a.rs", 'let s = "see // one\nend";', 'let s = "see // two\nend";'),
    "a text between tags": ("a.tsx", "<p>\n see // one</p>", "<p>\n see // two</p>"),
    "a remark between tags": ("a.tsx", "<p>\n see /* one */</p>", "<p>\n see /* two */</p>"),
    "a line of a string": ("a.rs", 'let s = "see\n // one\n";', 'let s = "see\n // two\n";'),
    "a hint in a string": ("a.cs", 'var s = @"\n /*+ one */ a";', 'var s = @"\n /*+ two */ a";'),
    "a raw string": ("a.cpp", 'auto s = R"(\n // one\n)";', 'auto s = R"(\n // two\n)";'),
    "three quotes": ("a.groovy", "s = '''\n // one\n'''\n", "s = '''\n // two\n'''\n"),
    "a here-document of PHP": ("a.php", "$a = <<<EOT\n  // one\nEOT;\n", "$a = <<<EOT\n  // two\nEOT;\n"),
    "a line string": ("a.zig", "const s =\n  \\\\ // one\n;", "const s =\n  \\\\ // two\n;"),
    "an address without quotes": ("a.scss", "a { b: url(//one.test/x); }", "a { b: url(//two.test/x); }"),
    "a class of letters": ("a.js", "x = a.split(b /[ //a]/);", "x = a.split(b /[ //b]/);"),
    "an expression of Swift": ("a.swift", "let a = /[ //a]/", "let a = /[ //b]/"),
    "a value with a mark": ("a.properties", "a=b #1\n", "a=b #2\n"),
    "a password with a mark": (".env", "A=b #1\n", "A=b #2\n"),
    "a pattern with a mark": ("run.sh", "x=${y# a}\n", "x=${y# b}\n"),
    "words of Ruby": ("a.rb", "x = %w[\n  # one\n]\n", "x = %w[\n  # two\n]\n"),
    "a long string of Lua": ("a.lua", "s = [[\n-- one\n]]\n", "s = [[\n-- two\n]]\n"),
    "data behind the code": ("a.rb", "p\n__END__\n# one\n", "p\n__END__\n# two\n"),
    "a text below a remark": ("a.yml", "a: | # told\n  # one\n", "a: | # told\n  # two\n"),
    "an interpreter": ("run.sh", "#!/bin/sh\nmake\n", "#!/bin/bash\nmake\n"),
    "an order to the compiler": ("a.go", "//go:embed one.txt\nvar s string\n", "//go:embed two.txt\nvar s string\n"),
    "a constraint of a build": ("a.go", "// +build linux\n\npackage a\n", "// +build windows\n\npackage a\n"),
    "C above a line of Go": ("a.go", '/*\n#define A 1\n*/\nimport "C"\n', '/*\n#define A 2\n*/\nimport "C"\n'),
    "the syntax of an image": (
        "Dockerfile",
        "# syntax=docker/dockerfile:1.4\nFROM a\n",
        "# syntax=docker/dockerfile:1.7\nFROM a\n",
    ),
    "a check that is off": ("a.ts", "// @ts-nocheck\nx();\n", "x();\n"),
    "where JSX goes": ("a.jsx", "/** @jsx h */\nx();\n", "/** @jsx k */\nx();\n"),
    "a reference to types": ("a.ts", '/// <reference types="node" />\nx();\n', '/// <reference types="bun" />\nx();\n'),
    "the environment of a test": (
        "a.test.ts",
        "// @vitest-environment jsdom\nx();\n",
        "// @vitest-environment node\nx();\n",
    ),
    "what a script needs": (
        "a.py",
        '# /// script\n# dependencies = [\n#   "requests<3",\n# ]\n# ///\nx()\n',
        '# /// script\n# dependencies = [\n#   "requests<4",\n# ]\n# ///\nx()\n',
    ),
    "the letters of a file": ("a.py", "# -*- coding: latin-1 -*-\nx()\n", "# -*- coding: utf-8 -*-\nx()\n"),
    "a language's level": ("a.py", "# cython: language_level=2\nx()\n", "# cython: language_level=3\nx()\n"),
    "strings that are frozen": (
        "a.rb",
        "# frozen_string_literal: true\nx()\n",
        "# frozen_string_literal: false\nx()\n",
    ),
    "an order to a scheduler": (
        "run.sh",
        "#!/bin/sh\n#SBATCH --time=1:00\nmake\n",
        "#!/bin/sh\n#SBATCH --time=2:00\nmake\n",
    ),
    "a schema": ("a.yml", "# yaml-language-server: $schema=one\na: 1\n", "# yaml-language-server: $schema=two\na: 1\n"),
    "a template's order": ("a.yml", '#@ load("one")\na: 1\n', '#@ load("two")\na: 1\n'),
    "the name of a query": ("a.sql", "-- name: GetUser :one\nSELECT 1;\n", "-- name: GetUser :many\nSELECT 1;\n"),
    "the way of a migration": ("a.sql", "-- +goose Up\nSELECT 1;\n", "-- +goose Down\nSELECT 1;\n"),
    "an import": (
        "a.graphql",
        '#import "./one.graphql"\ntype A { b: Int }\n',
        '#import "./two.graphql"\ntype A { b: Int }\n',
    ),
    "the version of the tools": (
        "Package.swift",
        "// swift-tools-version: 5.7\nx()\n",
        "// swift-tools-version: 5.9\nx()\n",
    ),
    "a route": ("a.php", "/**\n * @Route('/one')\n */\nf();\n", "/**\n * @Route('/two')\n */\nf();\n"),
    "a remark that is shown": ("a.tsx", "x = <p>\n  // one\n</p>;", "x = <p>\n  // two\n</p>;"),
    "one behind a text": ("a.tsx", "x = <p>\n  see\n  // one\n</p>;", "x = <p>\n  see\n  // two\n</p>;"),
    "exports of R": ("a.R", "#' @export\nx()\n", "#' @keywords internal\nx()\n"),
}


@pytest.mark.parametrize("case", SAME)
def test_a_difference_without_meaning(case: str) -> None:
    path, one, other = SAME[case]
    assert code_text.whole(path, one) == code_text.whole(path, other)


@pytest.mark.parametrize("case", OTHER)
def test_a_difference_with_a_meaning(case: str) -> None:
    path, one, other = OTHER[case]
    assert code_text.whole(path, one) != code_text.whole(path, other)
    assert [line.text for line in code_text.lines(path, one)] != [
        line.text for line in code_text.lines(path, other)
    ] or [line.step for line in code_text.lines(path, one)] != [line.step for line in code_text.lines(path, other)]


JAVA = """class Shop {
    void pay(int a)
            throws Late
    {
        log("}");
    }

    void open() {
        pay(1);
    }
}
"""


def test_a_definition_ends_where_its_block_does() -> None:
    """Braces in strings and on lines of their own; calls are no definitions; one definition within another."""
    (pay,) = code_text.definitions("Shop.java", JAVA, "pay")
    assert "log" in pay
    assert "open" not in pay
    assert code_text.definitions("Shop.java", JAVA, "Shop.open") == code_text.definitions("Shop.java", JAVA, "open")
    assert code_text.definitions("Shop.java", JAVA, "close") == []
    (arrow,) = code_text.definitions("a.js", "const f = (a) => {\n  g(a);\n};\nf(2);\n", "f")
    assert "g(a)" in arrow
    assert "f(2)" not in arrow
    (method,) = code_text.definitions("a.rb", "class A\n  def f\n    1\n  end\n\n  def g\n  end\nend\n", "A.f")
    assert "1" in method
    assert "g" not in method
    twice = code_text.definitions("a.py", "def f(): return 1\nclass A:\n  def f(self): return 2\n", "f")
    assert len(twice) == 2
    assert len(code_text.definitions("a.py", "LIMIT: int = 3\n", "LIMIT")) == 1


def test_a_definition_goes_past_text_at_the_margin() -> None:
    """A here-document, a body between dollars, a comment before the end; without its end it is another one."""
    shell = "f() {\n  cat <<END\ntext\n}\nEND\n  go\n# told\n}\ng() {\n  other\n}\n"
    (found,) = code_text.definitions("a.sh", shell, "f")
    assert "go" in found
    assert "other" not in found
    sql = "CREATE FUNCTION f() AS $$\nBEGIN\n  RETURN 1;\nEND;\n$$ LANGUAGE plpgsql;\nSELECT 2;\n"
    (found,) = code_text.definitions("a.sql", sql, "f")
    assert "plpgsql" in found
    assert "SELECT" not in found
    whole, without = (
        code_text.definitions("Shop.java", text, "open") for text in (JAVA, JAVA.replace("1);\n    }", "1);"))
    )
    assert whole != without


PARTS = {
    "a decorator": ("a.ts", "pay", "class A {\n  @Get({\n    at: '/1',\n  })\n  pay() {\n    go();\n  }\n}\n"),
    "an annotation": ("A.java", "pay", "class A {\n    @Late(1)\n\n    public void pay() {\n        go();\n    }\n}\n"),
    "an attribute": ("a.rs", "Pay", "#[late(1)]\n// told\npub struct Pay {\n    a: u8,\n}\n"),
    "a type on its line": ("a.c", "pay", "static int1\npay(int a)\n{\n    return a;\n}\n"),
    "a template": ("a.cpp", "pay", "template <typename T1>\nvoid pay(T1 a) {\n    go();\n}\n"),
    "a decorator of an older Python": ("a.py", "pay", "print 'x'\n@late(1)\ndef pay(a):\n    return a\n"),
    "equations": ("a.hs", "pay", "pay :: Int -> Int\npay x = x + 1\n"),
    "an equation of lines": ("a.elm", "pay", "pay : Int -> Int\npay x =\n    x + 1\n"),
    "an arrow of R": ("a.R", "pay", "pay <- function(x) {\n  x + 1\n}\npay(3)\n"),
    "an export": ("a.js", "pay", "exports.pay = async (a) => {\n  go(1);\n};\nfunction main() {\n  pay(a);\n}\n"),
    "a local of Lua": ("a.lua", "pay", "local pay = function(a)\n  go(1)\nend\nfunction main()\n  pay(a)\nend\n"),
    "a body without braces": ("A.cs", "Pay", "class A {\n    int Pay(int a) => a + 1;\n    void Main() {\n        Pay(a);\n    }\n}\n"),
    "a type with parentheses": ("a.ts", "pay", "class A {\n  pay(): L<() => void> {\n    go(1);\n  }\n  b() {\n    pay();\n  }\n}\n"),
    "a member of a template": ("a.cpp", "pay", "void n::Foo<T>::pay(int a) {\n  x = 1;\n}\nvoid main() {\n  pay(a);\n}\n"),
    "a member of a type": ("a.go", "Shop", "type Shop struct {\n\ta int\n}\n\nfunc (s *Shop) Pay() int {\n\treturn 1\n}\n"),
    "a trait": ("a.rs", "Shop", "struct Shop {\n    a: u8,\n}\n\nimpl<T> Late<T> for Shop {\n    fn pay() -> u8 { 1 }\n}\n"),
    "bounds on lines of their own": ("a.rs", "pay", "fn pay<T>(a: T) -> u8\nwhere\n    T: Copy,\n{\n    1\n}\n"),
    "a table that may be there": ("a.sql", "pay", "CREATE TABLE IF NOT EXISTS pay (\n  a CHAR(1)\n);\nALTER TABLE pay ADD b INT;\n"),
    "a quoted table": ("a.sql", "pay", 'CREATE TABLE "pay" (\n  a CHAR(1)\n);\nALTER TABLE pay ADD b INT;\n'),
    "a variable of Terraform": ("a.tf", "pay", 'variable "pay" {\n  default = 1\n}\nprovider "a" {\n  pay = var.pay\n}\n'),
    "a list below its name": ("a.yml", "web.pay", "web:\n  pay:\n  - 1\n  name: x\n"),
    "an addition": ("Makefile", "PAY", "PAY = -O\nPAY += -g1\n"),
    "an addition in Python": ("a.py", "PAY", "PAY = [0]\nPAY += [1]\n"),
    "two at once": ("a.py", "PAY", "if x:\n    PAY = 0\nelse:\n    PAY, B = 1, 2\n"),
    "unpacked": ("a.js", "pay", "const { pay } = make(1);\npay(3);\n"),
    "a field and its use": ("A.java", "pay", "class A {\n  private int pay = 1;\n  void a() {\n    pay = 3;\n  }\n}\n"),
    "a text of several lines": ("a.js", "pay", "const pay = `\n  a\n  1`;\n"),
    "an assertion of a type": ("a.ts", "pay", "const pay = a\nas B1\n"),
    "an order above it": ("a.go", "pay", "//go:embed 1.txt\nvar pay string\n"),
    "an annotation for a query": ("a.sql", "pay", "-- @cached 1\nCREATE VIEW pay AS SELECT 2;\n"),
    "a macro": ("a.h", "PAY", "#define PAY \\\n1\nint PAY = 2;\n"),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTS)
def test_all_of_a_definition_counts(case: str) -> None:
    """What stands above it, each of its forms, and its end; a call of it is none."""
    path, name, text = PARTS[case]
    assert code_text.definitions(path, text, name) != code_text.definitions(path, text.replace("1", "7"), name)
    assert code_text.definitions(path, text, name) == code_text.definitions(path, f"{text}\n\nother1 = 7\n", name)


def test_what_is_next_to_a_definition_does_not_count() -> None:
    """The member before it, the list behind it, the next item of a list."""
    java = "class A {\n  int a = 1;\n\n  @Late\n  void b() { go(); }\n  void pay() {\n    go();\n  }\n}\n"
    assert code_text.definitions("A.java", java, "pay") == ["void pay(){go();}"]
    listed = "web:\n- pay: 3\n  b: 4\n- pay2: 1\n"
    assert "pay2" not in code_text.definitions("a.yml", listed, "pay")[0]


def test_a_name_that_is_only_called_stands_for_its_file() -> None:
    """Its definition has a form that is not understood, and may be anywhere."""
    text = "define_method(:pay) do\n  1\nend\npay(3)\n"
    assert code_text.definitions("a.rb", text, "pay") != code_text.definitions("a.rb", text.replace("1", "7"), "pay")
    assert code_text.definitions("a.rb", text.replace("pay(3)", ""), "pay") == []
