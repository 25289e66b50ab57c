"""Tables in Markdown have their headings once, and parts of a document are put between their marks."""

import mistune
import pytest

from lib.workbook.markdown import escaped, filled, table


def test_a_table_has_its_headings_and_a_line_for_each_row():
    assert table([{"a": "1", "b c": ""}, {"a": "2", "b c": "x"}]) == "| a | b c |\n| --- | --- |\n| 1 |  |\n| 2 | x |"


def test_parts_are_put_where_their_names_are():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n<!-- /y -->\n"
    once = filled(text, {"x": r"| \1 |"})
    assert once == text.replace("old", r"| \1 |") and filled(once, {"x": r"| \1 |"}) == once
    assert filled(text, {"y": "new", "x": "old"}) == text.replace("<!-- /y", "new\n<!-- /y")


@pytest.mark.parametrize("text", ["", "<!-- x -->\n", "<!-- /x -->"])
def test_a_document_without_the_marks_is_refused(text):
    with pytest.raises(ValueError, match="x: the document has no marks of this name"):
        filled(text, {"x": "new"})


def test_plain_text_keeps_its_bars_asterisks_and_angles():
    text = "|x| <= D*/N* for all *, x > 0"
    rendered = mistune.html(table([{"a": escaped(text)}]))
    assert "<td>|x| &lt;= D*/N* for all *, x &gt; 0</td>" in rendered
