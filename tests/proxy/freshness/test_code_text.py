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
    "a value with a mark": ("a.properties", "a=b #1\n", "a=b #2\n"),
    "a password with a mark": (".env", "A=b #1\n", "A=b #2\n"),
    "a pattern with a mark": ("run.sh", "x=${y# a}\n", "x=${y# b}\n"),
    "words of Ruby": ("a.rb", "x = %w[\n  # one\n]\n", "x = %w[\n  # two\n]\n"),
    "a long string of Lua": ("a.lua", "s = [[\n-- one\n]]\n", "s = [[\n-- two\n]]\n"),
    "data behind the code": ("a.rb", "p\n__END__\n# one\n", "p\n__END__\n# two\n"),
    "a text below a remark": ("a.yml", "a: | # told\n  # one\n", "a: | # told\n  # two\n"),
    "an interpreter": ("run.sh", "#!/bin/sh\nmake\n", "#!/bin/bash\nmake\n"),
    "an order to the compiler": ("a.go", "//go:embed one.txt\nvar s string\n", "//go:embed two.txt\nvar s string\n"),
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
